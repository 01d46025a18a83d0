// main.ts - the page: first screen, strip, lists, the detail of a call, and the address that restores them.
import { CHUNK, Head, MARK, Part, readHead, Rows, Verdict } from "./data";
import { count, fill, h, List, num, short } from "./dom";
import { heat, heatShare, heatShares, pictures, strip, stripCall, VERDICTS } from "./charts";

type Tab = "model" | "calls" | "rows";
interface View { pair: number; call: string; tab: Tab; q: string; verdict: string; type: string; dir: string; sort: string }

const head: Head = readHead();
const view: View = { pair: head.verdict.pair, call: "", tab: "model", q: "", verdict: "", type: "", dir: "", sort: "" };
let part: Part | null = null;
let selected = -1;
const open = new Set<number>();

// ---- the address -----------------------------------------------------------------------------------------------

function readAddress() {
  const p = new URLSearchParams(location.hash.slice(1));
  const pair = Number(p.get("pair") ?? head.verdict.pair);
  view.pair = Number.isInteger(pair) && pair >= 0 && pair < head.pairs.length ? pair : 0;
  for (const k of ["call", "q", "verdict", "type", "dir", "sort"] as const) view[k] = p.get(k) ?? "";
  const tab = p.get("tab");
  view.tab = tab === "calls" || tab === "rows" ? tab : "model";
}

let written = "";
function writeAddress() {
  const p = new URLSearchParams();
  if (view.pair !== head.verdict.pair) p.set("pair", String(view.pair));
  if (view.tab !== "model") p.set("tab", view.tab);
  for (const k of ["call", "q", "verdict", "type", "dir", "sort"] as const) if (view[k]) p.set(k, view[k]);
  written = "#" + p.toString();
  history.replaceState(null, "", written);
}

// ---- small things ----------------------------------------------------------------------------------------------

function mark(v: number, marks = 0): HTMLElement {
  const d = VERDICTS[v], odd = marks & MARK.nonfinite;
  return h("span", { class: `mark ${d.key}`, title: odd ? d.word + ", NaN or inf on one side" : d.word },
    d.mark + (odd ? "∞" : ""));
}

function frameView(frame: string): HTMLElement {
  const m = /^File (.*), line (\d+), in ([^,]*),?\s*\n?\s*([^]*)$/.exec(frame);
  if (!m) return h("li", null, frame);
  return h("li", null, h("code", null, m[4].trim()), h("small", null, `${m[1]}:${m[2]} in ${m[3]}`));
}

const isTorch = (f: string) => /[\\/](torch|msprobe|mindspore|ptdbg_ascend)[\\/]/.test(f.split(", line")[0]);

function stackView(frames: string[]): HTMLElement {
  if (!frames.length) return h("p", { class: "none" }, "No stack was recorded.");
  const at = Math.max(0, frames.findIndex(f => !isTorch(f)));
  const list = h("ol", { class: "stack" }, ...frames.map(frameView));
  frames.forEach((f, i) => { if (isTorch(f)) list.children[i].classList.add("theirs"); });
  list.children[at]?.classList.add("here");
  return list;
}

function copy(text: string, button: HTMLElement) {
  const done = () => { button.textContent = "Copied"; setTimeout(() => { button.textContent = "Copy as text"; }, 1200); };
  const byHand = () => {
    const t = h("textarea", { class: "copy" });
    t.value = text;
    document.body.append(t);
    t.select();
    document.execCommand("copy");
    t.remove();
    done();
  };
  if (navigator.clipboard && window.isSecureContext) navigator.clipboard.writeText(text).then(done, byHand);
  else byHand();
}

// ---- first screen ----------------------------------------------------------------------------------------------

const marks: Record<string, string> = { wrong: "✗", open: "?", fine: "✓" };
const app = document.getElementById("app")!;
const firstScreen = h("section", { class: "first" });
const stripBox = h("section", { class: "strip" });
const heatBox = h("section", { class: "heat" });
const tools = h("div", { class: "tools" });
const listBox = h("div", { class: "listbox" });
const detail = h("article", { class: "detail", id: "detail", tabindex: -1 });
const status = h("div", { class: "status", role: "status" });

function fact(name: string, ...value: (Node | string)[]) {
  return [h("dt", null, name), h("dd", null, ...value)];
}

// Said only as far as it was checked: see explain/inputs.c.
const INPUTS: Record<string, string> = {
  equal: "equal, all of them", fine: "compared, all of them: none differs by a tenth of what this row does",
  wrong: "already different: look further up",
};

