// lists.ts - the tree, the calls, the rows: what is listed, searched, filtered and sorted, and the tools for it.
import { CHUNK, MARK, Part, Rows } from "./data";
import { count, fill, h, List, num, short } from "./dom";
import { act, head, now, Tab, view, writeAddress } from "./state";
import { directionOf, roots, tree, typeOf } from "./tree";
import { mark, METRICS, VERDICTS } from "./words";

export const open = new Set<number>(); // branches of the tree
export const search = h("input", { type: "search", placeholder: "Search calls  /", "aria-label": "search calls" });
const tools = h("div", { class: "tools" });
const status = h("div", { class: "status", role: "status" });
const list = new List(26, lineOf, "calls");
export const lists = h("div", { class: "left" }, tools, h("div", { class: "listbox" }, list.root));

let shown: Uint32Array | number[] = [];
let depth: number[] = [];

// ---- filters ---------------------------------------------------------------------------------------------------

const BEYOND = "limits"; // beyond the manual's limits, whatever the verdict

function fitsVerdict(verdict: number, marks: number): boolean {
  return view.verdict === "" || (view.verdict === BEYOND ? (marks & MARK.limit) !== 0 : VERDICTS[verdict].key === view.verdict);
}

function fitsName(name: string, q: string): boolean {
  return (!q || name.toLowerCase().includes(q)) && (!view.type || typeOf(name) === view.type) &&
    (!view.dir || directionOf(name) === view.dir);
}

const isFiltered = () => Boolean(view.q || view.verdict || view.type || view.dir);

// Numbers that sort as the values do, with the index below them: a million are sorted in a fraction of a second.
function order(keys: Float32Array, indexes: Uint32Array): Uint32Array {
  const bits = new Int32Array(keys.buffer, keys.byteOffset, keys.length), n = indexes.length, room = 2 ** 21;
  const packed = new Float64Array(n);
  for (let i = 0; i < n; i++) {
    const b = bits[i], key = Number.isNaN(keys[i]) ? 0 : b < 0 ? ~b >>> 0 : (b | 0x80000000) >>> 0;
    packed[i] = key * room + (room - 1 - i);
  }
  packed.sort();
  const out = new Uint32Array(n);
  for (let i = 0; i < n; i++) out[n - 1 - i] = indexes[room - 1 - (packed[i] % room)];
  return out;
}

// ---- what is listed --------------------------------------------------------------------------------------------

let turn = 0;
export async function refresh() {
  const p = now.part;
  if (!p) return;
  const mine = ++turn;
  if (view.tab === "model") showTree(p);
  else if (view.tab === "calls") showCalls(p);
  else await showRows(p, mine);
  if (mine === turn) writeAddress();
}

const matching = (p: Part) => {
  const q = view.q.toLowerCase();
  return (i: number) => fitsVerdict(p.verdict[i], p.marks[i]) && fitsName(p.names[i], q);
};

function showTree(p: Part) {
  let wanted: Uint8Array | null = null, found = 0;
  if (isFiltered()) {
    const fits = matching(p);
    wanted = new Uint8Array(tree.length);
    for (let i = 0; i < p.names.length; i++)
      if (fits(i)) {
        found++;
        for (let up = i; up >= 0 && !wanted[up]; up = tree[up].parent) wanted[up] = 1;
      }
  }
  const out: number[] = [], stack = roots.map(r => [r, 0]).reverse();
  depth = [];
  while (stack.length) {
    const [i, d] = stack.pop()!;
    if (wanted && !wanted[i]) continue;
    out.push(i);
    depth.push(d);
    if (wanted || open.has(i)) for (let k = tree[i].children.length - 1; k >= 0; k--) stack.push([tree[i].children[k], d + 1]);
  }
  shown = out;
  list.set(out.length);
  status.textContent = wanted ? `${count(found)} of ${count(p.names.length)} calls` : `${count(p.names.length)} calls`;
}

const CALL_SORTS: Record<string, (p: Part, i: number) => number> = {
  error: (p, i) => p.error[i], "input error": (p, i) => p.inputError[i], verdict: (p, i) => p.verdict[i], excess: (p, i) => p.excess(i),
};

function showCalls(p: Part) {
  const fits = matching(p), all: number[] = [], key = CALL_SORTS[view.sort];
  for (let i = 0; i < p.names.length; i++) if (fits(i)) all.push(i);
  if (view.sort === "name") all.sort((a, b) => p.names[a] < p.names[b] ? -1 : 1);
  shown = key ? order(Float32Array.from(all, i => key(p, i)), Uint32Array.from(all)) : Uint32Array.from(all);
  list.set(shown.length);
  status.textContent = `${count(shown.length)} of ${count(p.names.length)} calls`;
}

