// dom.ts - elements made from text that is never read as HTML, a list that draws only what is seen, numbers.

export type Child = Node | string | null | undefined | false;

export function h<K extends keyof HTMLElementTagNameMap>(tag: K, props: Record<string, unknown> | null,
                                                          ...children: (Child | Child[])[]): HTMLElementTagNameMap[K] {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(props ?? {})) {
    if (v === undefined || v === null || v === false) continue;
    if (k.startsWith("on")) e.addEventListener(k.slice(2), v as EventListener);
    else e.setAttribute(k, v === true ? "" : String(v));
  }
  for (const c of children.flat()) if (c) e.append(c);
  return e;
}

export function fill(e: Element, ...children: (Child | Child[])[]) {
  e.replaceChildren(...(children.flat().filter(Boolean) as (Node | string)[]));
}

export function num(v: number | string): string {
  if (typeof v === "string") return v;
  if (Number.isNaN(v)) return "NaN";
  if (!Number.isFinite(v)) return v > 0 ? "inf" : "-inf";
  if (Number.isInteger(v) && Math.abs(v) < 1e9) return String(v);
  const a = Math.abs(v);
  return a >= 1e6 || a < 1e-4 ? exponent(v, 4) : String(+v.toPrecision(8));
}

// As the command writes it: 2.5e-07.
const exponent = (v: number, digits: number) => v.toExponential(digits).replace(/e([-+])(\d)$/, "e$10$2");

export function short(v: number): string {
  if (v < 0) return "–";
  if (v === Infinity) return "NaN/inf";
  return v === 0 ? "0" : v >= 1000 || v < 0.001 ? exponent(v, 1) : String(+v.toPrecision(3));
}

// Into the clipboard; a page from disk may have to do it by hand.
export function copy(text: string, button: HTMLElement) {
  const before = button.textContent, done = () => { button.textContent = "Copied"; setTimeout(() => { button.textContent = before; }, 1200); };
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

export const count = (n: number) => n.toLocaleString("en");

// A list of any length: only the lines that are seen exist. Browsers limit an element's height, so very long lists
// are scrolled in proportion.
export class List {
  readonly root: HTMLElement;
  private space = h("div", { class: "space" });
  private lines = h("div", { class: "lines" });
  private n = 0;
  private asked = false;
  private from = 0;
  private to = 0;
  constructor(private height: number, private line: (i: number) => HTMLElement, label: string) {
    this.root = h("div", { class: "list", tabindex: 0, role: "listbox", "aria-label": label }, this.space, this.lines);
    this.root.addEventListener("scroll", () => this.ask());
    new ResizeObserver(() => this.ask()).observe(this.root);
  }
  private get full() { return this.n * this.height; }
  private get spaceHeight() { return Math.min(this.full, 12e6); }
  private get top() {
    const free = this.spaceHeight - this.root.clientHeight;
    return free <= 0 || this.full <= 12e6 ? this.root.scrollTop
      : this.root.scrollTop / free * (this.full - this.root.clientHeight);
  }
  set(n: number) {
    this.n = n;
    this.space.style.height = this.spaceHeight + "px";
    this.draw();
  }
  ask() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => { this.asked = false; this.draw(false); });
  }
  draw(always = true) {
    const top = this.top, from = Math.max(0, Math.floor(top / this.height) - 4);
    const to = Math.min(this.n, from + Math.ceil(this.root.clientHeight / this.height) + 9);
    if (!always && from === this.from && to === this.to && this.full <= 12e6) return;
    this.from = from;
    this.to = to;
    const out: HTMLElement[] = [];
    for (let i = from; i < to; i++) out.push(this.line(i));
    this.lines.style.transform = `translateY(${this.root.scrollTop - top + from * this.height}px)`;
    fill(this.lines, out);
  }
  show(i: number) {
    const y = i * this.height, view = this.root.clientHeight, top = this.top;
    if (y < top || y + this.height > top + view) {
      const want = Math.max(0, y - view / 3);
      this.root.scrollTop = this.full <= 12e6 ? want
        : want / (this.full - view) * (this.spaceHeight - view);
    }
    this.draw();
  }
}

export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

export function canvas(width: number, height: number, label: string): [HTMLCanvasElement, CanvasRenderingContext2D] {
  const scale = window.devicePixelRatio || 1;
  const c = h("canvas", { role: "img", "aria-label": label });
  c.width = Math.round(width * scale);
  c.height = Math.round(height * scale);
  c.style.width = width + "px";
  c.style.height = height + "px";
  const g = c.getContext("2d")!;
  g.scale(scale, scale);
  g.font = "11px system-ui, sans-serif";
  return [c, g];
}