function drawFirst() {
  const p = head.pairs[view.pair], s = p.suspect, c = p.counts, v = head.verdict;
  const facts: Node[] = [];
  const bench = p.bench ?? head.bench ?? "";
  facts.push(...fact(bench ? "Compared" : "From", p.npu ?? head.npu ?? ""));
  if (bench) facts.push(...fact("with", bench));
  const parts = [`${count(c.rows)} rows`, `${count(c.matched)} matched`, c.unmatched && `${count(c.unmatched)} without partner`,
    c.bench_only && `${count(c.bench_only)} only in the bench`, `${count(c.wrong)} beyond the manual's limits`,
    c.nonfinite && `${count(c.nonfinite)} NaN or inf on one side`, c.not_judged && `${count(c.not_judged)} not judged`,
    c.unreadable && `${count(c.unreadable)} unreadable`];
  facts.push(...fact("By " + p.mode, parts.filter(Boolean).join(" · ")));
  if (p.error) facts.push(...fact("Error", p.error));
  for (const note of p.notes ?? []) facts.push(...fact("Note", note));
  const side: Node[] = [];
  if (s) {
    const jump = h("a", { href: "#call=" + encodeURIComponent(s.call), class: "name" }, s.name);
    facts.push(...fact("Suspect", jump, " ", h("span", { class: "quiet" }, `${s.verdict}, ${s.dtype[0]} ${s.shape[0]}`)));
    facts.push(...fact("Its inputs", INPUTS[s.inputs] ?? "could not all be compared"));
    if (s.argument) facts.push(...fact("Arguments", s.argument));
    if (s.worst) facts.push(...fact("Worst element", `[${s.worst.index.join(", ")}]: NPU ${s.worst.npu}, bench ${s.worst.bench}`));
    const own = s.stack.filter(f => !isTorch(f)).slice(0, 4);
    side.push(h("h2", null, "Called at"), stackView(own.length ? own : s.stack.slice(0, 4)));
  }
  for (const t of p.then ?? []) facts.push(...fact("Then", h("a", { href: "#call=" + encodeURIComponent(t.call), class: "name" }, t.call),
    h("span", { class: "quiet" }, " " + t.reason)));
  if (part && part.number === view.pair) {
    // beyond the limits or not: where the two runs part at all
    const q = part, link = (i: number, note: string) => [h("a", { href: "#call=" + encodeURIComponent(q.names[i]) }, q.names[i]),
      h("span", { class: "quiet" }, note)];
    const differs = q.error.findIndex(e => e > 0), alone = q.verdict.indexOf(Verdict.Unmatched);
    if (differs >= 0 && q.names[differs] !== s?.call) facts.push(...fact("Differs first", ...link(differs, ` by ${short(q.error[differs])}`)));
    if (alone >= 0) facts.push(...fact("First unmatched", ...link(alone, " has no partner, or one of another shape")));
  }
  fill(firstScreen, h("h1", { class: v.level }, h("span", { class: "seal", "aria-hidden": "true" }, marks[v.level] ?? "?"),
    h("span", null, v.text)), h("div", { class: "cols" }, h("dl", null, ...facts), h("div", null, ...side)), errorsBox);
}

const errorsBox = h("div", { class: "errors" });

// The errors of the first wrong call's inputs and outputs, as a small table.
async function drawErrors() {
  const s = head.pairs[view.pair].suspect, call = s && part ? part.byName.get(s.call) : undefined;
  if (call === undefined || !part) return fill(errorsBox);
  const p = part, all = await p.rowsOf(call), wrong = all.filter(r => r.rows.verdict[r.at] === Verdict.Wrong);
  // inputs first, as they stand; of many rows those that are wrong
  const rows = all.length <= 6 ? all : [...all.filter(r => !wrong.includes(r)).slice(0, Math.max(2, 6 - wrong.length)), ...wrong.slice(0, 6)];
  const wanted = p.columns.map((t, i) => ({ t, i })).filter(c => METRICS.has(c.t)).slice(0, 6);
  const left = all.length - rows.length;
  fill(errorsBox, h("table", null, h("tr", null, h("th", null, "its inputs and outputs"), h("th", null, ""),
    ...wanted.map(c => h("th", { class: "n" }, c.t))),
    ...rows.map(r => h("tr", null, h("td", null, p.texts[r.rows.name[r.at]]), h("td", null,
      mark(r.rows.verdict[r.at], r.rows.marks[r.at])), ...wanted.map(c => h("td", { class: "n" },
        num(p.show(r.rows, c.i, r.at))))))), left > 0 ? h("p", { class: "message" }, `and ${count(left)} more, below`) : null);
}

// ---- strip and heat map ----------------------------------------------------------------------------------------

const tip = h("div", { class: "tip", hidden: true });

