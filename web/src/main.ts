// main.ts - the page put together: strip, heat map, keys, and what happens when a call or another rank is chosen.
import { Part, Verdict } from "./data";
import { count, fill, h, short } from "./dom";
import { heat, heatAt, HEAT_BINS, heatScroll, legend, strip, stripCall } from "./charts";
import { detail, drawDetail } from "./detail";
import { drawErrors, drawFirst, firstScreen } from "./first";
import { clearFilters, clearList, drawTools, lists, open, refresh, search, showSelected, stepLine, toggle } from "./lists";
import { act, head, isWritten, now, readAddress, view } from "./state";
import { buildTree, roots, tree } from "./tree";
import { SEALS, VERDICTS } from "./words";

const app = document.getElementById("app")!;
const stripBox = h("section", { class: "strip" });
const heatBox = h("section", { class: "heat" });
const tip = h("div", { class: "tip", hidden: true });

// ---- strip and heat map ----------------------------------------------------------------------------------------

// Of calls from..to the one that is worst, and of those the one that is off most.
function worstOf(p: Part, from: number, to: number, best = from): number {
  for (let i = Math.max(0, from); i < Math.min(to, p.names.length); i++)
    if (p.verdict[i] > p.verdict[best] || (p.verdict[i] === p.verdict[best] && p.error[i] > p.error[best])) best = i;
  return best;
}

const PAPER = 680; // pixels across a printed page

function drawStrip(width = Math.max(300, stripBox.clientWidth)) {
  const p = now.part;
  if (!p) return;
  const c = strip(p, width, now.selected);
  const at = (e: MouseEvent) => {
    const near = stripCall(p, e.clientX - c.getBoundingClientRect().left, width), reach = Math.ceil(p.names.length / width);
    return reach > 1 ? worstOf(p, near - 2 * reach, near + 2 * reach + 1, near) : near;
  };
  c.addEventListener("click", e => act.select(at(e)));
  c.addEventListener("mousemove", e => {
    const i = at(e);
    tip.hidden = false;
    tip.textContent = `${p.names[i]} — ${VERDICTS[p.verdict[i]].word}, error ${short(p.error[i])}`;
    tip.style.left = Math.min(e.pageX + 12, innerWidth - tip.offsetWidth - 12) + "px";
    tip.style.top = e.pageY + 16 + "px";
  });
  c.addEventListener("mouseleave", () => { tip.hidden = true; });
  fill(stripBox, h("h2", null, "Error of every call, in execution order ", h("small", null,
    `${count(p.names.length)} calls · log scale · click to open`)), legend(p), c);
}

function drawHeat() {
  heatBox.hidden = head.pairs.length < 2;
  if (heatBox.hidden) return;
  const c = heat(head, Math.max(300, heatBox.clientWidth), view.pair);
  c.addEventListener("click", e => {
    const { pair, share } = heatAt(head, e.offsetX, e.offsetY, c.clientWidth);
    if (pair < 0) return;
    view.call = "";
    act.choosePair(pair).then(() => {
      const p = now.part, shares = Math.min(p?.names.length ?? 0, HEAT_BINS), k = Math.floor(share * shares), of = (i: number) => Math.ceil(i * p!.names.length / shares);
      if (p && share >= 0 && shares > 0) act.select(worstOf(p, of(k), Math.max(of(k) + 1, of(k + 1))));
    });
  });
  fill(heatBox, h("h2", null, "Steps and ranks ", h("small", null,
    `${head.pairs.length} pairs · darker: larger error · dot: wrong · click to open the worst call there`)), c);
  heatBox.scrollTop = heatScroll(head, view.pair, heatBox.clientHeight);
}

// ---- choosing --------------------------------------------------------------------------------------------------

act.select = (call: number, scroll = true) => {
  const p = now.part;
  if (!p || call < 0 || call >= p.names.length) return;
  now.selected = call;
  view.call = p.names[call];
  for (let up = tree[call].parent; up >= 0; up = tree[up].parent) open.add(up);
  if (view.tab !== "rows" || scroll) refresh();
  if (scroll) showSelected();
  drawStrip();
  return drawDetail();
};

