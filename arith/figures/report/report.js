"use strict";
// Draws the numbers that page.py computed: JSON, deflated, in base64.

const LEFT = 15, BOTTOM = 15, SIDE = 84; // of 100, as in template.html
const EDGE = { left: 52, right: 26, top: 10, bottom: 38 }; // of a chart, in pixels
const STEPS = {
  ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1],
  PageUp: [10, 0], PageDown: [-10, 0], Home: [0, -Infinity], End: [0, Infinity],
};
const byId = (id) => document.getElementById(id);
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const percent = (share) => `${(100 * share).toFixed(1)} %`;
let report; // what the page knows
let choice = "mean"; // or a seed as text

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

// "+12.3", a negative number with a real minus sign; what rounds to 0 has no sign.
function signed(points, places = 1) {
  const text = Math.abs(points).toFixed(places);
  return Number(text) === 0 ? text : (points > 0 ? "+" : "\u2212") + text;
}

const SVG = "http://www.w3.org/2000/svg";
const make = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
const draw = (name, attributes = {}, ...children) => fill(document.createElementNS(SVG, name), attributes, children);
function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

// The box of text next to the mark that it is about (in the coordinates of the window).
function showReadout(lines, mark) {
  const readout = byId("readout");
  readout.replaceChildren(...lines.map((line) => make("p", {}, line)));
  readout.hidden = false;
  const { width, height } = readout.getBoundingClientRect();
  const right = mark.right + 12 + width < innerWidth;
  const left = right ? mark.right + 12 : Math.max(mark.left - 12 - width, 4);
  const top = clamp(mark.top + 12, 4, innerHeight - height - 4);
  // Without room next to the cell, the box must still not cover it.
  const covers = !right && mark.left - 12 - width < 4 && top < mark.bottom && top + height > mark.top;
  readout.style.left = `${left}px`;
  readout.style.top = `${covers ? Math.max(mark.top - height - 12, 4) : top}px`;
}

// Let the pointer (at(event) is a place or null) and the keyboard (moved(step) is one) choose.
function interactive(node, at, moved, show, hide) {
  node.addEventListener("pointermove", (event) => (at(event) ? show(at(event)) : hide()));
  node.addEventListener("pointerdown", (event) => at(event) && show(at(event)));
  node.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && hide());
  node.addEventListener("focus", () => node.matches(":focus-visible") && show(moved([0, 0])));
  node.addEventListener("blur", hide);
  node.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
    if (!(event.key in STEPS) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    show(moved(STEPS[event.key]));
  });
}

// ---- plots: the length on the first axis goes up, that on the second to the right; a grid of one
// axis is a row, and a line over it ----

const LINES = ["#0072b2", "#d55e00"]; // readable on light and on dark pages
const SHARP = 600; // pixels of a canvas with lines

function colourAt(colours, share) {
  const place = 6 * clamp(Math.floor(256 * share), 0, 255);
  return `#${colours.slice(place, place + 6)}`;
}

// Paint cells by colour(cell), or leave the canvas empty if there is no such function.
function paint(canvas, colour) {
  const [rows, columns] = report.shape, size = Math.max(rows, columns);
  const side = Math.max(4, Math.floor(480 / size));
  [canvas.width, canvas.height] = [side * columns, side * rows];
  const pen = canvas.getContext("2d");
  for (let cell = 0; colour && cell < rows * columns; cell++) {
    pen.fillStyle = colour(cell);
    pen.fillRect((cell % columns) * side, (rows - 1 - Math.floor(cell / columns)) * side, side, side);
  }
}

