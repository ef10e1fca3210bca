// Curves over training steps: thin lines are seeds, the thick one is their mean.

const STROKES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#3a9bdc", "#8c6bb1", "#7f7f7f"];
const DASHES = ["", "6 3", "2 3", "8 3 2 3"];
const SHOWN_AT_FIRST = 5;
const EDGE = { left: 52, right: 26, top: 10, bottom: 38 };

// The trained encodings in the order of the leaderboard, each with its runs and its line.
function trained(report) {
  const places = report.encodings.map((encoding) => encoding.name);
  const names = [...new Set(report.curves.map((curve) => curve.encoding))];
  const rank = (name) => {
    const place = places.findIndex((other) => other === name || other.startsWith(`${name}+`));
    return place < 0 ? Infinity : place;
  };
  names.sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
  return names.map((name, place) => ({
    name,
    stroke: STROKES[place % STROKES.length],
    dash: DASHES[Math.floor(place / STROKES.length) % DASHES.length],
    runs: report.curves.filter((curve) => curve.encoding === name),
  }));
}

// (step, mean over seeds) at the steps that all of them have.
function meanOf(lines) {
  const sums = new Map();
  for (const line of lines) {
    for (const [step, value] of line) {
      const [sum, count] = sums.get(step) || [0, 0];
      sums.set(step, [sum + value, count + 1]);
    }
  }
  return [...sums].filter(([, [, count]]) => count === lines.length)
    .map(([step, [sum, count]]) => [step, sum / count]).sort((a, b) => a[0] - b[0]);
}

// Marks of a logarithmic axis around low and high: decades, finer where there are few of them.
function decades(low, high) {
  const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const parts = last - first > 2 ? [1] : [1, 2, 5];
  const marks = [];
  for (let power = first; power <= last; power++) marks.push(...parts.map((part) => part * 10 ** power));
  const from = marks.filter((mark) => mark <= low).length - 1;
  const to = marks.findIndex((mark) => mark >= high);
  return marks.slice(Math.max(from, 0), to + 1);
}

function roundSteps(last) {
  const unit = 10 ** Math.floor(Math.log10(last));
  const step = [0.2, 0.5, 1, 2].map((part) => part * unit).find((size) => last / size <= 6);
  return Array.from({ length: Math.floor(last / step) + 1 }, (_, place) => place * step);
}

