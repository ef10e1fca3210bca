// Put it together, and redraw what a choice changes.

async function start() {
  const report = await unpack(document.getElementById("data").textContent);
  const figures = [...document.querySelectorAll(".map[data-place]")];
  const slider = document.getElementById("seed");
  const choices = ["mean", ...report.seeds.map(String)];
  const choice = () => choices[Number(slider.value)];

  sortable(document.getElementById("board"));
  paintScale(document.getElementById("scale"), report.colours);
  paintScale(document.getElementById("difference-scale"), report.differences);
  const sample = document.getElementById("hatch");
  sample.width = sample.height = 32;
  hatch(sample.getContext("2d"), 32, 32);

  const redrawDifference = () => {
    drawDifference(report, choice());
    if (document.querySelector("#difference-map details").open) differenceTable(report, choice());
  };
  const redraw = () => {
    const words = choice() === "mean" ? "mean of seeds" : `seed ${choice()}`;
    slider.setAttribute("aria-valuetext", words);
    document.querySelector("output[for=seed]").textContent = words;
    document.getElementById("footnote").textContent = report.footnotes[choice()];
    for (const figure of figures) {
      drawMap(report, figure, choice());
      if (figure.querySelector("details").open) mapTable(report, figure, choice());
    }
    redrawDifference();
  };
  slider.addEventListener("input", redraw);
  for (const id of ["one", "other"]) document.getElementById(id).addEventListener("change", redrawDifference);
  for (const figure of figures) {
    const place = Number(figure.dataset.place);
    interactive(figure.querySelector(".plot"), report.max_digits, (i, j) => aboutCell(report, place, choice(), i, j));
    figure.querySelector("details").addEventListener("toggle", () => mapTable(report, figure, choice()));
  }
  const compared = document.getElementById("difference-map");
  interactive(compared.querySelector(".plot"), report.max_digits, (i, j) => aboutDifference(report, choice(), i, j));
  compared.querySelector("details").addEventListener("toggle", () => differenceTable(report, choice()));

  startCurves(report);
  startLengths(report);
  startTheme();
  redraw();
  document.documentElement.dataset.ready = "yes";
}

function startCurves(report) {
  const series = trained(report);
  const box = document.getElementById("shown");
  document.getElementById("outside").hidden = !report.curves.some((run) => run.out_of_distribution.length);
  const redraw = () => {
    const ticked = [...box.querySelectorAll("input:checked")].map((tick) => series[Number(tick.value)]);
    for (const place of document.querySelectorAll(".chart")) {
      chart(place, ticked, place.previousElementSibling.textContent);
    }
  };
  legend(box, series, redraw);
  redraw();
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width) redraw();
    width = innerWidth;
  });
}

function startTheme() {
  const button = document.getElementById("theme");
  const root = document.documentElement;
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  const show = () => button.setAttribute("aria-pressed", String(dark()));
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    show();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  show();
}

start().catch((error) => {
  const problem = document.getElementById("problem");
  problem.textContent = `This browser could not draw the maps and curves (${error.message}); the tables are complete without them.`;
  problem.hidden = false;
});
