// detail.ts - everything about one call: its errors, both sides' statistics, pictures, stack, neighbours; as text, too.
import { At, MARK, Part, Result, Verdict } from "./data";
import { copy, count, fill, h, num, short } from "./dom";
import { pictures } from "./charts";
import { act, head, link, now, view } from "./state";
import { beyond, breakable, cellsOf, LIMITS, mark, meaningOfCall, METRICS, plainValue, prose, stackView, VERDICTS } from "./words";

export const detail = h("article", { class: "detail", id: "detail", tabindex: -1 });

export const KEYS = [["/", "search"], ["j k", "next, previous line"], ["n p", "next, previous wrong call"], ["← →", "close, open"],
  ["c", "copy as text"], ["d", "light or dark"], ["Esc", "clear"]];

const MOST = 400; // rows that are shown of a call
const STATS = ["max", "min", "mean", "l2norm"];

const modeOf = () => head.pairs[view.pair].mode;

// Wrong ones first, then as they stand.
function rowsShown(p: Part, call: number): number[] {
  const all = Array.from({ length: p.rows[call] }, (_, i) => p.first[call] + i), wrong = (i: number) => p.rowVerdict[i] === Verdict.Wrong;
  return [...all.filter(wrong), ...all.filter(i => !wrong(i))].slice(0, MOST);
}

// ---- what the tool measured ------------------------------------------------------------------------------------

function measured(r: Result): string {
  if (!Number.isFinite(r.ratio)) return r.text && `Not judged: ${r.text}.`;
  const out = Number.isFinite(r.local)
    ? `Run again, this call adds ${short(r.local)}` + (Number.isFinite(r.localBench) ? ` (the bench ${short(r.localBench)})` : "") +
      (Number.isFinite(r.inherited) ? `, inherited ${short(r.inherited)}` : "")
    : `Differs by ${short(r.diffOut)}, its inputs by ${short(r.diffIn)}`;
  return `${out}; ${short(r.expected)} may be expected: ` +
    (r.ratio > 1 ? `${times(r.ratio)} times what is allowed.` : "within what is allowed.") + (r.text ? ` The error: ${r.text}.` : "");
}

const times = (v: number) => v >= 100 ? count(Math.round(v)) : String(+v.toPrecision(2));

// ---- one input or output ---------------------------------------------------------------------------------------

type Get = (title: string) => number | string;

function statistics(p: Part, get: Get): HTMLElement | null {
  if (!p.columns.includes("NPU max")) return null;
  const line = (side: string) => h("tr", null, h("th", null, side),
    ...STATS.map(s => h("td", { class: "n" }, num(get(`${side} ${s}`)))));
  return h("table", { class: "stats" }, h("tr", null, h("th", null), ...STATS.map(s => h("th", { class: "n" }, s))),
    line("NPU"), line("Bench"));
}

function metrics(p: Part, get: Get): HTMLElement {
  return h("div", { class: "metrics" }, ...p.columns.filter(t => METRICS.has(t)).map(t => {
    const value = get(t), over = beyond(t, value, get);
    return h("span", { class: "metric" + (over ? " over" : "") }, h("small", null, t), h("b", null, num(value)),
      over ? h("small", { class: "limit" }, over) : null);
  }));
}

// Pictures need the elements: tables that were written earlier do not have them, and not every row gets some.
function picturesOf(p: Part, row: number): HTMLElement | null {
  const e = p.elements.get(row);
  if (e) return pictures(e);
  if (modeOf() !== "real data" || p.rowVerdict[row] !== Verdict.Wrong) return null;
  return h("p", { class: "message" }, head.bench
    ? "No pictures of this row's elements: they are made for the first wrong rows and those that are off most."
    : "No pictures of this row's elements: this page was made from tables. msprobe compare, with the tensors, makes them.");
}

function card(p: Part, r: At): HTMLElement {
  const get = cellsOf(p, r), v = p.rowVerdict[r.index], marks = p.rowMarks[r.index], bench = String(get("Bench Name"));
  const message = String(get("Err_message") ?? ""), plain = plainValue(get), result = p.result(r.index);
  const both = (a: number | string, b: number | string) => a === b || v === Verdict.Unmatched ? String(a) : `${a} / ${b}`;
  return h("section", { class: "card" }, h("h3", null, mark(v, marks), " ", p.texts[r.rows.name[r.at]], " ",
    h("span", { class: "quiet" }, `${both(get("NPU Dtype"), get("Bench Dtype"))} ${both(get("NPU Tensor Shape"), get("Bench Tensor Shape"))}`)),
    result ? h("p", { class: v === Verdict.Wrong ? "measured wrong" : "measured" }, ...prose(measured(result))) : null,
    bench && bench !== "N/A" ? h("p", { class: "quiet" }, "compared with ", ...breakable(bench)) : null,
    plain !== null ? h("p", null, plain) : [statistics(p, get), v === Verdict.Unmatched ? null : metrics(p, get)],
    marks & MARK.red ? h("p", { class: "message" }, "Coloured red by -hl.") : marks & MARK.yellow ? h("p", { class: "message" }, "Coloured yellow by -hl.") : null,
    message ? h("p", { class: "message" }, message) : null, picturesOf(p, r.index));
}

