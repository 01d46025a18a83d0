// words.ts - the page's vocabulary: verdicts, limits, lines of code, and text that breaks where people would break it.
import { h, num } from "./dom";
import { At, Head, MARK, Part, Verdict } from "./data";

export const VERDICTS = [
  { key: "open", mark: "–", word: "not judged" },
  { key: "fine", mark: "✓", word: "fine" },
  { key: "unmatched", mark: "?", word: "unmatched" },
  { key: "inherited", mark: "↳", word: "inherited" },
  { key: "wrong", mark: "✗", word: "wrong" },
];
export const SEALS: Record<string, string> = { wrong: "✗", open: "?", fine: "✓" };

export const METRICS = new Set(["Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr", "One Thousandth Err Ratio",
  "Five Thousandths Err Ratio", "Max diff", "Min diff", "Mean diff", "L2norm diff", "MinRelativeErr", "MeanRelativeErr",
  "NormRelativeErr", "NPU MD5", "BENCH MD5"]);

export function mark(v: number, marks = 0): HTMLElement {
  const d = VERDICTS[v], odd = marks & MARK.nonfinite;
  return h("span", { class: `mark ${d.key}`, title: odd ? d.word + ", NaN or inf on one side" : d.word },
    d.mark + (odd ? "∞" : ""));
}

// ---- where text may break --------------------------------------------------------------------------------------

// Behind the dots and slashes of names and paths.
export const breakable = (s: string): (Node | string)[] =>
  s.split(/(?<=[./_])(?=[^./_])/).flatMap((part, i) => i ? [h("wbr", null), part] : [part]);

// Not inside a number: "2.5e-07".
export const prose = (s: string): (Node | string)[] =>
  s.split(/(\d[\d.]*e[-+]?\d+)/).map((part, i) => i % 2 ? h("span", { class: "number" }, part) : part);

// ---- lines of code ---------------------------------------------------------------------------------------------

const fileOf = (frame: string) => frame.split(", line ")[0];

// As the command tells them apart: src/cli/frames.c.
const isMachinery = (frame: string) => {
  const f = fileOf(frame);
  return /(packages|python)\/(msprobe|ptdbg_ascend)\/|packages\/(torch|torch_npu|mindspore)\/|\/torch\/(nn\/|utils\/|optim\/|autograd\/|_|functional\.py)|\/mindspore\/(ops|nn|common)\/|<frozen |<string>/
    .test(f) || (/\/lib\/python/.test(f) && !/(site|dist)-packages\//.test(f));
};

// The frames that tell something.
export function tellingFrames(frames: string[]): string[] {
  const own = frames.filter(f => !isMachinery(f));
  return own.length ? own : frames.slice(0, 1);
}

function frameView(frame: string): HTMLElement {
  const m = /^File (.*), line (\d+), in ([^,]*),?\s*\n?\s*([^]*)$/.exec(frame);
  if (!m) return h("li", null, ...breakable(frame));
  return h("li", null, h("code", null, m[4].trim()), h("small", null, ...breakable(m[1]), `:${m[2]} in ${m[3]}`));
}

export function stackView(frames: string[], most = Infinity): HTMLElement {
  if (!frames.length) return h("p", { class: "none" }, "No stack was recorded.");
  const told = tellingFrames(frames), list = h("ol", { class: "stack" }, ...told.slice(0, most).map(frameView));
  list.children[0].classList.add("here");
  if (most < Infinity || told.length === frames.length) return list;
  return h("div", null, list, h("details", null, h("summary", null, `all ${frames.length} frames`),
    h("ol", { class: "stack" }, ...frames.map(frameView))));
}

// ---- cells -----------------------------------------------------------------------------------------------------

// A cell's value by its title, as the table shows it; "" where there is no such column.
export const cellsOf = (p: Part, r: At) => (title: string) => {
  const column = p.columns.indexOf(title);
  return column < 0 ? "" : p.show(r.rows, column, r.at);
};

type Get = (title: string) => number | string;

// An argument that is no tensor has a value on each side and nothing to measure: "-1 on both sides".
export function plainValue(get: Get): string | null {
  const type = String(get("NPU Dtype"));
  if (/^torch\.|^(float|bfloat|int|uint|complex|bool|mindspore)/i.test(type) || type === "" || type === "N/A") return null;
  const a = num(get("NPU max")), b = num(get("Bench max"));
  if (a === "" && b === "") return null;
  return a === b ? `${a} on both sides` : `NPU ${a}, bench ${b}`;
}

// The table's own rule: the limit that a cell has passed, "" where it has passed none.
export function beyond(title: string, v: number | string, get: Get): string {
  const x = typeof v === "number" ? v : parseFloat(v);
  if (title === "Cosine")
    return x < 0.9 ? "below 0.9" : x < 0.99 && Number(get("MaxAbsErr")) > 0.001 ? "below 0.99, with MaxAbsErr above 0.001" : "";
  if (title === "MaxAbsErr")
    return x > 1 ? "above 1" : x > 0.001 && Number(get("Cosine")) < 0.99 ? "above 0.001, with Cosine below 0.99" : "";
  if (/^(Max|Min|Mean|Norm)RelativeErr$/.test(title) && typeof v === "string" && v.endsWith("%") && x > 50) return "above 50 %";
  if (title === "BENCH MD5" && v !== get("NPU MD5") && v !== "N/A") return "not the NPU's";
  return "";
}

export const LIMITS: Record<string, string> = {
  "real data": "Cosine < 0.99 and MaxAbsErr > 0.001, Cosine < 0.9, MaxAbsErr > 1, or NaN and inf in different places",
  "statistics": "a relative error of max, min, mean or norm above 50 %, or NaN or inf on one side alone",
  "md5": "checksums that differ",
};

// What the marks mean on this page.
export function meaning(verdict: number, own: boolean): string {
  return [
    "no tensor, or nothing that could be judged",
    own ? "no more off than rounding explains" : "within the table's limits",
    "no partner, or one of another shape",
    "differs, and something wrong came before it",
    own ? "this call adds an error that its inputs do not explain" : "beyond the table's limits, and nothing before it is",
  ][verdict];
}

// Of a call: what is wrong may be something that it takes.
export function meaningOfCall(p: Part, call: number): string {
  const rows = Array.from({ length: p.rows[call] }, (_, i) => p.first[call] + i).filter(i => p.rowVerdict[i] === Verdict.Wrong);
  return rows.length && rows.every(i => !(p.rowMarks[i] & MARK.output)) ? "what it takes is off, and no recorded call has made it so"
    : meaning(p.verdict[call], p.own);
}

// Said only as far as it was checked: see src/compare/explain/inputs.c.
export const INPUTS: Record<string, string> = {
  equal: "equal, all of them", fine: "compared, all of them: none differs by a tenth of what this row does",
  wrong: "already different: look further up",
};

// "Wrong: Functional.relu.0.forward" and what is said of it; a long sentence without a name at its beginning is
// divided where it pauses.
export function headline(head: Head): [string, string] {
  const text = head.verdict.text, name = "Wrong: " + (head.pairs[head.verdict.pair]?.suspect?.call ?? "");
  const pause = text.length > 110 ? text.indexOf("; ") : -1;
  return text.startsWith(name + ": ") ? [name, text.slice(name.length + 2)]
    : pause > 0 ? [text.slice(0, pause), text.slice(pause + 2)] : [text, ""];
}