// The value that a row is sorted by; what is off most comes first.
function sortKey(p: Part, r: Rows, column: number, i: number): number {
  const v = p.cell(r, column, i), w = typeof v === "number" ? v : v.endsWith("%") ? parseFloat(v) : v === "Nan" ? Infinity : NaN;
  return view.sort === "Cosine" ? -w : Math.abs(w);
}

async function showRows(p: Part, mine: number) {
  const index = new Uint32Array(p.rowCount), keys = new Float32Array(p.rowCount), column = p.columns.indexOf(view.sort);
  const q = view.q.toLowerCase(), byName = Boolean(q || view.type || view.dir);
  let n = 0;
  if (!byName && column < 0) { // nothing needs to be unpacked
    for (let i = 0; i < p.rowCount; i++) if (fitsVerdict(p.rowVerdict[i], p.rowMarks[i])) index[n++] = i;
  } else {
    const callFits = byName ? Uint8Array.from(p.names, s => fitsName(s, q) ? 1 : 0) : null;
    const chunks = Math.ceil(p.rowCount / CHUNK);
    for (let k = 0; k < chunks; k++) {
      if (k % 8 === 0) {
        status.textContent = `reading rows: ${Math.round(100 * k / chunks)} %`;
        await new Promise(r => setTimeout(r));
      }
      const r = await p.chunk(k);
      if (mine !== turn) return;
      for (let i = 0; i < r.count; i++) {
        const row = k * CHUNK + i;
        if (!fitsVerdict(p.rowVerdict[row], p.rowMarks[row])) continue;
        if (callFits && !callFits[r.call[i]] && !(q && `${p.names[r.call[i]]}.${p.texts[r.name[i]]}`.toLowerCase().includes(q) &&
          fitsName(p.names[r.call[i]], ""))) continue;
        if (column >= 0) keys[n] = sortKey(p, r, column, i);
        index[n++] = row;
      }
    }
  }
  shown = column >= 0 ? order(keys.subarray(0, n), index.subarray(0, n)) : index.subarray(0, n);
  list.set(n);
  status.textContent = `${count(n)} of ${count(p.rowCount)} rows`;
}

// ---- lines -----------------------------------------------------------------------------------------------------

const line = (on: boolean, title: string, style: string | null, choose: () => void, ...children: (Node | null)[]) =>
  h("div", { class: on ? "line on" : "line", role: "option", "aria-selected": String(on), title, style, onclick: choose }, ...children);
const label = (text: string) => h("span", { class: "label" }, text);
const value = (text: string) => h("span", { class: "value" }, text);

function callLine(p: Part, i: number): HTMLElement {
  const told = view.sort === "input error" ? short(p.inputError[i]) : view.sort === "excess" ? times(p.excess(i)) : short(p.error[i]);
  return line(i === now.selected, p.names[i], null, () => act.select(i), mark(p.verdict[i], p.marks[i]), label(p.names[i]), value(told));
}

const times = (ratio: number) => ratio < 0 || Number.isNaN(ratio) ? "–" : short(ratio) + "×";

function treeLine(at: number): HTMLElement {
  const i = shown[at], t = tree[i], leaf = !t.children.length;
  const grow = leaf ? h("span", { class: "grow" }) : h("button", { class: "grow", tabindex: -1, "aria-label": open.has(i) ? "close" : "open",
    onclick: (e: Event) => { e.stopPropagation(); toggle(i); } }, open.has(i) ? "▾" : "▸");
  return line(t.call >= 0 && t.call === now.selected, t.name, `padding-left:${8 + Math.min(depth[at], 24) * 14}px`,
    () => t.call >= 0 ? act.select(t.call) : toggle(i), grow, mark(t.worst, t.marks), label(t.label),
    !leaf && t.wrong ? h("span", { class: "badge" }, `${count(t.wrong)} wrong`) : null, value(short(t.error)));
}

function rowLine(p: Part, row: number): HTMLElement {
  const k = Math.floor(row / CHUNK), r = p.chunkNow(k);
  if (r) return readRowLine(p, row, r);
  const later = line(false, "", null, () => undefined, label("…"));
  p.chunk(k).then(r => later.replaceWith(readRowLine(p, row, r)));
  return later;
}

