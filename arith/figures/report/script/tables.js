// Tables: sorting the leaderboard, and the cells of a map for those who cannot or will not see it.

function sortable(table) {
  for (const head of table.tHead.rows[0].cells) {
    if (!head.dataset.sort) continue;
    const column = head.cellIndex;
    const button = make("button", { type: "button" }, ...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const numbers = head.dataset.sort === "number";
      const down = head.getAttribute("aria-sort") === (numbers ? null : "ascending")
        || head.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      for (const body of table.tBodies) sortRows(body, column, numbers, down);
    });
  }
}

// The first row is the group's name; what is missing goes last, whichever way.
function sortRows(body, column, numbers, down) {
  const rows = [...body.rows].slice(1);
  const value = (row) => row.cells[column].dataset.value;
  rows.sort((one, other) => {
    const [a, b] = [value(one), value(other)];
    if (numbers && (a === "" || b === "")) return (a === "") - (b === "");
    const order = numbers ? Number(a) - Number(b) : a.localeCompare(b);
    return down ? -order : order;
  });
  body.append(...rows);
}

// Fill `details` with a table of N x N when it is opened; text(cell) is what a cell says.
function cellTable(details, digits, caption, text) {
  const table = make("table", { class: "cells" }, make("caption", {}, caption));
  const lengths = Array.from({ length: digits }, (_, place) => place + 1);
  const head = make("tr", {}, make("th", { scope: "col" }, "first \\ second"));
  head.append(...lengths.map((length) => make("th", { scope: "col" }, String(length))));
  const body = make("tbody");
  for (const i of lengths) {
    const row = make("tr", {}, make("th", { scope: "row" }, String(i)));
    row.append(...lengths.map((j) => make("td", {}, text((i - 1) * digits + j - 1))));
    body.append(row);
  }
  table.append(make("thead", {}, head), body);
  const box = make("div", { class: "scrolled", tabindex: "0", role: "region", "aria-label": caption }, table);
  details.replaceChildren(details.querySelector("summary"), box);
}

function mapTable(report, figure, choice) {
  const place = Number(figure.dataset.place);
  const cells = cellsOf(report, place, choice);
  const of = choice === "mean" ? "mean of seeds" : `seed ${choice}`;
  const caption = `${report.encodings[place].name}: exact match in percent by digits of the first operand (rows) and of the second (columns), ${of}`;
  cellTable(figure.querySelector("details"), report.max_digits, caption, (cell) =>
    !cells || Number.isNaN(cells.share[cell]) ? "not scored" : (100 * cells.share[cell]).toFixed(1));
}

function differenceTable(report, choice) {
  const [one, other] = differencePlaces();
  const found = differenceOf(report, one, other, choice);
  const names = [one, other].map((place) => report.encodings[place].name).join(" \u2212 ");
  const caption = `${names}: percentage points by digits of the first operand (rows) and of the second (columns); * is significant (false discovery rate 5 %, these runs only)`;
  cellTable(document.querySelector("#difference-map details"), report.max_digits, caption, (cell) => {
    if (!found || Number.isNaN(found.points[cell])) return "not scored";
    return signed(found.points[cell]) + (found.significant[cell] ? " *" : "");
  });
}
