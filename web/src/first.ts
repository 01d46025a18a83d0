// first.ts - the first screen: what was compared, the verdict, the suspect with its stack and errors.
import { At, Verdict } from "./data";
import { count, fill, h, num, short } from "./dom";
import { act, head, link, now, view } from "./state";
import { breakable, cellsOf, headline, INPUTS, mark, METRICS, plainValue, prose, SEALS, stackView, tellingFrames } from "./words";

export const firstScreen = h("section", { class: "first" });
const errorsBox = h("div", { class: "errors" });

const fact = (name: string, ...value: (Node | string)[]) => [h("dt", null, name), h("dd", null, ...value)];
const quiet = (...text: (Node | string)[]) => h("span", { class: "quiet" }, ...text);
const callLink = (call: string, shown = call) => h("a", { href: link(call) }, ...breakable(shown));

function counts(): string {
  const c = head.pairs[view.pair].counts;
  return [count(c.rows) + " rows", c.matched === c.rows ? "all matched" : `${count(c.matched)} matched`,
    c.unmatched && `${count(c.unmatched)} without partner`, c.bench_only && `${count(c.bench_only)} only in the bench`,
    c.nonfinite && `${count(c.nonfinite)} NaN or inf on one side`, c.not_judged && `${count(c.not_judged)} without metrics`,
    c.unreadable && `${count(c.unreadable)} unreadable`, `${count(c.wrong)} beyond the manual's limits`].filter(Boolean).join(" · ");
}

function comparedFacts(): Node[] {
  const p = head.pairs[view.pair], bench = p.bench ?? head.bench ?? "";
  return [...fact(bench ? "Compared" : "From", ...breakable(p.npu ?? head.npu ?? "")), ...bench ? fact("with", ...breakable(bench)) : [],
    ...fact("By " + p.mode, counts()), ...p.error ? fact("Error", p.error) : []];
}

// A page made from a table has no bench, and a table alone does not tell.
function inputsFact(inputs: string): Node[] {
  const bench = head.pairs[view.pair].bench ?? head.bench;
  return inputs in INPUTS || bench ? fact("Its inputs", INPUTS[inputs] ?? "could not all be compared") : [];
}

function suspectFacts(): Node[] {
  const s = head.pairs[view.pair].suspect;
  if (!s) return [];
  const both = ([a, b]: string[]) => a === b || !b ? a : `${a} against ${b}`;
  return [...fact("Suspect", h("b", null, callLink(s.call, s.name)), quiet(` ${both(s.dtype)} ${both(s.shape)}`)),
    ...s.worst ? fact("Worst element", `[${s.worst.index.join(", ")}]: NPU ${s.worst.npu}, bench ${s.worst.bench}`) : [],
    ...inputsFact(s.inputs), ...s.argument ? fact("Arguments", s.argument) : []];
}

// What is to be known beside it: the next suspects, where the runs part at all, what has no partner.
function otherFacts(): Node[] {
  const p = head.pairs[view.pair], out: Node[] = [];
  for (const t of p.then ?? []) out.push(...fact("Then", callLink(t.call), " ", quiet(...prose(t.reason))));
  if (now.part && now.part.number === view.pair) {
    const q = now.part, differs = q.error.findIndex(e => e > 0), alone = q.verdict.indexOf(Verdict.Unmatched);
    if (differs >= 0 && q.names[differs] !== p.suspect?.call)
      out.push(...fact("Differs first", callLink(q.names[differs]), quiet(` by ${short(q.error[differs])}`)));
    if (alone >= 0)
      out.push(...fact("First unmatched", callLink(q.names[alone]), quiet(" has no partner, or one of another shape")));
  }
  for (const note of p.notes ?? []) out.push(...fact("Note", ...prose(note)));
  return out;
}

export function drawFirst() {
  const s = head.pairs[view.pair].suspect, v = head.verdict, [name, rest] = headline(head), other = otherFacts();
  fill(firstScreen,
    h("h1", { class: v.level }, h("span", { class: "seal", "aria-hidden": "true" }, SEALS[v.level] ?? "?"),
      h("span", null, ...breakable(name).flatMap(n => typeof n === "string" ? prose(n) : [n]), rest ? h("small", null, ...prose(rest)) : null)),
    h("div", { class: s ? "cols" : "" }, h("dl", null, ...comparedFacts(), ...suspectFacts()),
      s ? h("div", null, h("h2", null, "Called at"), stackView(tellingFrames(s.stack), 3)) : null),
    errorsBox, other.length ? h("dl", { class: "other" }, ...other) : null);
}

// Inputs as they stand, then outputs; of many rows those that are wrong.
function chooseRows(call: number, most: number): number[] {
  const p = now.part!, all = Array.from({ length: p.rows[call] }, (_, i) => p.first[call] + i);
  if (all.length <= most) return all;
  const wrong = all.filter(i => p.rowVerdict[i] === Verdict.Wrong);
  return [...all.filter(i => p.rowVerdict[i] !== Verdict.Wrong).slice(0, Math.max(2, most - wrong.length)), ...wrong.slice(0, most)].sort((a, b) => a - b);
}

// The errors of the first wrong call's inputs and outputs, as a small table.
export async function drawErrors() {
  const s = head.pairs[view.pair].suspect, call = s && now.part ? now.part.byName.get(s.call) : undefined;
  if (call === undefined || !now.part) return fill(errorsBox);
  const p = now.part, rows = await p.rowsAt(chooseRows(call, 6)), left = p.rows[call] - rows.length;
  const titles = p.columns.filter(t => METRICS.has(t)).slice(0, 8);
  const line = (r: At) => {
    const get = cellsOf(p, r), plain = plainValue(get);
    return h("tr", null, h("td", null, mark(p.rowVerdict[r.index], p.rowMarks[r.index]), " ", p.texts[r.rows.name[r.at]]),
      ...plain !== null ? [h("td", { colspan: titles.length, class: "quiet" }, plain)] : titles.map(t => h("td", { class: "n" }, num(get(t)))));
  };
  fill(errorsBox, h("table", null, h("tr", null, h("th", null, "Its inputs and outputs"), ...titles.map(t => h("th", { class: "n" }, t))),
    ...rows.map(line)), left > 0 ? h("p", { class: "message" }, "and ", h("a", { href: link(s!.call), onclick: () => act.select(call) },
    `${count(left)} more, below`)) : null);
}
