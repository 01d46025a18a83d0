// charts.ts - the strip over the run, the heat map of ranks and steps, and the pictures of a tensor's errors.
import { Elements, Head, MARK, PairHead, Part, Verdict } from "./data";
import { canvas, colour, count, h, short } from "./dom";
import { VERDICTS } from "./words";

const LOW = -9, HIGH = 1; // decades of the strip

function level(error: number): number {
  if (error <= 0) return 0;
  return Math.min(1, Math.max(0.02, (Math.log10(error) - LOW) / (HIGH - LOW)));
}

// What a column of pixels tells of the calls there.
interface Share { error: number; worst: number; marks: number }

function shareOf(part: Part, from: number, to: number): Share {
  const s = { error: -1, worst: 0, marks: 0 };
  for (let i = from; i < to; i++) {
    s.error = Math.max(s.error, part.error[i], part.error[i] < 0 ? part.inputError[i] : -1);
    s.worst = Math.max(s.worst, part.verdict[i]);
    s.marks |= part.marks[i];
  }
  return s;
}

const STRIP = { height: 150, left: 46, bottom: 20, top: 22 };
const PLOT = STRIP.height - STRIP.bottom - STRIP.top;

function stripScale(g: CanvasRenderingContext2D, width: number) {
  g.textAlign = "right";
  g.textBaseline = "middle";
  for (let d = LOW; d <= HIGH; d += 2) {
    const y = STRIP.top + PLOT - (d - LOW) / (HIGH - LOW) * PLOT;
    g.fillStyle = colour("line");
    g.fillRect(STRIP.left, Math.round(y), width, 1);
    g.fillStyle = colour("muted");
    g.fillText(d === 1 ? "10" : d === -1 ? "0.1" : "1e" + d, STRIP.left - 6, y);
  }
}

// Verdicts are told without colour, too: a triangle above what is wrong, gaps in what is inherited, a double bar for NaN
// and inf, a mark below what has no partner.
function stripBar(g: CanvasRenderingContext2D, s: Share, x: number, wide: number, fill: string, ground: string) {
  const tall = s.error === Infinity ? PLOT : level(s.error) * PLOT, base = STRIP.top + PLOT;
  g.fillStyle = fill;
  g.fillRect(x, base - tall, wide, Math.max(tall, 1));
  if (s.worst === Verdict.Unmatched) g.fillRect(x, base + 3, Math.max(wide, 2), 5);
  if (s.marks & MARK.nonfinite) {
    g.fillRect(x - 1, STRIP.top - 10, Math.max(wide + 2, 5), 3);
    g.fillRect(x - 1, STRIP.top - 5, Math.max(wide + 2, 5), 2);
  }
  if (s.worst === Verdict.Wrong) {
    const middle = x + wide / 2;
    g.beginPath();
    g.moveTo(middle - 4, 1);
    g.lineTo(middle + 4, 1);
    g.lineTo(middle, 9);
    g.fill();
  }
  if (s.worst === Verdict.Inherited) {
    g.fillStyle = ground;
    for (let y = base - 4; y > base - tall; y -= 5) g.fillRect(x, y, wide, 1.5);
  }
}

// One bar per pixel: the largest error of the calls there, coloured by their worst verdict.
export function strip(part: Part, width: number, selected: number): HTMLCanvasElement {
  const { height, left, bottom } = STRIP;
  const [c, g] = canvas(width, height, "error of every call in execution order, log scale");
  const n = part.names.length, w = width - left, colours = VERDICTS.map(v => colour(v.key)), ground = colour("panel");
  stripScale(g, w);
  const bar = Math.max(1, w / n - (w / n > 4 ? 1 : 0)), bins = Math.min(n, Math.ceil(w));
  for (let b = 0; b < bins; b++) {
    const from = Math.floor(b * n / bins), s = shareOf(part, from, Math.max(from + 1, Math.floor((b + 1) * n / bins)));
    stripBar(g, s, left + b * w / bins, bar, colours[s.worst], ground);
  }
  const back = part.names.findIndex(s => s.includes(".backward"));
  g.fillStyle = colour("muted");
  g.textAlign = "left";
  g.textBaseline = "alphabetic";
  g.fillText("forward", left, height - 4);
  if (back > 0) {
    const x = left + back * w / n;
    g.setLineDash([3, 3]);
    g.strokeStyle = colour("muted");
    g.beginPath();
    g.moveTo(x, STRIP.top);
    g.lineTo(x, height - bottom + 6);
    g.stroke();
    g.setLineDash([]);
    g.fillText("backward", Math.min(x + 4, width - 60), height - 4);
  }
  if (selected >= 0) {
    const x = left + (selected + 0.5) * w / n;
    g.fillStyle = colour("ink");
    g.beginPath();
    g.moveTo(x - 5, height - bottom + 11);
    g.lineTo(x + 5, height - bottom + 11);
    g.lineTo(x, height - bottom + 2);
    g.fill();
  }
  return c;
}

// What of it there is on this strip.
export function legend(part: Part): HTMLElement {
  const item = (key: string, text: string) => h("span", null, h("i", { class: "swatch " + key }), text);
  const has = (v: Verdict) => part.verdict.includes(v);
  return h("div", { class: "legend" },
    has(Verdict.Wrong) ? item("wrong", part.own ? "wrong: the call adds an error of its own" : "wrong: beyond the table's limits, and nothing before it is") : null,
    has(Verdict.Inherited) ? item("inherited", "inherited from what is wrong before") : null,
    has(Verdict.Fine) ? item("fine", part.own ? "fine: equal, or within rounding" : "fine: within the table's limits") : null,
    part.marks.some(m => m & MARK.nonfinite) ? item("nonfinite", "NaN or inf on one side") : null,
    has(Verdict.Unmatched) ? item("unmatched", "no partner") : null,
    has(Verdict.NotJudged) ? item("open", "not judged") : null);
}