function drawStrip() {
  if (!part) return;
  const width = Math.max(300, stripBox.clientWidth), p = part;
  const c = strip(p, width, selected);
  const at = (e: MouseEvent) => {
    const near = stripCall(p, e.clientX - c.getBoundingClientRect().left, width);
    const reach = Math.ceil(p.names.length / width) * 2;
    let best = near;
    for (let i = Math.max(0, near - reach); i <= Math.min(p.names.length - 1, near + reach); i++)
      if (p.verdict[i] > p.verdict[best] || (p.verdict[i] === p.verdict[best] && reach > 2 && p.error[i] > p.error[best])) best = i;
    return best;
  };
  c.addEventListener("click", e => select(at(e)));
  c.addEventListener("mousemove", e => {
    const i = at(e);
    tip.hidden = false;
    tip.textContent = `${p.names[i]} — ${VERDICTS[p.verdict[i]].word}, error ${short(p.error[i])}`;
    tip.style.left = Math.min(e.pageX + 12, innerWidth - tip.offsetWidth - 12) + "px";
    tip.style.top = e.pageY + 16 + "px";
  });
  c.addEventListener("mouseleave", () => { tip.hidden = true; });
  fill(stripBox, h("h2", null, "Error of every call, in execution order ", h("small", null,
    `${count(p.names.length)} calls · log scale · double bar on top: NaN or inf · mark below: unmatched · click to open`)), c);
}

// The worst call of one of n equal shares of the open pair's calls.
function worstOfShare(share: number, n: number): number {
  const p = part;
  if (!p || n === 0) return -1;
  const from = Math.floor(share * p.names.length / n), to = Math.max(from + 1, Math.floor((share + 1) * p.names.length / n));
  let best = from;
  for (let i = from; i < Math.min(to, p.names.length); i++)
    if (p.verdict[i] > p.verdict[best] || (p.verdict[i] === p.verdict[best] && p.error[i] > p.error[best])) best = i;
  return best;
}

function drawHeat() {
  heatBox.hidden = head.pairs.length < 2;
  if (heatBox.hidden) return;
  const c = heat(head, Math.max(300, heatBox.clientWidth), view.pair);
  c.addEventListener("click", e => {
    const k = Math.floor((e as MouseEvent & { offsetY: number }).offsetY / (head.pairs.length > 40 ? 8 : 16));
    if (k < 0 || k >= head.pairs.length) return;
    const share = heatShare(e.clientX - c.getBoundingClientRect().left, c.clientWidth);
    view.call = "";
    choosePair(k).then(() => share >= 0 && select(worstOfShare(share, heatShares(head, k))));
  });
  fill(heatBox, h("h2", null, "Steps and ranks ", h("small", null,
    `${head.pairs.length} pairs · darker: larger error · dot: wrong · click to open the worst call there`)), c);
}

// ---- the model's tree ------------------------------------------------------------------------------------------

interface Node2 { name: string; label: string; call: number; parent: number; children: number[]; worst: number; wrong: number; error: number; marks: number }
let tree: Node2[] = [];
let roots: number[] = [];

function buildTree(p: Part) {
  const n = p.names.length;
  tree = [];
  const add = (name: string, call: number, parent: number) =>
    tree.push({ name, label: name, call, parent, children: [], worst: call < 0 ? 0 : p.verdict[call], wrong: 0,
      error: call < 0 ? -1 : p.error[call], marks: call < 0 ? 0 : p.marks[call] }) - 1;
  const known = p.parent.some(v => v >= 0);
  // gradients of parameters stand below their module's backward
  const above = (i: number) => p.parent[i] >= 0 || !p.names[i].endsWith(".parameters_grad") ? p.parent[i]
    : p.byName.get(p.names[i].replace(/parameters_grad$/, "backward.0")) ?? -1;
  for (let i = 0; i < n; i++) add(p.names[i], i, known ? above(i) : -1);
  if (known) p.nodeNames.forEach((s, i) => add(s, -1, p.nodeParents[i]));
  else {
    // nothing says which module a call is in: by direction and function
    const made = new Map<string, number>();
    const group = (name: string, parent: number) => {
      const key = parent + "/" + name;
      if (!made.has(key)) made.set(key, add(name, -1, parent));
      return made.get(key)!;
    };
    for (let i = 0; i < n; i++) {
      const dir = directionOf(p.names[i]), kind = p.names[i].replace(/\.(forward|backward)(\.\d+)?$/, "").replace(/\.\d+$/, "");
      tree[i].parent = group(kind, group(dir || "other", -1));
    }
  }
  roots = [];
  tree.forEach((t, i) => {
    // a parent chain that comes back to itself is cut
    let up = t.parent, steps = 0;
    while (up >= 0 && up !== i && steps++ < 200) up = tree[up].parent;
    if (up >= 0) t.parent = -1;
    if (t.parent >= 0) tree[t.parent].children.push(i);
    else roots.push(i);
  });
  for (let i = 0; i < n; i++) {
    const wrong = p.verdict[i] === Verdict.Wrong ? 1 : 0;
    for (let up = i; up >= 0; up = tree[up].parent) {
      const t = tree[up];
      t.worst = Math.max(t.worst, p.verdict[i]);
      t.error = Math.max(t.error, p.error[i]);
      t.marks |= p.marks[i] & MARK.nonfinite;
      t.wrong += wrong;
    }
  }
  for (const t of tree) {
    const up = t.parent >= 0 ? tree[t.parent].name.split(".") : [], own = t.name.split(".");
    let k = 0;
    while (k < own.length - 1 && k < up.length && own[k] === up[k]) k++;
    t.label = own.slice(k).join(".");
  }
  if (!p.byName.size) return;
  roots.sort((a, b) => firstCall(a) - firstCall(b));
}