// Draw the shares of each of `encodings` (null for one that is absent) as a line with its band; the
// lengths at which marked(cell) holds get a dot.
function paintLines(canvas, encodings, marked = () => false) {
  canvas.width = canvas.height = SHARP;
  const pen = canvas.getContext("2d"), count = report.shape[1];
  const x = (cell) => ((cell + 0.5) / count) * SHARP, y = (share) => (1 - share) * (SHARP - 6) + 3;
  encodings.forEach((cells, place) => {
    if (!cells) return;
    const shares = cells.exact.map((_, cell) => shareOf(cells, cell));
    const path = (values, first = 0) => values.forEach((share, cell) => pen.lineTo(x(first ? count - 1 - cell : cell), y(share)));
    pen.fillStyle = pen.strokeStyle = LINES[place];
    pen.globalAlpha = 0.22;
    pen.beginPath();
    path(cells.high);
    path([...cells.low].reverse(), 1);
    pen.fill();
    pen.globalAlpha = 1;
    [pen.lineWidth, pen.lineJoin] = [5, "round"];
    pen.setLineDash(place ? [14, 9] : []);
    pen.beginPath();
    path(shares);
    pen.stroke();
    shares.forEach((share, cell) => {
      if (!marked(cell)) return;
      pen.beginPath();
      pen.arc(x(cell), y(share), 9, 0, 7);
      pen.fill();
    });
  });
}

function paintScale(id, colours) {
  byId(id).style.background = `linear-gradient(to right, ${colours.match(/.{6}/g).map((colour) => `#${colour}`)})`;
}

const plots = [];
let chosen = [0, 0]; // row and column of the cell that was marked last, shared by all plots

// The name of a cell, as in "5 and 2 digits".
const cellName = (place) => report.shortest.reduce((name, shortest, axis) =>
  name.replace(`{${axis}}`, shortest + place[axis + 2 - report.shortest.length]), report.cell);

// Let pointer and keyboard choose a cell of `plot`; about(cell) gives the lines to show of it.
function interactiveMap(plot, about) {
  plots.push(plot);
  const [rows, columns] = report.shape, [tall, wide] = report.shape.map((count) => SIDE / count);
  const rings = () => plots.map((each) => each.querySelector(".ring"));
  const under = (event) => {
    const box = plot.querySelector("canvas").getBoundingClientRect();
    const cell = [((box.bottom - event.clientY) / box.height) * rows, ((event.clientX - box.left) / box.width) * columns].map(Math.floor);
    return cell.every((place, axis) => place >= 0 && place < report.shape[axis]) ? cell : null;
  };
  const show = ([i, j]) => {
    chosen = [i, j];
    for (const ring of rings()) {
      fill(ring, { x: LEFT + j * wide, y: 100 - BOTTOM - (i + 1) * tall }, []).removeAttribute("hidden");
    }
    const at = i * columns + j;
    const [name, ...lines] = about(at);
    const region = report.regions.words[report.regions.cells[at]];
    showReadout([`${name}: ${cellName(chosen)}`, ...lines, region], plot.querySelector(".ring").getBoundingClientRect());
  };
  const hide = () => {
    for (const ring of rings()) ring.setAttribute("hidden", "");
    byId("readout").hidden = true;
  };
  // On a line, up is onwards too.
  const moved = ([up, right]) => (report.lines ? [0, up + right] : [up, right])
    .map((step, axis) => clamp(chosen[axis] + step, 0, report.shape[axis] - 1));
  interactive(plot, under, moved, show, hide);
}

const shareOf = (cells, at) => cells.exact[at] / cells.total;

function aboutCell(encoding, at) {
  const cells = encoding.choices[choice];
  if (!cells) return [encoding.name, `there is no seed ${choice}`];
  const exact = cells.exact[at], total = cells.total;
  const lines = [`${exact} of ${total} exact: ${percent(exact / total)}`, `95 % interval ${report.intervals[total][exact]} (Wilson, over problems)`];
  const each = cells.seeds.map((seed) => encoding.choices[seed]);
  if (each.length > 1) lines.push(`seeds ${cells.seeds.join(", ")}: ${each.map((one) => `${one.exact[at]}/${one.total}`).join(", ")}`);
  return [encoding.name, ...lines];
}

function drawMap(figure) {
  const encoding = report.encodings[figure.dataset.place], cells = encoding.choices[choice];
  const canvas = figure.querySelector("canvas");
  if (report.lines) paintLines(canvas, [cells]);
  else paint(canvas, cells && ((at) => colourAt(report.colours, shareOf(cells, at))));
  const lines = cells ? cells.lines : [];
  const last = make("span", {}, cells ? cells.last : `no seed ${choice}`);
  if (cells && cells.mark) last.append(" · ", make("b", {}, cells.mark));
  figure.querySelector(".words").replaceChildren(...lines.map((line) => make("span", {}, line)), last);
  figure.querySelector(".plot").setAttribute("aria-label", `${report.lines ? "Exact match" : "Heatmap"} of ${encoding.name}. ${lines.join("; ") || last.textContent}`);
  figure.classList.toggle("absent", !cells);
}

