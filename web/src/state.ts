// state.ts - what is shown, and the address that restores it.
import { Head, Part, readHead } from "./data";

export type Tab = "model" | "calls" | "rows";
export interface View {
  pair: number; call: string; tab: Tab; q: string; verdict: string; type: string; dir: string; sort: string;
}

export const head: Head = readHead();
export const view: View = { pair: head.verdict.pair, call: "", tab: "model", q: "", verdict: "", type: "", dir: "", sort: "" };
export const now = { part: null as Part | null, selected: -1, row: -1 };

// What the parts of the page ask of each other; main.ts fills it in.
export const act = {
  select: (_call: number, _scroll?: boolean): unknown => undefined,
  choosePair: (_pair: number): Promise<void> => Promise.resolve(),
};

export const link = (call: string) => "#call=" + encodeURIComponent(call);

const KEPT = ["call", "q", "verdict", "type", "dir", "sort"] as const;

export function readAddress() {
  const p = new URLSearchParams(location.hash.slice(1));
  const pair = Number(p.get("pair") ?? head.verdict.pair);
  view.pair = Number.isInteger(pair) && pair >= 0 && pair < head.pairs.length ? pair : 0;
  for (const k of KEPT) view[k] = p.get(k) ?? "";
  const tab = p.get("tab");
  view.tab = tab === "calls" || tab === "rows" ? tab : "model";
}

let written = "";
export const isWritten = () => location.hash === written;

export function writeAddress() {
  const p = new URLSearchParams();
  if (view.pair !== head.verdict.pair) p.set("pair", String(view.pair));
  if (view.tab !== "model") p.set("tab", view.tab);
  for (const k of KEPT) if (view[k]) p.set(k, view[k]);
  written = "#" + p.toString();
  history.replaceState(null, "", written);
}
