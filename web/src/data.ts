// data.ts - the blocks of the page (src/report/write/page.h describes them), unpacked when they are asked for.

// Debian's TypeScript is older than what browsers have.
declare class DecompressionStream { constructor(format: string); readonly readable: ReadableStream; readonly writable: WritableStream }

export const CHUNK = 8192;
const CACHED = 64; // chunks that stay unpacked, some 70 MB: more than a window shows lines of
export const enum Verdict { NotJudged, Fine, Unmatched, Inherited, Wrong }
export const MARK = { nonfinite: 1, output: 2, red: 4, yellow: 8, limit: 16, noRows: 64 };

export interface Suspect {
  name: string; bench_name: string; call: string; verdict: string; message: string; inputs: string;
  argument?: string; stack: string[]; dtype: string[]; shape: string[];
  worst?: { index: number[]; npu: string; bench: string };
}
export interface PairHead {
  label: string; step: number; rank: number; npu?: string; bench?: string; mode: string; error?: string;
  counts: Record<string, number>; bins?: number[]; calls?: number; shown_rows?: number; suspect?: Suspect;
  sentence?: string; notes?: string[]; then?: { call: string; reason: string }[];
  files: string[];
}
export interface Head {
  format: number; npu: string; bench: string; pairs: PairHead[];
  verdict: { level: string; text: string; pair: number; wrong: number };
}
export interface Elements {
  row: number; count: number; equal: number; mismatches: number; hist: number[];
  mag: [number, number, number][]; map_size: number[]; map: number[];
  worst: [number[], string, string, number][];
}

export function readHead(): Head {
  return JSON.parse(document.getElementById("head")!.textContent!);
}

