// The same closed forms as arith/scoring/statistics.py; a test holds them to it.

const Z95 = 1.959963984540054;

// Wilson's score interval of exact of total.
function wilson(exact, total) {
  const p = exact / total;
  const spread = 1 + Z95 ** 2 / total;
  const centre = (p + Z95 ** 2 / (2 * total)) / spread;
  const arm = (Z95 / spread) * Math.sqrt((p * (1 - p)) / total + Z95 ** 2 / (4 * total ** 2));
  return [exact === 0 ? 0 : Math.max(centre - arm, 0), exact === total ? 1 : Math.min(centre + arm, 1)];
}

// The complementary error function: its series near 0, where no term cancels another, else the
// continued fraction of Abramowitz and Stegun 7.1.14.
function erfc(x) {
  if (x < 2.5) {
    let term = x;
    let sum = x;
    for (let n = 1; term > 1e-18 * sum; n++) {
      term *= (2 * x * x) / (2 * n + 1);
      sum += term;
    }
    return 1 - (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
  }
  let fraction = x;
  for (let n = 80; n > 0; n--) fraction = x + n / 2 / fraction;
  return Math.exp(-x * x) / fraction / Math.sqrt(Math.PI);
}

// Two-sided p of the pooled two-proportion z test; NaN where nothing was counted.
function twoProportion(exactA, totalA, exactB, totalB) {
  if (!totalA || !totalB) return NaN;
  const right = exactA + exactB;
  const all = totalA + totalB;
  if (right === 0 || right === all) return 1;
  const share = right / all;
  const variance = share * (1 - share) * (1 / totalA + 1 / totalB);
  return erfc(Math.abs(exactA / totalA - exactB / totalB) / Math.sqrt(2 * variance));
}

// Which tests are significant at a false discovery rate (Benjamini and Hochberg 1995); NaN is none.
function falseDiscovery(p, rate) {
  const tested = p.filter((value) => !Number.isNaN(value)).sort((a, b) => a - b);
  let last = -1;
  tested.forEach((value, rank) => {
    if (value <= (rate * (rank + 1)) / tested.length) last = value;
  });
  return p.map((value) => value <= last);
}

function percent(share) {
  return `${(100 * share).toFixed(1)} %`;
}

// "+12.3", its negative with a real minus sign; what rounds to 0 has no sign.
function signed(points, places = 1) {
  const text = Math.abs(points).toFixed(places);
  return Number(text) === 0 ? text : (points > 0 ? "+" : "\u2212") + text;
}