// What is opened first: what the address names, the suspect, else the call that is off most.
function firstCall(p: Part): number | undefined {
  const call = p.byName.get(view.call || head.pairs[view.pair].suspect?.call || "");
  return call === undefined && !view.call ? worstOf(p, 0, p.names.length) : call;
}

act.choosePair = async (k: number) => {
  view.pair = k;
  const p = now.part = await Part.load(k);
  now.selected = now.row = -1;
  open.clear();
  drawFirst();
  drawHeat();
  drawTools();
  if (!p) {
    fill(stripBox, h("p", { class: "none" }, head.pairs[k].error ?? "This pair was not compared."));
    fill(detail);
    clearList();
    return;
  }
  buildTree(p);
  for (const r of roots) if (roots.length < 40) open.add(r);
  await drawErrors();
  drawStrip();
  await refresh();
  const call = firstCall(p);
  if (call !== undefined && call < p.names.length) await act.select(call);
  else await drawDetail();
};

// ---- keys ------------------------------------------------------------------------------------------------------

function stepWrong(by: number) {
  const p = now.part;
  if (!p) return;
  for (let i = now.selected + by; i >= 0 && i < p.names.length; i += by)
    if (p.verdict[i] === Verdict.Wrong) return act.select(i);
}

function turnTheme() {
  const theme = document.documentElement.dataset, dark = theme.theme ? theme.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  theme.theme = dark ? "light" : "dark";
  drawStrip();
  drawHeat();
  drawDetail();
}

function grow(wanted: boolean) {
  if (view.tab === "model" && now.selected >= 0 && open.has(now.selected) !== wanted) toggle(now.selected);
}

const ACTS: Record<string, () => unknown> = {
  "/": () => search.focus(), j: () => stepLine(1), k: () => stepLine(-1), ArrowDown: () => stepLine(1), ArrowUp: () => stepLine(-1),
  n: () => stepWrong(1), p: () => stepWrong(-1), d: turnTheme, ArrowRight: () => grow(true), ArrowLeft: () => grow(false),
  c: () => detail.querySelector<HTMLButtonElement>("header button")?.click(),
};

document.addEventListener("keydown", e => {
  if (e.key === "Escape") return clearFilters();
  const field = e.target instanceof HTMLInputElement || e.target instanceof HTMLSelectElement;
  if (field || e.ctrlKey || e.metaKey || e.altKey || !ACTS[e.key]) return;
  e.preventDefault();
  ACTS[e.key]();
});

// ---- start -----------------------------------------------------------------------------------------------------

readAddress();
document.title = `${SEALS[head.verdict.level] ?? ""} msprobe: ${head.verdict.text.slice(0, 80)}`;
fill(app, h("nav", null, h("b", null, "msprobe"), h("span", { class: "quiet" }, "two runs, call by call"),
  h("button", { class: "theme", onclick: turnTheme, title: "light or dark (d)", "aria-label": "light or dark" }, "◐")), firstScreen, heatBox, stripBox,
  h("main", null, lists, detail), tip);
drawFirst();
drawHeat();
fill(stripBox, h("p", { class: "none" }, "Reading the calls…"));

async function start() {
  await act.choosePair(view.pair);
  document.documentElement.dataset.ready = "true";
}
if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
else start();

window.addEventListener("hashchange", () => {
  if (isWritten()) return;
  const pair = view.pair;
  readAddress();
  drawTools();
  if (pair !== view.pair) act.choosePair(view.pair);
  else if (now.part?.byName.has(view.call)) act.select(now.part.byName.get(view.call)!);
  else refresh();
});
window.addEventListener("beforeprint", () => drawStrip(PAPER));
window.addEventListener("afterprint", () => drawStrip());
let width = innerWidth;
window.addEventListener("resize", () => {
  if (innerWidth === width) return;
  width = innerWidth;
  drawStrip();
  drawHeat();
});