function firstCall(i: number): number {
  let t = tree[i], depth = 0;
  while (t.call < 0 && t.children.length && depth++ < 200) t = tree[t.children[0]];
  return t.call < 0 ? tree.length : t.call;
}

// ---- filters ---------------------------------------------------------------------------------------------------

const directionOf = (s: string) => s.includes(".backward") ? "backward" : s.includes(".forward") ? "forward" : "";
const typeOf = (s: string) => s.slice(0, s.indexOf(".") < 0 ? s.length : s.indexOf("."));

function matcher(p: Part): ((call: number) => boolean) | null {
  const q = view.q.toLowerCase();
  if (!q && !view.verdict && !view.type && !view.dir) return null;
  const verdict = VERDICTS.findIndex(v => v.key === view.verdict);
  return i => (!q || p.names[i].toLowerCase().includes(q)) && (verdict < 0 || p.verdict[i] === verdict) &&
    (!view.type || typeOf(p.names[i]) === view.type) && (!view.dir || directionOf(p.names[i]) === view.dir);
}

let shown: Uint32Array | number[] = [];
let depth: number[] = [];
let list: List;

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

let turn = 0;
async function refresh() {
  const p = part;
  if (!p) return;
  const mine = ++turn, keep = matcher(p);
  if (view.tab === "model") showTree(p, keep);
  else if (view.tab === "calls") showCalls(p, keep);
  else await showRows(p, keep, mine);
  if (mine !== turn) return;
  writeAddress();
}

function showTree(p: Part, keep: ((call: number) => boolean) | null) {
  let wanted: Uint8Array | null = null, found = 0;
  if (keep) {
    wanted = new Uint8Array(tree.length);
    for (let i = 0; i < p.names.length; i++)
      if (keep(i)) {
        found++;
        for (let up = i; up >= 0 && !wanted[up]; up = tree[up].parent) wanted[up] = 1;
      }
  }
  const out: number[] = [];
  depth = [];
  const stack = roots.map(r => [r, 0]).reverse();
  while (stack.length) {
    const [i, d] = stack.pop()!;
    if (wanted && !wanted[i]) continue;
    out.push(i);
    depth.push(d);
    if (wanted ? true : open.has(i)) for (let k = tree[i].children.length - 1; k >= 0; k--) stack.push([tree[i].children[k], d + 1]);
  }
  shown = out;
  list.set(out.length);
  status.textContent = keep ? `${count(found)} of ${count(p.names.length)} calls` : `${count(p.names.length)} calls`;
}

function showCalls(p: Part, keep: ((call: number) => boolean) | null) {
  const all: number[] = [];
  for (let i = 0; i < p.names.length; i++) if (!keep || keep(i)) all.push(i);
  let out = Uint32Array.from(all);
  if (view.sort === "error") out = order(Float32Array.from(all, i => p.error[i]), out);
  else if (view.sort === "input error") out = order(Float32Array.from(all, i => p.inputError[i]), out);
  else if (view.sort === "name") out = Uint32Array.from(all.sort((a, b) => p.names[a] < p.names[b] ? -1 : 1));
  else if (view.sort === "verdict") out = order(Float32Array.from(all, i => p.verdict[i]), out);
  shown = out;
  list.set(out.length);
  status.textContent = `${count(out.length)} of ${count(p.names.length)} calls`;
}