export const stripCall = (part: Part, x: number, width: number) =>
  Math.min(part.names.length - 1, Math.max(0, Math.floor((x - STRIP.left) / (width - STRIP.left) * part.names.length)));

const HEAT_LEFT = 118; // where its rows begin, beside their names
export const HEAT_BINS = 240; // as the command writes: src/report/write/page.h

const heatTall = (head: Head) => head.pairs.length > 40 ? 8 : 16;

// A row is as long as its run: one that was stopped ends early.
function heatLength(head: Head, pair: number, width: number): number {
  const most = Math.max(...head.pairs.map(p => p.calls ?? 0));
  return (width - HEAT_LEFT) * (head.pairs[pair].calls ?? 0) / Math.max(most, 1);
}

// The row at y, and which of its calls is at x, from 0 to 1; -1: none.
export function heatAt(head: Head, x: number, y: number, width: number): { pair: number; share: number } {
  const pair = Math.floor(y / heatTall(head));
  if (pair < 0 || pair >= head.pairs.length) return { pair: -1, share: -1 };
  const share = (x - HEAT_LEFT) / heatLength(head, pair, width);
  return { pair, share: share >= 0 && share < 1 ? share : -1 };
}

const wrongIn = (p: PairHead) => (p.bins ?? []).some((v, i) => i % 3 === 1 && v === Verdict.Wrong);

function heatName(g: CanvasRenderingContext2D, head: Head, k: number, selected: number) {
  const p = head.pairs[k], tall = heatTall(head), crowded = tall < 10;
  if (crowded && k !== selected && (k % 4 !== 0 || Math.abs(k - selected) === 1)) return;
  g.fillStyle = colour(k === selected ? "ink" : "muted");
  g.fillText((k === selected ? "▸ " : "") + (wrongIn(p) ? "✗ " : "") + (p.label || "all"), 0, k * tall + tall / 2, HEAT_LEFT - 8);
}

function heatRow(g: CanvasRenderingContext2D, p: PairHead, y: number, tall: number, length: number) {
  const n = Math.min(p.calls ?? HEAT_BINS, HEAT_BINS), colours = VERDICTS.map(v => colour(v.key)), w = length / n;
  for (let k = 0; k < n; k++) {
    const b = Math.floor(k * HEAT_BINS / n), error = p.bins![3 * b], verdict = p.bins![3 * b + 1], x = HEAT_LEFT + k * w;
    g.globalAlpha = error < 0 ? 0.12 : 0.18 + 0.82 * level(error > 1e37 ? 10 : error);
    g.fillStyle = colours[verdict];
    g.fillRect(x, y + 1, w + 0.5, tall - 2);
    g.globalAlpha = 1;
    if (verdict !== Verdict.Wrong) continue;
    g.fillRect(x, y + 1, Math.max(w, 2) + 0.5, tall - 2); // strong whatever its error, and with a dot for those who do not see red
    g.fillStyle = colour("ground");
    g.fillRect(x + w / 2 - 1, y + tall / 2 - 1, 2, 2);
  }
}

// A row for each step and rank, a column for each share of its calls.
export function heat(head: Head, width: number, selected: number): HTMLElement {
  const tall = heatTall(head), [c, g] = canvas(width, head.pairs.length * tall, "worst call by step and rank");
  g.textBaseline = "middle";
  head.pairs.forEach((p, k) => {
    heatName(g, head, k, selected);
    if (p.bins) return heatRow(g, p, k * tall, tall, heatLength(head, k, width));
    g.fillStyle = colour("muted");
    g.fillText(p.error ?? "not compared", HEAT_LEFT, k * tall + tall / 2, width - HEAT_LEFT);
  });
  return c;
}

// So far down its rows that the selected one is seen.
export const heatScroll = (head: Head, selected: number, height: number) => Math.max(0, selected * heatTall(head) - height / 3);

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
  const every = Math.ceil(36 / (2 * w)); // decades: two bars each, and labels that do not touch
  for (let i = from, decade = 0; i <= to; i++)
    if ((i - 1) % 2 === 0 && decade++ % every === 0 && (i - from + 1) * w < 272) g.fillText("1e" + (-12 + (i - 1) / 2), (i - from + 1) * w, 118);

  const [mag, m] = canvas(300, 130, "relative error by magnitude of the bench's elements");
  const bins = e.mag.map((v, i) => ({ i, n: v[0], mean: v[1], max: v[2] })).filter(v => v.n > 0);
  const mw = 268 / Math.max(bins.length, 1); // the rest is for the scale
  const y = (v: number) => 104 - (v <= 0 ? 0 : Math.min(1, Math.max(0, (Math.log10(v) + 9) / 11))) * 96;
  for (const d of [-6, -3, 0]) {
    m.fillStyle = colour("line");
    m.fillRect(0, y(10 ** d), 268, 1);
    m.fillStyle = colour("muted");
    m.textAlign = "right";
    m.fillText(d === 0 ? "1" : "1e" + d, 300, y(10 ** d) + 4);
  }
  m.textAlign = "left";
  bins.forEach((b, k) => {
    m.fillStyle = colour("accent");
    m.globalAlpha = 0.25;
    m.fillRect(k * mw + 2, y(b.max), mw - 4, 104 - y(b.max));
    m.globalAlpha = 1;
    m.fillRect(k * mw + 2, y(b.mean), mw - 4, 3);
    m.fillStyle = colour("muted");
    if (k % Math.ceil(36 / mw) === 0) m.fillText(b.i === 0 ? "<1e-12" : "1e" + (b.i - 13), k * mw + 2, 118);
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
