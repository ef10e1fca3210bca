// The one small box that tells of what is pointed at or focused, by eye and by screen reader.

function make(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function draw(name, attributes = {}, text = "") {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.textContent = text;
  return node;
}

// Lines of text beside the box (in the window's coordinates) that they are about.
function tell(lines, box) {
  const readout = document.getElementById("readout");
  readout.replaceChildren(...lines.map((line) => make("p", {}, line)));
  readout.hidden = false;
  const { width, height } = readout.getBoundingClientRect();
  const right = box.right + 12 + width < innerWidth;
  const left = right ? box.right + 12 : Math.max(box.left - 12 - width, 4);
  const top = Math.min(Math.max(box.top + 12, 4), innerHeight - height - 4);
  // Where there is no room beside the cell it must not be covered.
  const covers = !right && box.left - 12 - width < 4 && top < box.bottom && top + height > box.top;
  readout.style.left = `${left}px`;
  readout.style.top = `${covers ? Math.max(box.top - height - 12, 4) : top}px`;
}

function tellNothing() {
  document.getElementById("readout").hidden = true;
}

const STEPS = {
  ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1],
  PageUp: [10, 0], PageDown: [-10, 0], Home: [0, -Infinity], End: [0, Infinity],
};