async function showRows(p: Part, keep: ((call: number) => boolean) | null, mine: number) {
  const chunks = Math.ceil(p.rowCount / CHUNK), column = p.columns.indexOf(view.sort);
  const verdict = VERDICTS.findIndex(v => v.key === view.verdict), q = view.q.toLowerCase();
  const index = new Uint32Array(p.rowCount), keys = new Float32Array(p.rowCount);
  let n = 0;
  const byCall = keep ? new Map<number, boolean>() : null;
  const saved = view.verdict;
  const callFits = (i: number) => {
    let v = byCall!.get(i);
    if (v === undefined) {
      v = (!q || p.names[i].toLowerCase().includes(q)) && (!view.type || typeOf(p.names[i]) === view.type) &&
        (!view.dir || directionOf(p.names[i]) === view.dir);
      byCall!.set(i, v);
    }
    return v;
  };
  if (!keep && column < 0) { // all, as they stand: nothing needs to be unpacked
    for (let i = 0; i < p.rowCount; i++) index[i] = i;
    n = p.rowCount;
  } else for (let k = 0; k < chunks; k++) {
    if (k % 8 === 0) {
      status.textContent = `reading rows: ${Math.round(100 * k / chunks)} %`;
      await new Promise(r => setTimeout(r));
    }
    const r = await p.chunk(k);
    if (mine !== turn) return;
    for (let i = 0; i < r.count; i++) {
      if (keep && ((verdict >= 0 && r.verdict[i] !== verdict) ||
        (!callFits(r.call[i]) && !(q && p.texts[r.name[i]].toLowerCase().includes(q))))) continue;
      if (column >= 0) {
        const v = p.cell(r, column, i);
        const w = typeof v === "number" ? v : v.endsWith("%") ? parseFloat(v) : v === "Nan" ? Infinity : NaN;
        keys[n] = view.sort === "Cosine" ? -w : Math.abs(w);
      }
      index[n++] = k * CHUNK + i;
    }
  }
  if (saved !== view.verdict) return;
  shown = column >= 0 ? order(keys.subarray(0, n), index.subarray(0, n)) : index.subarray(0, n);
  list.set(n);
  status.textContent = `${count(n)} of ${count(p.rowCount)} rows`;
}

// ---- lines of the list -----------------------------------------------------------------------------------------

function callLine(p: Part, i: number): HTMLElement {
  const e = h("div", { class: "line" + (i === selected ? " on" : ""), role: "option", "aria-selected": i === selected,
    title: p.names[i], onclick: () => select(i) }, mark(p.verdict[i], p.marks[i]), h("span", { class: "label" }, p.names[i]),
    h("span", { class: "value" }, short(view.sort === "input error" ? p.inputError[i] : p.error[i])));
  return e;
}

function treeLine(p: Part, at: number): HTMLElement {
  const i = shown[at], t = tree[i], leaf = !t.children.length, on = t.call >= 0 && t.call === selected;
  const grow = leaf ? h("span", { class: "grow" }) : h("button", { class: "grow", tabindex: -1, "aria-label": open.has(i) ? "close" : "open",
    onclick: (e: Event) => { e.stopPropagation(); toggle(i); } }, open.has(i) ? "▾" : "▸");
  return h("div", { class: "line" + (on ? " on" : ""), role: "option", "aria-selected": on, title: t.name,
    style: `padding-left:${8 + Math.min(depth[at], 24) * 14}px`, onclick: () => t.call >= 0 ? select(t.call) : toggle(i) },
    grow, mark(t.worst, t.marks), h("span", { class: "label" }, t.label),
    !leaf && t.wrong ? h("span", { class: "badge" }, `${count(t.wrong)} wrong`) : null, h("span", { class: "value" }, short(t.error)));
}

function rowLine(p: Part, at: number): HTMLElement {
  const row = shown[at], e = h("div", { class: "line", role: "option" }), k = Math.floor(row / CHUNK);
  const put = (r: Rows) => {
    const i = row % CHUNK, column = p.columns.indexOf(view.sort), call = r.call[i];
    if (call === selected) e.classList.add("on");
    e.title = `${p.names[call]}.${p.texts[r.name[i]]}`;
    e.onclick = () => select(call);
    fill(e, mark(r.verdict[i], r.marks[i]), h("span", { class: "label" }, `${p.names[call]}.${p.texts[r.name[i]]}`),
      h("span", { class: "value" }, column >= 0 ? num(p.show(r, column, i)) : VERDICTS[r.verdict[i]].word));
  };
  const ready = loaded.get(p)?.get(k);
  if (ready) put(ready);
  else {
    e.textContent = "…";
    p.chunk(k).then(r => {
      if (!loaded.has(p)) loaded.set(p, new Map());
      loaded.get(p)!.set(k, r);
      put(r);
    });
  }
  return e;
}
const loaded = new WeakMap<Part, Map<number, Rows>>();

function lineOf(at: number): HTMLElement {
  const p = part!;
  return view.tab === "model" ? treeLine(p, at) : view.tab === "calls" ? callLine(p, shown[at]) : rowLine(p, at);
}

function toggle(i: number) {
  if (!open.delete(i)) open.add(i);
  refresh();
}

// ---- the detail of a call --------------------------------------------------------------------------------------

const METRICS = new Set(["Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr", "One Thousandth Err Ratio",
  "Five Thousandths Err Ratio", "Max diff", "Min diff", "Mean diff", "L2norm diff", "MinRelativeErr", "MeanRelativeErr",
  "NormRelativeErr", "NPU MD5", "BENCH MD5"]);
const STATS = ["max", "min", "mean", "l2norm"];