// ---- the difference of two encodings ----

// First minus second: cells in points, whether they differ significantly, and the words about them.
function differenceOf() {
  const [i, j] = ["one", "other"].map((id) => Number(byId(id).value));
  const [first, second] = [report.encodings[i], report.encodings[j]];
  const name = `${first.name} \u2212 ${second.name}`;
  const [a, b] = [first.choices[choice], second.choices[choice]];
  if (!a || !b) return { name, limit: 100, lines: [`not both have seed ${choice}`] };
  const same = { limit: 10, cells: "", points: [0, 0, 0], words: "the same encoding twice" };
  const pair = i === j ? same : report.pairs[choice][`${Math.min(i, j)} ${Math.max(i, j)}`];
  const sign = i > j ? -1 : 1, bits = atob(pair.cells);
  const regions = ["out of distribution", "in distribution", "all cells"];
  const means = pair.points.map((points, place) =>
    `${regions[place]} ${points === null ? "none scored" : `${signed(sign * points)} points`}`);
  const marks = [[first, a], [second, b]].filter(([, cells]) => cells.mark).map(([encoding, cells]) => `${encoding.name}: ${cells.mark}`);
  return {
    name, first, second, a, b, limit: pair.limit,
    lines: [...means, pair.words, choice === "mean" ? "mean of seeds" : `seed ${choice}`, ...marks],
    points: (at) => 100 * (shareOf(a, at) - shareOf(b, at)),
    significant: (at) => Boolean((bits.charCodeAt(at >> 3) >> (7 - (at & 7))) & 1),
  };
}

function drawDifference() {
  const { name, limit, lines, a, b, points, significant } = differenceOf();
  const figure = byId("difference-map"), canvas = figure.querySelector("canvas");
  if (report.lines) paintLines(canvas, [a, b], significant);
  else {
    paint(canvas, points && ((at) =>
      significant(at) ? colourAt(report.differences, 0.5 + points(at) / (2 * limit)) : report.grey));
    byId("lowest").textContent = `${signed(-limit, 0)} points`;
    byId("highest").textContent = `${signed(limit, 0)} points`;
  }
  byId("difference-name").textContent = name;
  byId("difference-words").replaceChildren(...lines.map((line) => make("span", {}, line)));
  figure.querySelector(".plot").setAttribute("aria-label", `Difference ${name}. ${lines.join("; ")}`);
}

function aboutDifference(at) {
  const { name, lines, first, second, a, b, points, significant } = differenceOf();
  if (!first) return [name, ...lines];
  const counts = [[first, a], [second, b]].map(([encoding, cells]) => `${encoding.name}: ${cells.exact[at]} of ${cells.total}`);
  return [name, `${signed(points(at))} points`, counts.join("; "),
    `${significant(at) ? "significant" : "not significant"} (false discovery rate 5 %, over problems)`];
}

// ---- charts over training steps, and over lengths ----

// An empty chart with marks at some steps, or numbers of another axis; x(step) is in pixels,
// reading(step) the lines to show.
function chart(box, { width, height, caption, axis = "step", steps, marks, x, reading }) {
  const svg = draw("svg", { class: "curves", viewBox: `0 0 ${width} ${height}`, tabindex: "0", role: "application",
    "aria-roledescription": "chart", "aria-label": `${caption}. Arrow keys move along it.` });
  box.replaceChildren(svg);
  svg.append(draw("text", { x: (EDGE.left + width) / 2, y: height - 4, "text-anchor": "middle" }, axis));
  for (const step of marks) {
    svg.append(draw("text", { x: x(step), y: height - EDGE.bottom + 17, "text-anchor": "middle" }, step.toLocaleString("en")));
  }
  const cursor = draw("line", { y1: EDGE.top, y2: height - EDGE.bottom, class: "cursor" });
  let place = steps.length - 1;
  const nearest = (event) => {
    const bounds = svg.getBoundingClientRect();
    const at = ((event.clientX - bounds.left) / bounds.width) * width;
    const away = steps.map((step) => Math.abs(x(step) - at));
    return [away.indexOf(Math.min(...away))];
  };
  const show = ([next]) => {
    place = next;
    svg.append(fill(cursor, { x1: x(steps[place]), x2: x(steps[place]) }, []));
    showReadout([axis === "step" ? `step ${steps[place].toLocaleString("en")}` : `${steps[place]} ${axis}`, ...reading(steps[place])], cursor.getBoundingClientRect());
  };
  const hide = () => {
    cursor.remove();
    byId("readout").hidden = true;
  };
  const moved = ([up, right]) => [clamp(place + up + right, 0, steps.length - 1)];
  if (steps.length) interactive(svg, nearest, moved, show, hide);
  return svg;
}

