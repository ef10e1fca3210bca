// Heatmaps on canvas: the first operand's length goes up, the second's to the right, from 1.

const MISSING = { ground: "#f4f4f4", line: "#8c8c8c" }; // as in arith/figures/panel.py
const GREY = "#cfcfcf";
const LEFT = 15, BOTTOM = 15, SIDE = 84; // of 100, as in maps.py

function colourAt(colours, share) {
  const place = 6 * Math.min(255, Math.max(0, Math.floor(256 * share)));
  return `#${colours.slice(place, place + 6)}`;
}

// Paint cells: colour(cell) is a colour, or null for one that is missing.
function paint(canvas, digits, colour) {
  const side = Math.max(4, Math.floor(480 / digits));
  canvas.width = canvas.height = side * digits;
  const pen = canvas.getContext("2d");
  hatch(pen, canvas.width, canvas.height);
  for (let i = 0; i < digits; i++) {
    for (let j = 0; j < digits; j++) {
      const filled = colour(i * digits + j);
      if (filled === null) continue;
      pen.fillStyle = filled;
      pen.fillRect(j * side, (digits - 1 - i) * side, side, side);
    }
  }
}

function hatch(pen, width, height) {
  pen.fillStyle = MISSING.ground;
  pen.fillRect(0, 0, width, height);
  pen.strokeStyle = MISSING.line;
  pen.lineWidth = 1.5;
  pen.beginPath();
  for (let x = -height; x < width; x += 8) {
    pen.moveTo(x, height);
    pen.lineTo(x + height, 0);
  }
  pen.stroke();
}

function paintScale(canvas, colours) {
  canvas.width = 256;
  canvas.height = 1;
  const pen = canvas.getContext("2d");
  for (let step = 0; step < 256; step++) {
    pen.fillStyle = colourAt(colours, step / 256);
    pen.fillRect(step, 0, 1, 1);
  }
}

// Let pointer and keyboard choose a cell of `plot`; about(i, j) gives the lines to tell of it.
const plots = [];
let chosen = null; // the cell that the keyboard was on last, shared by all maps
function interactive(plot, digits, about) {
  plots.push(plot);
  const cell = SIDE / digits;
  const show = (i, j) => {
    for (const each of plots) {
      const ring = each.querySelector(".ring");
      ring.setAttribute("x", LEFT + (j - 1) * cell);
      ring.setAttribute("y", 100 - BOTTOM - i * cell);
      ring.removeAttribute("hidden");
    }
    tell(about(i, j), plot.querySelector(".ring").getBoundingClientRect());
  };
  const hide = () => {
    for (const each of plots) each.querySelector(".ring").setAttribute("hidden", "");
    tellNothing();
  };
  const under = (event) => {
    const box = plot.querySelector("canvas").getBoundingClientRect();
    const j = Math.floor(((event.clientX - box.left) / box.width) * digits) + 1;
    const i = Math.floor(((box.bottom - event.clientY) / box.height) * digits) + 1;
    return i >= 1 && i <= digits && j >= 1 && j <= digits ? [i, j] : null;
  };
  const point = (event) => {
    const cell = under(event);
    if (cell) show(...cell);
    else hide();
  };
  plot.addEventListener("pointermove", point);
  plot.addEventListener("pointerdown", (event) => {
    chosen = under(event) || chosen;
    point(event);
  });
  plot.addEventListener("pointerleave", (event) => {
    if (event.pointerType === "mouse") hide();
  });
  plot.addEventListener("focus", () => {
    chosen = chosen || [1, 1];
    if (plot.matches(":focus-visible")) show(...chosen);
  });
  plot.addEventListener("blur", hide);
  plot.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
    if (!(event.key in STEPS) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const [up, right] = STEPS[event.key];
    const within = (value) => Math.min(Math.max(value, 1), digits);
    chosen = [within(chosen[0] + up), within(chosen[1] + right)];
    show(...chosen);
  });
}

// What is told of a cell of one encoding.
function aboutCell(report, place, choice, i, j) {
  const cells = cellsOf(report, place, choice);
  const title = `${report.encodings[place].name}: ${i} + ${j} digits`;
  const region = regionOf(report, i, j);
  if (!cells) return [title, `${region}; there is no seed ${choice}`];
  const at = (i - 1) * report.max_digits + j - 1;
  const missing = cells.each.filter((grid) => grid.total[at] === 0);
  if (missing.length) {
    return [title, `${region}; not scored: seed ${missing.map((grid) => grid.seed).join(", ")}`];
  }
  const [low, high] = wilson(cells.exact[at], cells.total[at]);
  const lines = [
    title,
    `${cells.exact[at]} of ${cells.total[at]} exact: ${percent(cells.share[at])}`,
    `95 % interval ${percent(low)} to ${percent(high)} (Wilson, these runs only)`,
  ];
  if (cells.each.length > 1) {
    const counts = cells.each.map((grid) => `${grid.exact[at]}/${grid.total[at]}`);
    lines.push(`seeds ${cells.each.map((grid) => grid.seed).join(", ")}: ${counts.join(", ")}`);
  }
  return [...lines, region];
}

function drawMap(report, figure, choice) {
  const place = Number(figure.dataset.place);
  const encoding = report.encodings[place];
  const cells = cellsOf(report, place, choice);
  const shares = cells ? cells.share : [];
  paint(figure.querySelector("canvas"), report.max_digits, (cell) =>
    cells && !Number.isNaN(shares[cell]) ? colourAt(report.colours, shares[cell]) : null);
  const said = encoding.said[choice];
  const lines = said ? said.lines.map((line) => make("span", {}, line)) : [];
  const last = make("span", {}, said ? said.seeds : `no seed ${choice}`);
  if (said && said.mark) last.append(" · ", make("b", {}, said.mark));
  figure.querySelector(".said").replaceChildren(...lines, last);
  const words = said ? said.lines.join("; ") : `no seed ${choice}`;
  figure.querySelector(".plot").setAttribute("aria-label",
    `Heatmap of ${encoding.name}, 1 to ${report.max_digits} digits. ${words}`);
  figure.classList.toggle("absent", !said);
}