// The rule that decided, in the table's own terms: the limit that a cell has passed, "" where it has passed none.
function beyond(title: string, v: number | string, get: (t: string) => number | string): string {
  const x = typeof v === "number" ? v : parseFloat(v);
  if (title === "Cosine")
    return x < 0.9 ? "below 0.9" : x < 0.99 && Number(get("MaxAbsErr")) > 0.001 ? "below 0.99, with MaxAbsErr above 0.001" : "";
  if (title === "MaxAbsErr")
    return x > 1 ? "above 1" : x > 0.001 && Number(get("Cosine")) < 0.99 ? "above 0.001, with Cosine below 0.99" : "";
  if (/^(Max|Min|Mean|Norm)RelativeErr$/.test(title) && typeof v === "string" && v.endsWith("%") && x > 50) return "above 50 %";
  if (title === "BENCH MD5" && v !== get("NPU MD5") && v !== "N/A") return "not the NPU's";
  return "";
}

// Pictures need the elements: tables that were written earlier do not have them, and not every row gets some.
function withoutPictures(mode: string, verdict: number): HTMLElement | null {
  if (mode !== "real data" || verdict !== Verdict.Wrong) return null;
  return h("p", { class: "message" }, head.bench
    ? "No pictures of this row's elements: they are made for the first 48 wrong rows and those that are off most."
    : "No pictures of this row's elements: this page was made from tables. msprobe compare, with the tensors, makes them.");
}
const RULES: Record<string, string> = {
  "real data": "Wrong when Cosine < 0.99 and MaxAbsErr > 0.001, Cosine < 0.9, MaxAbsErr > 1, or NaN and inf stand in different places.",
  "statistics": "Wrong when a relative error of max, min, mean or norm exceeds 50 %, or a side alone has NaN or inf.",
  "md5": "Wrong when the checksums differ.",
};

let shownDetail = -2;
async function drawDetail() {
  const p = part, call = selected;
  if (!p) return;
  if (call < 0) {
    fill(detail, h("p", { class: "none" }, "Choose a call: its statistics, metrics, stack and neighbours are shown here."),
      h("p", { class: "keys" }, ...KEYS.map(k => h("span", null, h("kbd", null, k[0]), " " + k[1]))));
    return;
  }
  shownDetail = call;
  const rows = (await p.rowsOf(call)).slice(0, 400);
  rows.sort((a, b) => Number(b.rows.verdict[b.at] === Verdict.Wrong) - Number(a.rows.verdict[a.at] === Verdict.Wrong));
  if (shownDetail !== call || part !== p) return;
  const title = (t: string) => p.columns.indexOf(t);
  const cards = rows.map(r => {
    const get = (t: string) => title(t) < 0 ? "" : p.show(r.rows, title(t), r.at);
    const bench = String(get("Bench Name")), v = r.rows.verdict[r.at], message = String(get("Err_message") ?? "");
    const shape = get("NPU Tensor Shape"), shapeB = get("Bench Tensor Shape"), type = get("NPU Dtype"), typeB = get("Bench Dtype");
    const both = (a: number | string, b: number | string) => a === b || v === Verdict.Unmatched ? String(a) : `${a} / ${b}`;
    const stats = title("NPU max") < 0 ? null : h("table", { class: "stats" },
      h("tr", null, h("th", null), ...STATS.map(s => h("th", { class: "n" }, s))),
      ...["NPU", "Bench"].map(side => h("tr", null, h("th", null, side), ...STATS.map(s => h("td", { class: "n" }, num(get(`${side} ${s}`)))))));
    const metrics = p.columns.filter(t => METRICS.has(t)).map(t => {
      const value = get(t), over = beyond(t, value, get);
      return h("span", { class: "metric" + (over ? " over" : "") }, h("small", null, t), h("b", null, num(value) + (over ? " ✗" : "")),
        over ? h("small", { class: "limit" }, over) : null);
    });
    const e = p.elements.get(r.index);
    return h("section", { class: "card v" + VERDICTS[v].key }, h("h3", null, mark(v, r.rows.marks[r.at]), " ", p.texts[r.rows.name[r.at]], " ",
      h("span", { class: "quiet" }, `${both(type, typeB)} ${both(shape, shapeB)}`)),
      bench && bench !== "N/A" ? h("p", { class: "quiet" }, "compared with " + bench) : null,
      stats, v === Verdict.Unmatched ? null : h("div", { class: "metrics" }, ...metrics),
      message ? h("p", { class: "message" }, message) : null, e ? pictures(e) : withoutPictures(head.pairs[view.pair].mode, v));
  });
  const neighbours = (wanted: number, other: number) => {
    const out: number[] = [];
    for (let i = 0; i < p.edges.length && out.length < 12; i += 2)
      if (p.edges[i + wanted] === call && !out.includes(p.edges[i + other])) out.push(p.edges[i + other]);
    return out.length ? h("ul", { class: "flow" }, ...out.map(i => h("li", null, mark(p.verdict[i], p.marks[i]), " ",
      h("a", { href: "#call=" + encodeURIComponent(p.names[i]), onclick: (ev: Event) => { ev.preventDefault(); select(i); } }, p.names[i]),
      h("span", { class: "quiet" }, " " + short(p.error[i]))))) : h("p", { class: "none" }, "none was found");
  };
  const button: HTMLButtonElement = h("button", { onclick: () => copy(asText(p, call, cards.length, rows), button) }, "Copy as text");
  fill(detail, h("header", null, h("h2", null, mark(p.verdict[call], p.marks[call]), " ", p.names[call]), button),
    h("p", { class: "quiet" }, `${VERDICTS[p.verdict[call]].word} · call ${count(call + 1)} of ${count(p.names.length)} · ` +
      `error of outputs ${short(p.error[call])}, of inputs ${short(p.inputError[call])}`),
    p.marks[call] & MARK.noRows ? h("p", { class: "message" }, "Some rows of this call are only in the tables: the page has a limit.") : null,
    h("h4", null, "Called at"), stackView(p.frames(call)),
    h("div", { class: "two" }, h("div", null, h("h4", null, "Takes from"), neighbours(1, 0)), h("div", null, h("h4", null, "Gives to"), neighbours(0, 1))),
    h("h4", null, "Inputs and outputs"), h("p", { class: "quiet" }, RULES[head.pairs[view.pair].mode] ?? ""), ...cards);
  detail.scrollTop = 0;
}

