"use strict";
// What the page knows: JSON, deflated, in base64 (packed() in page.py).

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

// The cells of an encoding for a choice ("mean", or a seed as text): counts pooled over the seeds,
// share the mean over seeds, NaN where any of them misses the cell. null where there is no such seed.
// Arrays are flat: cell (first operand of i digits, second of j) stands at (i - 1) * N + j - 1.
const known = new Map();
function cellsOf(report, place, choice) {
  const key = `${place} ${choice}`;
  if (!known.has(key)) known.set(key, pooled(report, report.encodings[place], choice));
  return known.get(key);
}

function pooled(report, encoding, choice) {
  const grids = encoding.grids.filter((g) => choice === "mean" || String(g.seed) === choice);
  if (!grids.length) return null;
  const size = report.max_digits ** 2;
  const each = grids.map((grid) => ({
    seed: grid.seed,
    exact: grid.exact.flat(),
    total: Array.isArray(grid.total) ? grid.total.flat() : new Array(size).fill(grid.total),
  }));
  const exact = new Array(size).fill(0);
  const total = new Array(size).fill(0);
  const share = new Array(size).fill(0);
  for (const grid of each) {
    for (let cell = 0; cell < size; cell++) {
      exact[cell] += grid.exact[cell];
      total[cell] += grid.total[cell];
      // 0 / 0 is NaN, and stays so whatever is added.
      share[cell] += grid.exact[cell] / grid.total[cell] / each.length;
    }
  }
  return { each, exact, total, share };
}

function regionOf(report, first, second) {
  const longer = (first > report.trained_digits) + (second > report.trained_digits);
  return ["in distribution", "one operand longer", "both operands longer"][longer];
}