// Marks of a logarithmic axis around low and high: decades, finer where there are few of them.
function decades(low, high) {
  const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const parts = last - first > 2 ? [1] : [1, 2, 5];
  const powers = Array.from({ length: last - first + 1 }, (_, place) => 10 ** (first + place));
  const marks = powers.flatMap((power) => parts.map((part) => part * power));
  const from = marks.filter((mark) => mark <= low).length - 1;
  return marks.slice(Math.max(from, 0), marks.findIndex((mark) => mark >= high) + 1);
}

// Marks from 0 to the first usual end of a scale that is not below the highest share.
function shares(highest) {
  const end = [0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1].find((each) => highest <= each) ?? 1;
  return [0, 0.25, 0.5, 0.75, 1].map((part) => part * end);
}

function shortNumber(mark) {
  const number = Number(mark.toPrecision(1));
  return number < 1e-3 ? number.toExponential() : String(number); // "0.00001" leaves the chart
}

function roundSteps(last) {
  const unit = 10 ** Math.floor(Math.log10(last));
  const step = [0.2, 0.5, 1, 2].map((part) => part * unit).find((size) => last / size <= 6);
  return Array.from({ length: Math.floor(last / step) + 1 }, (_, place) => place * step);
}

// Thin lines are seeds, the thick one is their mean.
function drawCurves(box, shown) {
  const lines = shown.map((one) => ({ seeds: [], ...one, ...one[box.dataset.of] })).filter((one) => one.seeds.length);
  const title = box.previousElementSibling.textContent, names = lines.map((one) => one.encoding).join(", ");
  const points = lines.flatMap((one) => one.seeds.flat());
  const width = Math.max(box.clientWidth, 280), height = Math.round(Math.min(320, 120 + width / 3));
  const { axis = "step", trained } = box.dataset;
  const log = box.dataset.scale === "log", positive = ([, value]) => !log || value > 0;
  const last = Math.max(1, ...points.map(([step]) => step));
  const values = points.filter(positive).map(([, value]) => value);
  const marks = log && values.length ? decades(Math.min(...values), Math.max(...values)) : shares(Math.max(0, ...values));
  const scale = log ? Math.log10 : (value) => value;
  const [low, high] = [scale(marks[0]), scale(marks[marks.length - 1])];
  const x = (step) => EDGE.left + (step / last) * (width - EDGE.left - EDGE.right);
  const y = (value) => EDGE.top + ((high - scale(value)) / (high - low || 1)) * (height - EDGE.top - EDGE.bottom);
  const reading = (step) => lines.map((one) => [one.encoding, one.mean.find(([at]) => at === step)])
    .filter(([, point]) => point).map(([name, point]) => `${name}: ${log ? point[1].toPrecision(3) : percent(point[1])}`);
  const steps = [...new Set(lines.flatMap((one) => one.mean.map(([step]) => step)))].sort((a, b) => a - b);
  const caption = `${title}${axis === "step" ? ", over steps" : ""}: ${names || "nothing chosen"}`;
  const svg = chart(box, { width, height, caption, axis, steps, marks: points.length ? roundSteps(last) : [], x, reading });
  if (!points.length) {
    svg.append(draw("text", { x: 12, y: 30 }, "Nothing is drawn: no encoding is chosen, or none has such a log."));
    return;
  }
  for (const mark of marks) {
    svg.append(draw("line", { x1: EDGE.left, x2: width - EDGE.right, y1: y(mark), y2: y(mark), class: "rule" }));
    svg.append(draw("text", { x: EDGE.left - 7, y: y(mark), dy: "0.35em", "text-anchor": "end" }, log ? shortNumber(mark) : `${Number((100 * mark).toPrecision(3))} %`));
  }
  if (trained) {
    const border = x(Number(trained) + 0.5);
    svg.append(draw("line", { x1: border, x2: border, y1: EDGE.top, y2: height - EDGE.bottom, class: "cursor" }));
  }
  const path = (line) => line.filter(positive).map(([step, value], place) => `${place ? "L" : "M"}${x(step).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  for (const one of lines) {
    const pen = { stroke: one.colour, "stroke-dasharray": one.dash };
    for (const seed of one.seeds) svg.append(draw("path", { d: path(seed), class: "seed", ...pen }));
    svg.append(draw("path", { d: path(one.mean), class: "mean", ...pen }));
    if (one.mean.length === 1 && positive(one.mean[0])) { // a line through one point is invisible
      svg.append(draw("circle", { cx: x(one.mean[0][0]), cy: y(one.mean[0][1]), r: 3, fill: one.colour }));
    }
  }
}

function drawAllCurves() {
  const ticked = [...document.querySelectorAll("#shown input:checked")].map((tick) => report.curves[tick.value]);
  for (const box of document.querySelectorAll(".chart")) drawCurves(box, ticked);
}

// The learning of each length: steps to the right, the lengths of `report.longest` upwards.
function drawLengths() {
  const { encoding, lengths, steps, seeds, values } = report.lengths[byId("lengths-of").value];
  const box = byId("learning"), width = Math.max(box.clientWidth, 280);
  const tall = Math.max(17, 170 / lengths.length), height = EDGE.top + EDGE.bottom + tall * lengths.length;
  const wide = (width - EDGE.left - EDGE.right) / steps.length;
  const x = (step) => EDGE.left + (steps.indexOf(step) + 0.5) * wide, y = (row) => height - EDGE.bottom - tall * (row + 1);
  const every = Math.ceil(steps.length / Math.max(2, Math.floor(width / 90)));
  const svg = chart(box, {
    width, height, steps, x, marks: steps.filter((_, column) => (steps.length - 1 - column) % every === 0),
    caption: `${encoding}: exact match by length over steps, seeds ${seeds.join(", ")}`,
    reading: (step) => [encoding, ...lengths.map((length, row) => `${length} ${report.longest.split(" ")[0]}: ${percent(values[row][steps.indexOf(step)])}`)],
  });
  svg.classList.add("lengths");
  values.forEach((row, place) => {
    row.forEach((share, column) => svg.append(draw("rect", {
      x: EDGE.left + column * wide, y: y(place), width: wide + 0.3, height: tall + 0.3, class: "length", fill: colourAt(report.colours, share),
    })));
    svg.append(draw("text", { x: EDGE.left - 7, y: y(place) + tall / 2, dy: "0.35em", "text-anchor": "end" }, String(lengths[place])));
  });
  const border = y(lengths.filter((length) => length <= report.trained_digits).length - 1);
  for (const name of ["outline under", "outline"]) {
    svg.append(draw("line", { x1: EDGE.left, x2: width - EDGE.right, y1: border, y2: border, class: name }));
  }
  svg.append(draw("text", { x: 12, y: height / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${height / 2})` }, report.longest));
}