// ---- neighbours ------------------------------------------------------------------------------------------------

function neighbours(p: Part, call: number, wanted: number): HTMLElement {
  const out: number[] = [], other = 1 - wanted;
  for (let i = 0; i < p.edges.length && out.length < 12; i += 2)
    if (p.edges[i + wanted] === call && !out.includes(p.edges[i + other])) out.push(p.edges[i + other]);
  if (!out.length) return h("p", { class: "none" }, "none was found");
  return h("ul", { class: "flow" }, ...out.map(i => h("li", null, mark(p.verdict[i], p.marks[i]), " ",
    h("a", { href: link(p.names[i]), onclick: (e: Event) => { e.preventDefault(); act.select(i); } }, ...breakable(p.names[i])),
    h("span", { class: "quiet" }, " " + short(p.error[i])))));
}

// ---- the whole -------------------------------------------------------------------------------------------------

function limitsNote(p: Part, call: number): HTMLElement | null {
  const rule = LIMITS[modeOf()];
  if (!rule) return null;
  return h("p", { class: "quiet" }, p.own
    ? (p.marks[call] & MARK.limit ? "Beyond the manual's limits, too (" : "The manual's limits, marked below (") + rule + ")."
    : `Wrong when: ${rule}.`);
}

let drawn = -2;
export async function drawDetail() {
  const p = now.part, call = now.selected;
  if (!p) return;
  drawn = call;
  if (call < 0)
    return fill(detail, h("p", { class: "none" }, "Choose a call: its statistics, metrics, stack and neighbours are shown here."),
      h("p", { class: "keys" }, ...KEYS.map(k => h("span", null, h("kbd", null, k[0]), " " + k[1]))));
  const rows = await p.rowsAt(rowsShown(p, call)), v = p.verdict[call];
  if (drawn !== call || now.part !== p) return;
  const button: HTMLButtonElement = h("button", { onclick: () => copy(asText(p, call, rows), button) }, "Copy as text");
  fill(detail, h("header", null, h("h2", null, mark(v, p.marks[call]), " ", ...breakable(p.names[call])), button),
    h("p", { class: "quiet" }, h("b", { class: "word " + VERDICTS[v].key }, VERDICTS[v].word), `: ${meaningOfCall(p, call)} · call ${count(call + 1)} of ` +
      `${count(p.names.length)} · error of outputs ${short(p.error[call])}, of inputs ${short(p.inputError[call])}`),
    p.marks[call] & MARK.noRows ? h("p", { class: "message" }, "Some rows of this call are only in the tables: the page has a limit.") : null,
    h("h4", null, "Called at"), stackView(p.frames(call)),
    h("div", { class: "two" }, h("div", null, h("h4", null, "Takes from"), neighbours(p, call, 1)),
      h("div", null, h("h4", null, "Gives to"), neighbours(p, call, 0))),
    h("h4", null, "Inputs and outputs"), limitsNote(p, call), ...rows.map(r => card(p, r)),
    rows.length < p.rows[call] ? h("p", { class: "message" }, `and ${count(p.rows[call] - rows.length)} more, in the tables`) : null);
  detail.scrollTop = 0;
}

function asText(p: Part, call: number, rows: At[]): string {
  const v = VERDICTS[p.verdict[call]], pair = head.pairs[view.pair];
  const out = [p.names[call], `verdict: ${v.word} (${meaningOfCall(p, call)})`, `compared: ${pair.npu}`, `with: ${pair.bench}`];
  for (const r of rows) {
    const result = p.result(r.index);
    out.push("", `${VERDICTS[p.rowVerdict[r.index]].mark} ${p.texts[r.rows.name[r.at]]}`);
    if (result) out.push("    " + measured(result));
    p.columns.forEach((t, i) => {
      const value = num(p.show(r.rows, i, r.at));
      if (value !== "" && value !== "N/A") out.push(`    ${t}: ${value}`);
    });
  }
  out.push("", "called at:", ...p.frames(call).map(f => "    " + f.replace(/\s*\n\s*/g, "  ")));
  return out.join("\n") + "\n";
}