async function unpack(text: string): Promise<Uint8Array> {
  const binary = atob(text), bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Byte planes back to values of `size` bytes.
function planes(bytes: Uint8Array, at: number, n: number, size: number): ArrayBuffer {
  const out = new Uint8Array(n * size);
  for (let b = 0; b < size; b++)
    for (let i = 0, from = at + b * n; i < n; i++) out[i * size + b] = bytes[from + i];
  return out.buffer;
}

export interface Column { kind: string; of?: [number, number]; ids?: Uint32Array; values?: Float64Array; words?: Uint32Array }
export interface Rows { call: Uint32Array; name: Uint32Array; columns: Column[]; count: number }
// A row where it stands: in a chunk, and its number among all.
export interface At { rows: Rows; at: number; index: number }
// What the tool measured of a result, see msp_verdict_result.
export interface Result {
  ratio: number; local: number; localBench: number; inherited: number; diffIn: number; diffOut: number; expected: number; text: string;
}

const BOX = 0x7ff80001;

// A column that was written against what two others let expect.
function resolve(c: Column, columns: Column[], n: number) {
  const x = columns[c.of![0]].values!, y = columns[c.of![1]].values!;
  const guess = new Float64Array(1), bits = new Uint32Array(guess.buffer);
  for (let i = 0; i < n; i++) {
    const v = c.kind === "b" ? x[i] : c.kind === "d" ? x[i] - y[i] : Math.abs((x[i] - y[i]) / y[i] * 100);
    guess[0] = Number.isFinite(v) ? v : 0;
    c.words![2 * i] ^= bits[0];
    c.words![2 * i + 1] ^= bits[1];
  }
}

export class Part {
  first!: Uint32Array; rows!: Uint32Array; error!: Float32Array; inputError!: Float32Array; stack!: Uint32Array;
  parent!: Int32Array; verdict!: Uint8Array; marks!: Uint8Array;
  rowVerdict!: Uint8Array; rowMarks!: Uint8Array;
  names: string[] = []; nodeNames: string[] = []; nodeParents: number[] = [];
  percent: boolean[] = [];
  columns: string[] = []; texts: string[] = []; stacks: string[] = []; edges = new Uint32Array(0);
  elements = new Map<number, Elements>();
  byName = new Map<string, number>();
  rowCount = 0;
  private chunks = new Map<number, Promise<Rows>>(); // the one that was used last stands last
  private ready = new Map<number, Rows>();
  private resultOf = new Map<number, number>();
  private resultFields: Float32Array[] = [];
  private resultTexts = new Uint32Array(0);
  private blocks = new Map<string, Element>();

  private constructor(readonly number: number) {}

  static async load(number: number): Promise<Part | null> {
    const holder = document.querySelector(`div[data-part="${number}"]`);
    if (!holder) return null;
    const p = new Part(number);
    for (const e of Array.from(holder.children)) p.blocks.set(e.getAttribute("data-block")!, e);
    const [calls, names, nodes] = await Promise.all([p.bytes("calls"), p.json<string[]>("names"),
      p.json<{ names: string[]; parents: number[] }>("nodes")]);
    const n = names.length;
    let at = 0;
    const take = (size: number) => { const v = planes(calls, at, n, size); at += n * size; return v; };
    p.first = new Uint32Array(take(4));
    p.rows = new Uint32Array(take(4));
    p.error = new Float32Array(take(4));
    p.inputError = new Float32Array(take(4));
    p.stack = new Uint32Array(take(4));
    p.parent = new Int32Array(take(4));
    p.verdict = new Uint8Array(take(1));
    p.marks = new Uint8Array(take(1));
    p.names = names;
    p.nodeNames = nodes.names;
    p.nodeParents = nodes.parents;
    for (let i = n - 1; i >= 0; i--) p.byName.set(names[i], i);
    for (let i = 0; i < n; i++) p.rowCount += p.rows[i];
    const [judged, results, columns, texts, stacks, edges, elements, percent] = await Promise.all([p.bytes("judged"), p.bytes("results"),
      p.json<string[]>("columns"),
      p.json<string[]>("texts"), p.json<string[]>("stacks"), p.bytes("edges"), p.json<Elements[]>("elements"),
      p.json<boolean[]>("percent")]);
    p.rowVerdict = judged.subarray(0, p.rowCount);
    p.rowMarks = judged.subarray(p.rowCount);
    p.takeResults(results);
    p.percent = percent;
    p.columns = columns;
    p.texts = texts;
    p.stacks = stacks;
    p.edges = new Uint32Array(edges.buffer, 0, edges.length >> 2);
    for (const e of elements ?? []) p.elements.set(e.row, e);
    return p;
  }

  private bytes(name: string): Promise<Uint8Array> {
    const e = this.blocks.get(name);
    return e ? unpack(e.textContent!) : Promise.resolve(new Uint8Array(0));
  }

  private async json<T>(name: string): Promise<T> {
    const b = await this.bytes(name);
    return b.length ? JSON.parse(new TextDecoder().decode(b)) : ([] as unknown as T);
  }

  private takeResults(b: Uint8Array) {
    const n = b.length / 36, rows = new Uint32Array(planes(b, 0, n, 4));
    rows.forEach((row, i) => this.resultOf.set(row, i));
    for (let k = 1; k <= 7; k++) this.resultFields.push(new Float32Array(planes(b, 4 * n * k, n, 4)));
    this.resultTexts = new Uint32Array(planes(b, 32 * n, n, 4));
  }

  result(row: number): Result | null {
    const i = this.resultOf.get(row);
    if (i === undefined) return null;
    const [ratio, local, localBench, inherited, diffIn, diffOut, expected] = this.resultFields.map(f => f[i]);
    return { ratio, local, localBench, inherited, diffIn, diffOut, expected, text: this.texts[this.resultTexts[i]] };
  }

  // Is the verdict the tool's own? Otherwise it is that of the table's limits.
  get own() { return this.resultOf.size > 0; }

  // The largest ratio of a call's results: how many times as far off as it may be.
  excess(call: number): number {
    let most = -1;
    for (let row = this.first[call]; row < this.first[call] + this.rows[call]; row++) {
      const i = this.resultOf.get(row);
      if (i !== undefined && this.resultFields[0][i] > most) most = this.resultFields[0][i];
    }
    return most;
  }

  chunk(k: number): Promise<Rows> {
    const c = this.chunks.get(k) ?? this.unpackRows(k).then(r => { if (this.chunks.has(k)) this.ready.set(k, r); return r; });
    this.chunks.delete(k);
    this.chunks.set(k, c);
    for (const old of this.chunks.keys()) {
      if (this.chunks.size <= CACHED) break;
      this.chunks.delete(old);
      this.ready.delete(old);
    }
    return c;
  }

  // The chunk if it is unpacked already.
  chunkNow(k: number): Rows | undefined { return this.ready.get(k); }

  private async unpackRows(k: number): Promise<Rows> {
    const b = await this.bytes("rows" + k), n = Math.min(CHUNK, this.rowCount - k * CHUNK);
    let at = 0;
    const u32 = () => { const v = new Uint32Array(planes(b, at, n, 4)); at += 4 * n; return v; };
    const call = u32(), name = u32();
    const columns: Column[] = [];
    while (at < b.length) {
      const kind = String.fromCharCode(b[at++]);
      const of: [number, number] | undefined = "bdr".includes(kind) ? [b[at++], b[at++]] : undefined;
      if (kind === "t") columns.push({ kind, ids: u32() });
      else {
        const buffer = planes(b, at, n, 8);
        at += 8 * n;
        columns.push({ kind, of, values: new Float64Array(buffer), words: new Uint32Array(buffer) });
      }
    }
    for (const kind of "bdr") for (const c of columns) if (c.kind === kind) resolve(c, columns, n);
    return { call, name, columns, count: n };
  }

  // A cell as a number, or as text.
  cell(r: Rows, column: number, i: number): number | string {
    const c = r.columns[column];
    if (!c) return "";
    if (c.kind === "t") return this.texts[c.ids![i]];
    if (c.kind === "x" && c.words![2 * i + 1] === BOX) return this.texts[c.words![2 * i]];
    return c.values![i];
  }

  // As the table shows it: with its percent sign.
  show(r: Rows, column: number, i: number): number | string {
    const v = this.cell(r, column, i);
    return this.percent[column] && typeof v === "number" ? +v.toPrecision(6) + "%" : v;
  }

  async rowsAt(indexes: number[]): Promise<At[]> {
    const out = [];
    for (const index of indexes) out.push({ rows: await this.chunk(Math.floor(index / CHUNK)), at: index % CHUNK, index });
    return out;
  }

  // Nobody calls a gradient: what is told is where its forward call was made.
  frames(call: number): string[] {
    const own = JSON.parse(this.stacks[this.stack[call]] || "[]") as string[];
    const forward = own.length ? undefined : this.byName.get(this.names[call].replace(/\.backward(?=\.|$)/, ".forward"));
    return forward === undefined || forward === call ? own : JSON.parse(this.stacks[this.stack[forward]] || "[]");
  }
}