// ---- the leaderboard ----

function sortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  for (const head of heads.filter((each) => each.dataset.sort)) {
    const button = make("button", { type: "button" }, ...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const numbers = head.dataset.sort === "number", sorted = head.getAttribute("aria-sort");
      const down = sorted === (numbers ? null : "ascending") || sorted === "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      for (const body of table.tBodies) sortRows(body, head.cellIndex, numbers, down);
    });
  }
}

// The first row is the group's name; what is missing goes last, whichever way.
function sortRows(body, column, numbers, down) {
  const value = ({ cells }) => numbers ? (cells[column].textContent.replaceAll(",", "").match(/[\d.]+/) ?? [""])[0] : cells[0].dataset.value;
  const rows = [...body.rows].slice(1).sort((one, other) => {
    const [a, b] = [value(one), value(other)];
    if (numbers && (a === "" || b === "")) return (a === "") - (b === "");
    const order = numbers ? Number(a) - Number(b) : a.localeCompare(b);
    return down ? -order : order;
  });
  body.append(...rows);
}

// Show the rows that have every word of the search, and the kind that is chosen, if any is.
function filterable(table) {
  const [search, kind, count] = ["search", "kind", "found"].map(byId);
  const rows = [...table.querySelectorAll("tr[data-kind]")];
  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/);
    for (const row of rows) {
      const text = row.dataset.words.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word)) || !["", row.dataset.kind].includes(kind.value);
    }
    for (const body of table.tBodies) body.hidden = [...body.rows].slice(1).every((row) => row.hidden);
    const shown = rows.filter((row) => !row.hidden).length;
    count.textContent = shown < rows.length ? `${shown} of ${rows.length} encodings; ranks are among all` : "";
  };
  for (const control of [search, kind]) control.addEventListener("input", filter);
}