function readRowLine(p: Part, row: number, r: Rows): HTMLElement {
  const i = row % CHUNK, column = p.columns.indexOf(view.sort);
  const name = `${p.names[r.call[i]]}.${p.texts[r.name[i]]}`;
  return line(row === now.row, name, null, () => chooseRow(row, r.call[i]), mark(p.rowVerdict[row], p.rowMarks[row]), label(name),
    value(column >= 0 ? num(p.show(r, column, i)) : VERDICTS[p.rowVerdict[row]].word));
}

function chooseRow(row: number, call: number) {
  now.row = row;
  act.select(call, false);
  list.draw();
}

function lineOf(at: number): HTMLElement {
  const p = now.part!;
  return view.tab === "model" ? treeLine(at) : view.tab === "calls" ? callLine(p, shown[at]) : rowLine(p, shown[at]);
}

export function toggle(i: number) {
  if (!open.delete(i)) open.add(i);
  refresh();
}

// ---- moving through them ---------------------------------------------------------------------------------------

const find = (wanted: number) => (shown as number[]).indexOf(wanted);

export function showSelected() {
  const at = view.tab === "rows" ? -1 : find(now.selected);
  if (at >= 0) list.show(at);
}

export function redraw() { list.draw(); }

export function stepLine(by: number) {
  const p = now.part;
  if (!p) return;
  let at = find(view.tab === "rows" ? now.row : now.selected);
  do at += by; while (at >= 0 && at < shown.length && view.tab === "model" && tree[shown[at]].call < 0);
  if (at < 0 || at >= shown.length) return;
  if (view.tab !== "rows") return act.select(shown[at]);
  const row = shown[at];
  list.show(at);
  return p.chunk(Math.floor(row / CHUNK)).then(r => chooseRow(row, r.call[row % CHUNK]));
}

// ---- the tools above -------------------------------------------------------------------------------------------

function choice(name: string, chosen: string, options: [string, string][], change: (v: string) => void): HTMLElement {
  const s = h("select", { "aria-label": name }, ...options.map(([v, t]) => h("option", { value: v }, t)));
  s.value = options.some(o => o[0] === chosen) ? chosen : "";
  s.addEventListener("change", () => change(s.value));
  return s;
}

function fromTop() {
  list.root.scrollTop = 0;
  refresh();
}

export function clearFilters() {
  view.q = view.verdict = view.type = view.dir = "";
  drawTools();
  list.root.focus();
  refresh();
}

function tab(t: Tab, text: string): HTMLElement {
  return h("button", { class: view.tab === t ? "tab on" : "tab", "aria-pressed": String(view.tab === t), id: "tab-" + t,
    onclick: () => { view.tab = t; view.sort = ""; drawTools(); fromTop(); } }, text);
}

function sorts(p: Part | null): [string, string][] {
  if (view.tab === "calls")
    return [["", "in execution order"], ["error", "by error"], ...p?.own ? [["excess", "by times the allowed error"] as [string, string]] : [],
      ["input error", "by input error"], ["verdict", "by verdict"], ["name", "by name"]];
  return [["", "in execution order"], ...(p?.columns ?? []).filter(t => METRICS.has(t) || /^(NPU|Bench) (max|min|mean|l2norm)$/.test(t))
    .map(t => [t, "by " + t] as [string, string])];
}

export function drawTools() {
  const types = new Set(now.part?.names.map(typeOf));
  const filter = (k: "verdict" | "type" | "dir" | "sort") => (v: string) => { view[k] = v; fromTop(); };
  search.value = view.q;
  fill(tools, h("div", { class: "tabs", role: "group", "aria-label": "what is listed" }, tab("model", "Model"), tab("calls", "Calls"), tab("rows", "Rows")), search,
    choice("verdict", view.verdict, [["", "any verdict"], ...[...VERDICTS].reverse().map(v => [v.key, v.mark + " " + v.word] as [string, string]),
      [BEYOND, "beyond the manual's limits"]], filter("verdict")),
    choice("type", view.type, [["", "any type"], ...[...types].sort().slice(0, 200).map(t => [t, t] as [string, string])], filter("type")),
    choice("direction", view.dir, [["", "both directions"], ["forward", "forward"], ["backward", "backward"]], filter("dir")),
    head.pairs.length > 1 ? choice("rank and step", String(view.pair), head.pairs.map((p, i) => [String(i), p.label || "all"]),
      v => { view.call = ""; act.choosePair(Number(v)); }) : null,
    view.tab === "model" ? null : choice("sort", view.sort, sorts(now.part), filter("sort")), status);
}

let typing = 0;
search.addEventListener("input", () => {
  clearTimeout(typing);
  typing = window.setTimeout(() => { view.q = search.value; fromTop(); }, 120);
});

export function clearList() {
  shown = [];
  list.set(0);
}
