// charts.ts - the strip over the run, the heat map of ranks and steps, and the pictures of a tensor's errors.
import { Elements, Head, MARK, Part, Verdict } from "./data";
import { canvas, colour, count, h, short } from "./dom";

export const VERDICTS = [
  { key: "open", mark: "–", word: "not judged" },
  { key: "fine", mark: "✓", word: "fine" },
  { key: "unmatched", mark: "?", word: "unmatched" },
  { key: "suspicious", mark: "!", word: "suspicious" },
  { key: "wrong", mark: "✗", word: "wrong" },
];

const LOW = -9, HIGH = 1; // decades of the strip

function level(error: number): number {
  if (error <= 0) return 0;
  return Math.min(1, Math.max(0.02, (Math.log10(error) - LOW) / (HIGH - LOW)));
}

// One bar per pixel: the largest error of the calls there, coloured by their worst verdict.
export function strip(part: Part, width: number, selected: number): HTMLCanvasElement {
  const height = 132, left = 46, bottom = 20, top = 12;
  const [c, g] = canvas(width, height, "error of every call in execution order, log scale");
  const n = part.names.length, w = width - left, plot = height - bottom - top;
  const colours = VERDICTS.map(v => colour(v.key)), ink = colour("muted"), line = colour("line");
  g.textAlign = "right";
  g.textBaseline = "middle";
  for (let d = LOW; d <= HIGH; d += 2) {
    const y = top + plot - (d - LOW) / (HIGH - LOW) * plot;
    g.fillStyle = line;
    g.fillRect(left, Math.round(y), w, 1);
    g.fillStyle = ink;
    g.fillText(d === 1 ? "10" : d === -1 ? "0.1" : "1e" + d, left - 6, y);
  }
  const bar = Math.max(1, w / n - (w / n > 4 ? 1 : 0));
  const bins = Math.min(n, Math.ceil(w));
  for (let b = 0; b < bins; b++) {
    const from = Math.floor(b * n / bins), to = Math.max(from + 1, Math.floor((b + 1) * n / bins));
    let error = -1, worst = 0, marks = 0;
    for (let i = from; i < to; i++) {
      error = Math.max(error, part.error[i], part.error[i] < 0 ? part.inputError[i] : -1);
      worst = Math.max(worst, part.verdict[i]);
      marks |= part.marks[i];
    }
    const x = left + b * w / bins, tall = error === Infinity ? plot : level(error) * plot;
    g.fillStyle = colours[worst];
    g.fillRect(x, top + plot - tall, bar, Math.max(tall, 1));
    if (marks & MARK.nonfinite) { // a cap with a hole: seen without colour
      g.fillRect(x - 1, 1, Math.max(bar + 2, 5), 3);
      g.fillRect(x - 1, 6, Math.max(bar + 2, 5), 2);
    }
    if (worst === Verdict.Unmatched) g.fillRect(x, top + plot + 3, Math.max(bar, 2), 5);
  }
  const back = part.names.findIndex(s => s.includes(".backward"));
  g.fillStyle = ink;
  g.textAlign = "left";
  g.textBaseline = "alphabetic";
  g.fillText("forward", left, height - 4);
  if (back > 0) {
    const x = left + back * w / n;
    g.setLineDash([3, 3]);
    g.strokeStyle = ink;
    g.beginPath();
    g.moveTo(x, 0);
    g.lineTo(x, height - bottom + 6);
    g.stroke();
    g.setLineDash([]);
    g.fillText("backward", Math.min(x + 4, width - 60), height - 4);
  }
  if (selected >= 0) {
    const x = left + (selected + 0.5) * w / n;
    g.fillStyle = colour("ink");
    g.beginPath();
    g.moveTo(x - 5, height - bottom + 10);
    g.lineTo(x + 5, height - bottom + 10);
    g.lineTo(x, height - bottom + 2);
    g.fill();
  }
  return c;
}

export const stripCall = (part: Part, x: number, width: number) =>
  Math.min(part.names.length - 1, Math.max(0, Math.floor((x - 46) / (width - 46) * part.names.length)));

const HEAT_LEFT = 110; // where its rows begin, beside their names

// How many columns a row of the heat map has, and which one is at x; -1: none.
export const heatShares = (head: Head, pair: number) => (head.pairs[pair].bins?.length ?? 0) / 3;
export const heatShare = (x: number, width: number) => x < HEAT_LEFT ? -1
  : Math.min(HEAT_BINS - 1, Math.floor((x - HEAT_LEFT) / (width - HEAT_LEFT) * HEAT_BINS));
const HEAT_BINS = 240; // as the command writes: src/compare/page/page_run.c