// Hide the least important columns that have no room, unless all are asked for.
function fitColumns(table) {
  const box = table.parentElement, all = byId("all-columns");
  const importance = (head) => Number(head.dataset.importance ?? 0);
  const heads = [...table.tHead.rows[0].cells].filter((head) => importance(head) > 2);
  heads.sort((one, other) => importance(other) - importance(one));
  const rows = [...table.rows].filter((row) => row.cells.length > 1);
  const fit = () => {
    for (const head of heads) for (const row of rows) row.cells[head.cellIndex].hidden = false;
    for (const head of heads) {
      if (all.checked || box.scrollWidth <= box.clientWidth) break;
      for (const row of rows) row.cells[head.cellIndex].hidden = true;
    }
  };
  let width = 0;
  new ResizeObserver(() => width !== box.clientWidth && ((width = box.clientWidth), fit())).observe(box);
  all.addEventListener("change", fit);
}

// Fade the edge of a table behind which there are more columns; the leaderboard has a hint too.
function showWhatScrolls() {
  for (const box of document.querySelectorAll("main > section > .scrolled")) {
    const mark = () => box.classList.toggle("more", box.scrollLeft + box.clientWidth < box.scrollWidth - 2);
    box.addEventListener("scroll", mark);
    new ResizeObserver(mark).observe(box);
  }
}

// ---- put it together, and redraw what a choice changes ----

async function start() {
  report = await unpack(byId("data").textContent);
  const figures = [...document.querySelectorAll(".map[data-place]")], slider = byId("seed");
  sortable(byId("board"));
  filterable(byId("board"));
  fitColumns(byId("board"));
  showWhatScrolls();
  if (!report.lines) {
    paintScale("scale", report.colours);
    paintScale("difference-scale", report.differences);
  }
  const redraw = () => {
    choice = report.choices[slider.value];
    const words = choice === "mean" ? "mean of seeds" : `seed ${choice}`;
    slider.setAttribute("aria-valuetext", words);
    document.querySelector("output[for=seed]").textContent = words;
    byId("footnote").textContent = report.footnotes[choice];
    figures.forEach(drawMap);
    drawDifference();
  };
  slider.addEventListener("input", redraw);
  for (const id of ["one", "other"]) byId(id).addEventListener("change", drawDifference);
  for (const figure of figures) {
    interactiveMap(figure.querySelector(".plot"), (at) => aboutCell(report.encodings[figure.dataset.place], at));
  }
  interactiveMap(byId("difference-map").querySelector(".plot"), aboutDifference);
  redraw();
  const charts = { shown: drawAllCurves, ...(report.lengths.length && { "lengths-of": drawLengths }) };
  for (const [id, drawChart] of Object.entries(charts)) {
    byId(id).addEventListener("change", drawChart);
    new ResizeObserver(drawChart).observe(byId(id)); // at the start too
  }
  startTheme();
  document.documentElement.dataset.ready = "yes";
}

function startTheme() {
  const button = byId("theme"), root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    button.setAttribute("aria-pressed", String(dark()));
  });
  button.setAttribute("aria-pressed", String(dark()));
}

start().catch((error) => {
  byId("problem").textContent = `This browser could not draw the maps and curves (${error.message}); the tables are complete without them.`;
  byId("problem").hidden = false;
});
