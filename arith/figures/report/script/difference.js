// First minus second, grey where problems alone explain it.

const BOUNDS = [10, 20, 40, 60, 80, 100]; // points, as in arith/figures/heatmap.py

function differenceOf(report, one, other, choice) {
  const a = cellsOf(report, one, choice);
  const b = cellsOf(report, other, choice);
  if (!a || !b) return null;
  const points = a.share.map((share, cell) => 100 * (share - b.share[cell]));
  const p = points.map((_, cell) =>
    twoProportion(a.exact[cell], a.total[cell], b.exact[cell], b.total[cell]));
  const largest = Math.max(0, ...points.filter((value) => !Number.isNaN(value)).map(Math.abs));
  const limit = BOUNDS.find((bound) => largest <= bound);
  return { a, b, points, significant: falseDiscovery(p, report.discovery_rate), limit };
}

function differencePlaces() {
  return ["one", "other"].map((id) => Number(document.getElementById(id).value));
}

function drawDifference(report, choice) {
  const [one, other] = differencePlaces();
  const [first, second] = [one, other].map((place) => report.encodings[place]);
  const found = differenceOf(report, one, other, choice);
  const figure = document.getElementById("difference-map");
  paint(figure.querySelector("canvas"), report.max_digits, (cell) => {
    if (!found || Number.isNaN(found.points[cell])) return null;
    if (!found.significant[cell]) return GREY;
    return colourAt(report.differences, 0.5 + found.points[cell] / (2 * found.limit));
  });
  const name = `${first.name} \u2212 ${second.name}`;
  document.getElementById("difference-name").textContent = name;
  const bound = found ? found.limit : 100;
  document.getElementById("lowest").textContent = `${signed(-bound, 0)} points`;
  document.getElementById("highest").textContent = `${signed(bound, 0)} points`;
  const [lines, words] = differenceSaid(first, second, choice, found);
  document.getElementById("difference-said").replaceChildren(
    ...lines.map((line) => make("span", {}, line)));
  figure.querySelector(".plot").setAttribute("aria-label", `Difference ${name}. ${words}`);
}

function differenceSaid(first, second, choice, found) {
  if (!found) return [[`not both have seed ${choice}`], `not both have seed ${choice}`];
  const [mine, yours] = [first, second].map((encoding) => encoding.said[choice]);
  const means = Object.keys(mine.means).map((region) => {
    const [a, b] = [mine.means[region], yours.means[region]];
    return `${region.replaceAll("_", " ")} ${a === null || b === null ? "unknown" : `${signed(100 * (a - b))} points`}`;
  });
  const marks = [[first, mine], [second, yours]].filter(([, said]) => said.mark);
  const which = marks.map(([encoding, said]) => `${encoding.name}: ${said.mark}`);
  const scored = found.points.map((value) => !Number.isNaN(value));
  const count = found.significant.filter((marked, cell) => marked && scored[cell]).length;
  const cells = `${count} of ${scored.filter(Boolean).length} cells differ significantly, these runs only`;
  const seeds = choice === "mean" ? "mean of seeds" : `seed ${choice}`;
  const all = [...means, cells, seeds, ...which];
  return [all, all.join("; ")];
}

function aboutDifference(report, choice, i, j) {
  const [one, other] = differencePlaces();
  const [first, second] = [one, other].map((place) => report.encodings[place]);
  const found = differenceOf(report, one, other, choice);
  const title = `${first.name} \u2212 ${second.name}: ${i} + ${j} digits`;
  if (!found) return [title, `not both have seed ${choice}`];
  const at = (i - 1) * report.max_digits + j - 1;
  if (Number.isNaN(found.points[at])) return [title, "not scored for both"];
  const count = (cells) => `${cells.exact[at]} of ${cells.total[at]}`;
  return [
    title,
    `${signed(found.points[at])} points`,
    `${first.name}: ${count(found.a)}; ${second.name}: ${count(found.b)}`,
    `${found.significant[at] ? "significant" : "not significant"} (false discovery rate 5 %, these runs only)`,
    regionOf(report, i, j),
  ];
}
