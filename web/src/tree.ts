// tree.ts - the model's tree (construct.json), each module with the worst verdict below it.
import { MARK, Part, Verdict } from "./data";

export interface Branch {
  name: string; label: string; call: number; parent: number; children: number[];
  worst: number; wrong: number; error: number; marks: number;
}
export let tree: Branch[] = [];
export let roots: number[] = [];

const DEEPEST = 200; // a chain of parents that is longer comes back to itself

function add(p: Part, name: string, call: number, parent: number): number {
  return tree.push({ name, label: name, call, parent, children: [], wrong: 0, worst: call < 0 ? 0 : p.verdict[call],
    error: call < 0 ? -1 : p.error[call], marks: call < 0 ? 0 : p.marks[call] }) - 1;
}

// Gradients of parameters stand below their module's backward.
function parentOf(p: Part, call: number): number {
  return p.parent[call] >= 0 || !p.names[call].endsWith(".parameters_grad") ? p.parent[call]
    : p.byName.get(p.names[call].replace(/parameters_grad$/, "backward.0")) ?? -1;
}

// Nothing says which module a call is in: by direction and function.
function groupByFunction(p: Part) {
  const made = new Map<string, number>();
  const group = (name: string, parent: number) => {
    const key = parent + "/" + name;
    if (!made.has(key)) made.set(key, add(p, name, -1, parent));
    return made.get(key)!;
  };
  p.names.forEach((name, i) => {
    const kind = name.replace(/\.(forward|backward)(\.\d+)?$/, "").replace(/\.\d+$/, "");
    tree[i].parent = group(kind, group(directionOf(name) || "other", -1));
  });
}

function linkChildren() {
  roots = [];
  tree.forEach((t, i) => {
    let up = t.parent, steps = 0;
    while (up >= 0 && up !== i && steps++ < DEEPEST) up = tree[up].parent;
    if (up >= 0) t.parent = -1;
    if (t.parent >= 0) tree[t.parent].children.push(i);
    else roots.push(i);
  });
}

function sumUp(p: Part) {
  for (let i = 0; i < p.names.length; i++) {
    const wrong = p.verdict[i] === Verdict.Wrong ? 1 : 0;
    for (let up = i; up >= 0; up = tree[up].parent) {
      const t = tree[up];
      t.worst = Math.max(t.worst, p.verdict[i]);
      t.error = Math.max(t.error, p.error[i]);
      t.marks |= p.marks[i] & MARK.nonfinite;
      t.wrong += wrong;
    }
  }
}

// A name without what its parent's name says already.
function shorten(t: Branch) {
  const up = t.parent >= 0 ? tree[t.parent].name.split(".") : [], own = t.name.split(".");
  let k = 0;
  while (k < own.length - 1 && k < up.length && own[k] === up[k]) k++;
  t.label = own.slice(k).join(".");
}

function firstCall(i: number): number {
  let t = tree[i], depth = 0;
  while (t.call < 0 && t.children.length && depth++ < DEEPEST) t = tree[t.children[0]];
  return t.call < 0 ? tree.length : t.call;
}

export function buildTree(p: Part) {
  const known = p.parent.some(v => v >= 0);
  tree = [];
  for (let i = 0; i < p.names.length; i++) add(p, p.names[i], i, known ? parentOf(p, i) : -1);
  if (known) p.nodeNames.forEach((s, i) => add(p, s, -1, p.nodeParents[i]));
  else groupByFunction(p);
  linkChildren();
  sumUp(p);
  tree.forEach(shorten);
  roots.sort((a, b) => firstCall(a) - firstCall(b));
}

export const directionOf = (s: string) => s.includes(".backward") ? "backward" : s.includes(".forward") ? "forward" : "";
export const typeOf = (s: string) => s.slice(0, s.indexOf(".") < 0 ? s.length : s.indexOf("."));