function asText(p: Part, call: number, n: number, rows: { rows: Rows; at: number }[]): string {
  const out = [p.names[call], "verdict: " + VERDICTS[p.verdict[call]].word, `compared: ${head.pairs[view.pair].npu}`, `with: ${head.pairs[view.pair].bench}`];
  for (const r of rows.slice(0, n)) {
    out.push("", `${VERDICTS[r.rows.verdict[r.at]].mark} ${p.texts[r.rows.name[r.at]]}`);
    p.columns.forEach((t, i) => {
      const v = num(p.show(r.rows, i, r.at));
      if (v !== "" && v !== "N/A") out.push(`    ${t}: ${v}`);
    });
  }
  out.push("", "called at:", ...p.frames(call).map(f => "    " + f.replace(/\s*\n\s*/g, "  ")));
  return out.join("\n") + "\n";
}

// ---- choosing --------------------------------------------------------------------------------------------------

function select(call: number, scroll = true) {
  const p = part;
  if (!p || call < 0 || call >= p.names.length) return;
  selected = call;
  view.call = p.names[call];
  for (let up = tree[call].parent; up >= 0; up = tree[up].parent) open.add(up);
  refresh();
  if (scroll && view.tab !== "rows") {
    const at = (shown as number[]).indexOf(call);
    if (at >= 0) list.show(at);
  }
  drawStrip();
  return drawDetail();
}

async function choosePair(k: number) {
  view.pair = k;
  part = await Part.load(k);
  selected = -1;
  open.clear();
  fill(heatBox);
  drawFirst();
  drawHeat();
  drawTools();
  if (!part) {
    fill(stripBox, h("p", { class: "none" }, head.pairs[k].error ?? "This pair was not compared."));
    shown = [];
    list.set(0);
    return;
  }
  buildTree(part);
  for (const r of roots) if (roots.length < 40) open.add(r);
  await drawErrors();
  const s = head.pairs[k].suspect, want = view.call || s?.call || "";
  let call = part.byName.get(want);
  if (call === undefined && !view.call) { // nothing is wrong: the call that is off most
    call = 0;
    for (let i = 1; i < part.names.length; i++) if (part.error[i] > part.error[call]) call = i;
  }
  drawStrip();
  await refresh();
  if (call !== undefined && call < part.names.length) await select(call);
  else await drawDetail();
}

// ---- tools and keys --------------------------------------------------------------------------------------------

const search = h("input", { type: "search", placeholder: "Search calls  /", "aria-label": "search calls" });

function choice(label: string, value: string, options: [string, string][], change: (v: string) => void): HTMLElement {
  const s = h("select", { "aria-label": label }, ...options.map(([v, t]) => h("option", { value: v }, t)));
  s.value = options.some(o => o[0] === value) ? value : "";
  s.addEventListener("change", () => change(s.value));
  return s;
}