// A row for each step and rank, a column for each share of its calls.
export function heat(head: Head, width: number, selected: number): HTMLElement {
  const tall = head.pairs.length > 40 ? 8 : 16, left = HEAT_LEFT;
  const [c, g] = canvas(width, head.pairs.length * tall, "worst call by step and rank");
  const colours = VERDICTS.map(v => colour(v.key));
  g.textBaseline = "middle";
  head.pairs.forEach((p, k) => {
    const y = k * tall, w = width - left;
    g.fillStyle = colour(k === selected ? "ink" : "muted");
    if (tall > 10 || k % 4 === 0) g.fillText((k === selected ? "▸ " : "") + (p.label || "all"), 0, y + tall / 2, left - 8);
    if (!p.bins) {
      g.fillStyle = colour("muted");
      g.fillText(p.error ?? "not compared", left, y + tall / 2, w);
      return;
    }
    const n = p.bins.length / 3;
    for (let b = 0; b < n; b++) {
      const error = p.bins[3 * b], verdict = p.bins[3 * b + 1];
      g.globalAlpha = error < 0 ? 0.12 : 0.18 + 0.82 * level(error > 1e37 ? 10 : error);
      g.fillStyle = colours[verdict];
      g.fillRect(left + b * w / n, y + 1, w / n + 0.5, tall - 2);
      g.globalAlpha = 1;
      if (verdict === Verdict.Wrong) { // a dot, for those who do not see red
        g.fillStyle = colour("ground");
        g.fillRect(left + (b + 0.5) * w / n - 1, y + tall / 2 - 1, 2, 2);
      }
    }
  });
  return c;
}

const SHADE = (v: number) => v === 0 ? 0 : Math.min(1, 0.15 + 0.85 * (v - 90) / 150);

export function pictures(e: Elements): HTMLElement {
  const most = Math.max(e.equal, ...e.hist);
  const [hist, g] = canvas(300, 130, "histogram of the absolute errors of the elements");
  const used = e.hist.map((v, i) => v ? i : -1).filter(i => i >= 0);
  const from = Math.min(...used, 40) - 1, to = Math.max(...used, 1) + 1, bars = to - from + 2;
  const tall = (v: number) => v === 0 ? 0 : Math.max(2, Math.log10(v + 1) / Math.log10(most + 1) * 92);
  const w = 300 / bars;
  const put = (slot: number, v: number, name: string) => {
    g.fillStyle = colour(name);
    g.fillRect(slot * w + 1, 104 - tall(v), w - 2, tall(v));
  };
  put(0, e.equal, "fine");
  for (let i = from; i <= to; i++) put(i - from + 1, e.hist[i] ?? 0, "accent");
  g.fillStyle = colour("muted");
  g.fillText("0", 2, 118);
  for (let i = from; i <= to; i++)
    if ((i - 1) % 2 === 0 && (bars < 14 || (i - 1) % 8 === 0)) g.fillText("1e" + (-12 + (i - 1) / 2), (i - from + 1) * w, 118);

  const [mag, m] = canvas(300, 130, "relative error by magnitude of the bench's elements");
  const bins = e.mag.map((v, i) => ({ i, n: v[0], mean: v[1], max: v[2] })).filter(v => v.n > 0);
  const mw = 300 / Math.max(bins.length, 1);
  const y = (v: number) => 104 - (v <= 0 ? 0 : Math.min(1, Math.max(0, (Math.log10(v) + 9) / 11))) * 96;
  for (const d of [-6, -3, 0]) {
    m.fillStyle = colour("line");
    m.fillRect(0, y(10 ** d), 300, 1);
    m.fillStyle = colour("muted");
    m.textAlign = "right";
    m.fillText(d === 0 ? "1" : "1e" + d, 300, y(10 ** d) - 2);
  }
  m.textAlign = "left";
  bins.forEach((b, k) => {
    m.fillStyle = colour("accent");
    m.globalAlpha = 0.25;
    m.fillRect(k * mw + 2, y(b.max), mw - 4, 104 - y(b.max));
    m.globalAlpha = 1;
    m.fillRect(k * mw + 2, y(b.mean), mw - 4, 3);
    m.fillStyle = colour("muted");
    if (bins.length < 10 || k % 2 === 0) m.fillText(b.i === 0 ? "<1e-12" : "1e" + (b.i - 13), k * mw + 2, 118);
  });

  const [rows, columns, mr, mc] = e.map_size;
  const cell = Math.max(3, Math.min(12, Math.floor(300 / mc), Math.floor(200 / mr) || 1));
  const high = mr < 6 ? 14 : cell;
  const [map, p] = canvas(mc * cell, mr * high, "where in the tensor the errors are");
  for (let r = 0; r < mr; r++)
    for (let c = 0; c < mc; c++) {
      const v = e.map[r * mc + c];
      p.globalAlpha = v === 255 ? 1 : SHADE(v);
      p.fillStyle = v === 255 ? colour("ink") : colour("wrong");
      if (v) p.fillRect(c * cell, r * high, cell, high);
    }
  map.className = "map";
  const figure = (title: string, body: Node, note: string) =>
    h("figure", null, h("figcaption", null, title), body, h("small", null, note));
  return h("div", { class: "pictures" },
    figure("Element errors", hist, `${count(e.equal)} of ${count(e.count)} equal; bars on a log scale by absolute error`),
    figure("Relative error by magnitude", mag, "of the bench's element; line: mean, area: largest"),
    figure("Error map", map, `${count(rows)} rows × ${count(columns)} columns` +
      (mr < rows || mc < columns ? `, drawn as ${mr} × ${mc}` : "") + "; darker is larger"),
    figure("Worst elements", h("table", { class: "worst" }, h("tr", null, ...["index", "NPU", "bench", "error"]
      .map(s => h("th", null, s))), ...e.worst.map(w => h("tr", null, h("td", null, `[${w[0].join(", ")}]`),
        h("td", null, w[1]), h("td", null, w[2]), h("td", null, w[3] < 0 ? "NaN/inf" : short(w[3]))))), ""));
}
