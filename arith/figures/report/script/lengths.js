// Learning of each length: steps to the right, digits of the longer operand upwards.

const LENGTHS_NOTE = "Mean of seeds, on the small grid that is scored on the way: a few problems for each pair of some lengths, by digits of the longer operand. Above the line are lengths that were not trained.";
const NO_LENGTHS = "These runs did not log exact match by length on the way. What they logged, held-out exact match over the trained lengths together, is drawn above under Training.";

function startLengths(report) {
  const having = report.lengths;
  const select = document.getElementById("lengths-of");
  const note = document.getElementById("lengths-note");
  note.textContent = having.length ? LENGTHS_NOTE : NO_LENGTHS;
  document.getElementById("lengths-bar").hidden = !having.length;
  if (!having.length) return;
  having.forEach((one, place) => select.append(make("option", { value: String(place) }, one.encoding)));
  const redraw = () => drawLengths(report, having[Number(select.value)]);
  select.addEventListener("change", redraw);
  addEventListener("resize", redraw);
  redraw();
}

function drawLengths(report, one) {
  const { encoding, lengths, steps, seeds, values } = one;
  const box = document.getElementById("learning");
  const width = Math.max(box.clientWidth, 280);
  const tall = Math.max(17, 170 / lengths.length);
  const height = EDGE.top + EDGE.bottom + tall * lengths.length;
  const svg = draw("svg", { class: "curves lengths", viewBox: `0 0 ${width} ${height}`, tabindex: "0", role: "application", "aria-roledescription": "chart" });
  const caption = `${encoding}: exact match by length over steps, seeds ${seeds.join(", ")}`;
  svg.setAttribute("aria-label", `${caption}. Arrow keys move over steps; a table follows.`);
  const wide = (width - EDGE.left - EDGE.right) / steps.length;
  const y = (row) => height - EDGE.bottom - tall * (row + 1);
  values.forEach((row, place) => {
    steps.forEach((step, column) => svg.append(draw("rect", {
      x: EDGE.left + column * wide, y: y(place), width: wide + 0.3, height: tall + 0.3, class: "length",
      fill: colourAt(report.colours, row[column]),
    })));
    svg.append(draw("text", { x: EDGE.left - 7, y: y(place) + tall / 2, dy: "0.35em", "text-anchor": "end" }, String(lengths[place])));
  });
  const every = Math.ceil(steps.length / Math.max(2, Math.floor(width / 90)));
  steps.forEach((step, column) => {
    if ((steps.length - 1 - column) % every) return;
    svg.append(draw("text", { x: EDGE.left + (column + 0.5) * wide, y: height - EDGE.bottom + 17, "text-anchor": "middle" }, step.toLocaleString("en")));
  });
  const trainedRows = lengths.filter((length) => length <= report.trained_digits).length;
  for (const name of ["outline under", "outline"]) {
    svg.append(draw("line", { x1: EDGE.left, x2: width - EDGE.right, y1: y(trainedRows - 1), y2: y(trainedRows - 1), class: name }));
  }
  svg.append(draw("text", { x: (EDGE.left + width) / 2, y: height - 4, "text-anchor": "middle" }, "step"));
  svg.append(draw("text", { x: 12, y: height / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${height / 2})` }, "digits of the longer operand"));
  const cursor = draw("line", { y1: EDGE.top, y2: height - EDGE.bottom, class: "cursor", visibility: "hidden" });
  svg.append(cursor);
  const details = make("details", {}, make("summary", {}, `${encoding}, each length as a table`));
  box.replaceChildren(svg, details);
  const middle = (step) => EDGE.left + (steps.indexOf(step) + 0.5) * wide;
  const at = (place, step) => values[place][steps.indexOf(step)];
  readable(svg, cursor, steps, middle, (step) => [`${encoding}, step ${step.toLocaleString("en")}`,
    ...lengths.map((length, place) => `${length} digits: ${percent(at(place, step))}`)]);
  const lines = lengths.map((length, place) => ({ name: `${length} digits`, mean: steps.map((step) => [step, at(place, step)]) }));
  details.addEventListener("toggle", () => {
    if (details.open) curveTable(details, caption, steps, lines, percent);
  });
}