function drawTools() {
  const types = new Set<string>();
  part?.names.forEach(s => types.add(typeOf(s)));
  const tab = (t: Tab, text: string) => h("button", { class: view.tab === t ? "tab on" : "tab", "aria-pressed": view.tab === t,
    id: "tab-" + t, onclick: () => { view.tab = t; view.sort = ""; drawTools(); list.root.scrollTop = 0; refresh(); } }, text);
  const sorts: [string, string][] = view.tab === "calls"
    ? [["", "in execution order"], ["error", "by error"], ["input error", "by input error"], ["verdict", "by verdict"], ["name", "by name"]]
    : [["", "in execution order"], ...(part?.columns ?? []).filter(t => METRICS.has(t) || /^(NPU|Bench) (max|min|mean|l2norm)$/.test(t)).map(t => [t, "by " + t] as [string, string])];
  search.value = view.q;
  const again = (k: "verdict" | "type" | "dir" | "sort") => (v: string) => { view[k] = v; list.root.scrollTop = 0; refresh(); };
  fill(tools, h("div", { class: "tabs", role: "group", "aria-label": "what is listed" }, tab("model", "Model"), tab("calls", "Calls"), tab("rows", "Rows")), search,
    choice("verdict", view.verdict, [["", "any verdict"], ...VERDICTS.map(v => [v.key, v.mark + " " + v.word] as [string, string])], again("verdict")),
    choice("type", view.type, [["", "any type"], ...[...types].sort().slice(0, 200).map(t => [t, t] as [string, string])], again("type")),
    choice("direction", view.dir, [["", "both directions"], ["forward", "forward"], ["backward", "backward"]], again("dir")),
    head.pairs.length > 1 ? choice("rank and step", String(view.pair), head.pairs.map((p, i) => [String(i), p.label || "all"]), v => { view.call = ""; choosePair(Number(v)); }) : null,
    view.tab === "model" ? null : choice("sort", view.sort, sorts, again("sort")), status);
}

let typing = 0;
search.addEventListener("input", () => {
  clearTimeout(typing);
  typing = window.setTimeout(() => { view.q = search.value; list.root.scrollTop = 0; refresh(); }, 120);
});

const KEYS = [["/", "search"], ["j k", "next, previous line"], ["n p", "next, previous wrong call"], ["← →", "close, open"],
  ["c", "copy as text"], ["d", "light or dark"], ["Esc", "clear"]];

function step(by: number) {
  if (!part || view.tab === "rows") return;
  let at = (shown as number[]).indexOf(selected);
  do at += by; while (at >= 0 && at < shown.length && view.tab === "model" && tree[shown[at]].call < 0);
  if (at >= 0 && at < shown.length) select(shown[at]);
}

function stepWrong(by: number) {
  if (!part) return;
  for (let i = selected + by; i >= 0 && i < part.names.length; i += by)
    if (part.verdict[i] === Verdict.Wrong) return select(i);
}

function turnTheme() {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  drawStrip();
  drawHeat();
  drawDetail();
}

document.addEventListener("keydown", e => {
  const field = e.target instanceof HTMLInputElement || e.target instanceof HTMLSelectElement;
  if (e.key === "Escape") {
    view.q = view.verdict = view.type = view.dir = "";
    drawTools();
    list.root.focus();
    refresh();
    return;
  }
  if (field || e.ctrlKey || e.metaKey || e.altKey) return;
  const act: Record<string, () => void> = {
    "/": () => search.focus(), j: () => step(1), k: () => step(-1), ArrowDown: () => step(1), ArrowUp: () => step(-1),
    n: () => stepWrong(1), p: () => stepWrong(-1), d: turnTheme,
    c: () => detail.querySelector<HTMLButtonElement>("header button")?.click(),
    ArrowRight: () => { if (view.tab === "model" && selected >= 0 && !open.has(selected)) toggle(selected); },
    ArrowLeft: () => { if (view.tab === "model" && selected >= 0 && open.has(selected)) toggle(selected); },
  };
  if (act[e.key]) {
    e.preventDefault();
    act[e.key]();
  }
});

// ---- start -----------------------------------------------------------------------------------------------------

list = new List(26, lineOf, "calls");
readAddress();
document.title = `${marks[head.verdict.level] ?? ""} msprobe: ${head.verdict.text.slice(0, 80)}`;
fill(app, h("nav", null, h("b", null, "msprobe"), h("span", { class: "quiet" }, "two runs, call by call"),
  h("button", { class: "theme", onclick: turnTheme, title: "light or dark (d)" }, "◐")), firstScreen, heatBox, stripBox,
  h("main", null, h("div", { class: "left" }, tools, listBox), detail), tip);
fill(listBox, list.root);
drawFirst();
drawHeat();
fill(stripBox, h("p", { class: "none" }, "Reading the calls…"));

async function start() {
  await choosePair(view.pair);
  document.documentElement.dataset.ready = "true";
}
if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
else start();

window.addEventListener("hashchange", () => {
  if (location.hash === written) return;
  const pair = view.pair;
  readAddress();
  drawTools();
  if (pair !== view.pair) choosePair(view.pair);
  else if (part?.byName.has(view.call)) select(part.byName.get(view.call)!);
  else refresh();
});
let width = innerWidth;
window.addEventListener("resize", () => {
  if (innerWidth === width) return;
  width = innerWidth;
  drawStrip();
  drawHeat();
});