function chart(box, series, caption) {
  const lines = series.map((one) => {
    const seeds = one.runs.map((run) => run[box.dataset.of]).filter((line) => line.length);
    return { ...one, seeds, mean: seeds.length ? meanOf(seeds) : [] };
  }).filter((one) => one.seeds.length);
  const svg = draw("svg", { class: "curves", tabindex: "0", role: "application", "aria-roledescription": "chart" });
  svg.setAttribute("aria-label", `${caption}, over steps: ${lines.map((one) => one.name).join(", ") || "nothing chosen"}. Arrow keys move over steps; a table follows.`);
  const width = Math.max(box.clientWidth, 280);
  const height = Math.round(Math.min(320, 120 + width / 3));
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const details = make("details", {}, make("summary", {}, `${caption} as a table`));
  box.replaceChildren(svg, details);
  const points = lines.flatMap((one) => one.seeds.flat());
  if (!points.length) {
    svg.append(draw("text", { x: 12, y: 30 }, "Nothing is drawn: no encoding is chosen, or none has such a log."));
    return;
  }
  const last = Math.max(...points.map(([step]) => step));
  const log = box.dataset.scale === "log";
  const values = points.map(([, value]) => value).filter((value) => !log || value > 0);
  const marks = log ? decades(Math.min(...values), Math.max(...values)) : [0, 0.25, 0.5, 0.75, 1];
  const scale = log ? Math.log10 : (value) => value;
  const [low, high] = [scale(marks[0]), scale(marks[marks.length - 1])];
  const x = (step) => EDGE.left + (step / last) * (width - EDGE.left - EDGE.right);
  const y = (value) => EDGE.top + ((high - scale(value)) / (high - low || 1)) * (height - EDGE.top - EDGE.bottom);
  for (const mark of marks) {
    svg.append(draw("line", { x1: EDGE.left, x2: width - EDGE.right, y1: y(mark), y2: y(mark), class: "rule" }));
    svg.append(draw("text", { x: EDGE.left - 7, y: y(mark), dy: "0.35em", "text-anchor": "end" },
      log ? String(Number(mark.toPrecision(1))) : `${100 * mark} %`));
  }
  for (const step of roundSteps(last)) {
    svg.append(draw("text", { x: x(step), y: height - EDGE.bottom + 17, "text-anchor": "middle" }, step.toLocaleString("en")));
  }
  svg.append(draw("text", { x: (EDGE.left + width) / 2, y: height - 4, "text-anchor": "middle" }, "step"));
  const path = (line) => line.filter(([, value]) => !log || value > 0)
    .map(([step, value], place) => `${place ? "L" : "M"}${x(step).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  for (const one of lines) {
    const pen = { stroke: one.stroke, "stroke-dasharray": one.dash };
    if (one.mean.length === 1) { // a line through one point is nothing to see
      const [step, value] = one.mean[0];
      if (!log || value > 0) svg.append(draw("circle", { cx: x(step), cy: y(value), r: 3, fill: one.stroke }));
    }
    for (const seed of one.seeds) svg.append(draw("path", { d: path(seed), class: "seed", ...pen }));
    svg.append(draw("path", { d: path(one.mean), class: "mean", ...pen }));
  }
  const cursor = draw("line", { y1: EDGE.top, y2: height - EDGE.bottom, class: "cursor", visibility: "hidden" });
  svg.append(cursor);
  const steps = [...new Set(lines.flatMap((one) => one.mean.map(([step]) => step)))].sort((a, b) => a - b);
  const said = (value) => (log ? value.toPrecision(3) : percent(value));
  readable(svg, cursor, steps, x, (step) => [`step ${step.toLocaleString("en")}`,
    ...lines.map((one) => [one.name, one.mean.find(([at]) => at === step)])
      .filter(([, found]) => found).map(([name, found]) => `${name}: ${said(found[1])}`)]);
  details.addEventListener("toggle", () => {
    if (details.open) curveTable(details, caption, steps, lines, said);
  });
}

// Let pointer and keyboard move over the steps.
function readable(svg, cursor, steps, x, about) {
  if (!steps.length) return;
  let place = steps.length - 1;
  const show = () => {
    cursor.setAttribute("x1", x(steps[place]));
    cursor.setAttribute("x2", x(steps[place]));
    cursor.setAttribute("visibility", "visible");
    tell(about(steps[place]), cursor.getBoundingClientRect());
  };
  const hide = () => {
    cursor.setAttribute("visibility", "hidden");
    tellNothing();
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
    const away = steps.map((step) => Math.abs(x(step) - at));
    place = away.indexOf(Math.min(...away));
    show();
  });
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
  svg.addEventListener("focus", () => svg.matches(":focus-visible") && show());
  svg.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
    if (!(event.key in STEPS) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const [up, right] = STEPS[event.key];
    place = Math.min(Math.max(place + up + right, 0), steps.length - 1);
    show();
  });
}

function curveTable(details, caption, steps, lines, said) {
  const head = make("tr", {}, make("th", { scope: "col" }, "step"),
    ...lines.map((one) => make("th", { scope: "col" }, one.name)));
  const means = lines.map((one) => new Map(one.mean));
  const rows = steps.map((step) => make("tr", {}, make("th", { scope: "row" }, String(step)),
    ...means.map((mean) => make("td", {}, mean.has(step) ? said(mean.get(step)) : ""))));
  const table = make("table", { class: "cells" }, make("caption", {}, `${caption}, mean of seeds`),
    make("thead", {}, head), make("tbody", {}, ...rows));
  const box = make("div", { class: "scrolled", tabindex: "0", role: "region", "aria-label": caption }, table);
  details.replaceChildren(details.querySelector("summary"), box);
}

// A box to tick for each encoding; it is the legend too.
function legend(box, series, changed) {
  series.forEach((one, place) => {
    const tick = make("input", { type: "checkbox", value: String(place) });
    tick.checked = place < SHOWN_AT_FIRST;
    tick.addEventListener("change", changed);
    const swatch = draw("svg", { viewBox: "0 0 26 8", width: "26", height: "8", "aria-hidden": "true" });
    swatch.append(draw("line", { x1: 0, x2: 26, y1: 4, y2: 4, stroke: one.stroke, "stroke-width": 3, "stroke-dasharray": one.dash }));
    box.append(make("label", {}, tick, swatch, one.name));
  });
}
