// Draws the heat map: one cell for each runtime, in its group. Each class of cells has a colour and a shape.
const classBits = 7, paused = 8, silent = 16, filtered = 32;
const labelHeight = 18, gap = 14;

/** Returns the map of an element, or the map before if it is the same element. */
export function heatMap(element, before) {
  if (!element) return null;
  if (before && before.element === element) return before;
  if (before) before.stop();
  return new HeatMap(element);
}

class HeatMap {
  constructor(element) {
    this.element = element;
    this.canvas = element.querySelector("canvas");
    this.tip = element.querySelector(".tip");
    this.at = -1;
    this.missed = 0; // the last revision of a change that came before the first data
    const dark = matchMedia("(prefers-color-scheme: dark)");
    this.redraw = () => this.draw();
    dark.addEventListener("change", this.redraw);
    this.sized = new ResizeObserver(() => { this.layout(); this.draw(); });
    this.stop = () => { dark.removeEventListener("change", this.redraw); this.sized.disconnect(); };
    this.canvas.addEventListener("pointermove", (e) => this.point(this.under(e.offsetX, e.offsetY)));
    this.canvas.addEventListener("pointerleave", () => this.point(-1));
    this.canvas.addEventListener("blur", () => this.point(-1));
    this.canvas.addEventListener("click", (e) => this.open(this.under(e.offsetX, e.offsetY)));
    this.canvas.addEventListener("keydown", (e) => this.key(e));
    this.load();
  }

  async load() {
    const answer = await fetch(this.element.dataset.src);
    if (!answer.ok) return;
    this.read(new Uint8Array(await answer.arrayBuffer()));
    if (this.revision < this.missed) {
      this.missed = 0;
      await this.load();
      return;
    }
    this.element.hidden = this.names.length === 0;
    this.layout();
    this.draw();
    performance.mark("heat-map"); // for measurements
    this.sized.observe(this.element);
  }

  // read takes the data apart: a line with the numbers; the classes; the groups; the names; three bytes for each.
  read(data) {
    const text = new TextDecoder();
    let from = 0;
    const line = () => {
      const end = data.indexOf(10, from);
      const is = text.decode(data.subarray(from, end));
      from = end + 1;
      return is;
    };
    const [revision, runtimes, groups, classes] = line().split(" ").map(Number);
    this.revision = revision;
    this.classes = Array.from({ length: classes }, line).map((text) => {
      const [shape, tint, ...name] = text.split(" ");
      return { shape, tint, name: name.join(" ") };
    });
    this.groups = Array.from({ length: groups }, line);
    this.names = Array.from({ length: runtimes }, line);
    this.cells = new Uint8Array(runtimes);
    this.of = new Uint16Array(runtimes);
    for (let i = 0; i < runtimes; i++, from += 3) {
      this.cells[i] = data[from];
      this.of[i] = data[from + 1] | data[from + 2] << 8;
    }
  }

  // change takes an event. The states of one module are not in events, nor what a filter accepts.
  change(event) {
    if (!this.cells) { this.missed = event.revision; return; }
    if (event.revision <= this.revision && !event.all) return; // another server process counts revisions from 1
    const isPlain = !/[?&](name|selector|state|module|channel|version|reason|colour)=/.test(this.element.dataset.src);
    if (event.all || !event.cells || !isPlain) { this.load(); return; }
    for (const [i, cell] of Object.entries(event.cells)) this.cells[i] = cell;
    this.revision = event.revision;
    this.draw();
  }

  layout() {
    if (!this.names) return;
    const width = this.element.clientWidth, n = this.names.length;
    if (!width) return;
    const members = this.groups.map(() => []);
    for (let i = 0; i < n; i++) members[this.of[i]].push(i);
    this.size = Math.max(6, Math.min(22, Math.floor(Math.sqrt(width * 380 / (n + 1)))));
    this.place = new Array(n);
    this.labels = [];
    // groups of similar size fill the width side by side
    const largest = Math.max(...members.map((all) => all.length));
    const beside = Math.max(1, Math.round(width / (Math.sqrt(largest * 1.8) * this.size + gap)));
    const widest = Math.floor((width - gap * (beside - 1)) / beside / this.size);
    let x = 0, y = 0, rowHeight = 0;
    members.forEach((all, g) => {
      const label = `${this.groups[g]}  ${all.length.toLocaleString("en")}`;
      const max = Math.floor(width / this.size);
      let columns = all.length > largest / 2 ? widest : Math.min(widest, Math.ceil(Math.sqrt(all.length * 2.6)));
      columns = Math.min(max, Math.max(columns, Math.ceil(label.length * 7 / this.size)));
      if (x > 0 && x + columns * this.size > width) { x = 0; y += rowHeight + gap; rowHeight = 0; }
      this.labels.push([label, x, y + 12]);
      all.forEach((i, k) => {
        this.place[i] = [x + k % columns * this.size, y + labelHeight + Math.floor(k / columns) * this.size];
      });
      rowHeight = Math.max(rowHeight, labelHeight + Math.ceil(all.length / columns) * this.size);
      x += columns * this.size + gap;
    });
    this.height = y + rowHeight + 2;
    this.width = width;
    const scale = devicePixelRatio || 1;
    this.canvas.width = width * scale;
    this.canvas.height = this.height * scale;
    this.canvas.style.height = this.height + "px";
  }

  draw() {
    if (!this.place) return;
    const c = this.canvas.getContext("2d"), scale = devicePixelRatio || 1, style = getComputedStyle(this.element);
    const colour = (name) => style.getPropertyValue("--" + name).trim();
    for (const is of this.classes) is.colour = colour(is.tint);
    c.setTransform(scale, 0, 0, scale, 0, 0);
    c.clearRect(0, 0, this.width, this.height);
    c.font = "12px " + style.fontFamily;
    c.fillStyle = colour("soft");
    for (const [text, x, y] of this.labels) c.fillText(text, x, y);
    const inner = this.size - (this.size > 8 ? 2 : 1);
    this.place.forEach(([x, y], i) => shape(c, this.cells[i], x, y, inner, this.classes, colour("ground")));
    if (this.at >= 0) {
      const [x, y] = this.place[this.at];
      c.strokeStyle = colour("text");
      c.lineWidth = 2;
      c.strokeRect(x - 1.5, y - 1.5, inner + 3, inner + 3);
    }
  }

  under(x, y) {
    return this.place ? this.place.findIndex(([a, b]) => x >= a && x < a + this.size && y >= b && y < b + this.size) : -1;
  }

  point(i) {
    if (i === this.at) return;
    this.at = i;
    this.draw();
    if (this.tip.hidden = i < 0) return;
    const cell = this.cells[i];
    this.tip.textContent = [this.names[i], this.classes[cell & classBits]?.name ?? "does not have the module", cell & paused && "paused",
      cell & silent && "agent not connected"].filter(Boolean).join(" · ");
    const [x, y] = this.place[i];
    this.tip.style.left = Math.min(x, this.width - 180) + "px";
    this.tip.style.top = y + this.size + 6 + "px";
  }

  open(i) {
    if (i >= 0) location.href = "/runtimes/" + encodeURIComponent(this.names[i]);
  }

  key(e) {
    const n = this.names?.length;
    if (!n) return;
    if (e.key === "Enter") return this.open(this.at);
    const [x, y] = this.place[Math.max(this.at, 0)];
    const next = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[e.key];
    if (!next) return;
    e.preventDefault();
    if (this.at < 0) return this.point(0);
    let best = -1, least = Infinity; // the closest cell in the direction
    this.place.forEach(([a, b], i) => {
      const along = (a - x) * next[0] + (b - y) * next[1], across = Math.abs((a - x) * next[1]) + Math.abs((b - y) * next[0]);
      if (along > 0 && along + 3 * across < least) [best, least] = [i, along + 3 * across];
    });
    if (best >= 0) this.point(best);
  }
}

function shape(c, cell, x, y, s, classes, ground) {
  const is = classes[cell & classBits] ?? { shape: "dot", colour: classes[classes.length - 1]?.colour ?? ground };
  c.globalAlpha = cell & filtered ? 0.12 : 1;
  c.fillStyle = c.strokeStyle = is.colour;
  c.beginPath();
  switch (is.shape) {
    case "square": c.fillRect(x, y, s, s); break;
    case "ring":
      c.lineWidth = Math.max(1.5, s / 5);
      c.arc(x + s / 2, y + s / 2, s / 2 - c.lineWidth / 2, 0, 7);
      c.stroke();
      break;
    case "triangle": c.moveTo(x + s / 2, y); c.lineTo(x + s, y + s); c.lineTo(x, y + s); c.fill(); break;
    case "cross":
      c.fillRect(x - 0.5, y - 0.5, s + 1, s + 1);
      if (s < 9) break;
      c.strokeStyle = ground;
      c.lineWidth = s / 8;
      c.moveTo(x + s * 0.28, y + s * 0.28); c.lineTo(x + s * 0.72, y + s * 0.72);
      c.moveTo(x + s * 0.72, y + s * 0.28); c.lineTo(x + s * 0.28, y + s * 0.72);
      c.stroke();
      break;
    case "corner": c.moveTo(x + s, y); c.lineTo(x + s, y + s); c.lineTo(x, y + s); c.fill(); break;
    case "outline": c.lineWidth = 1; c.strokeRect(x + 0.5, y + 0.5, s - 1, s - 1); break;
    default: c.arc(x + s / 2, y + s / 2, Math.max(1, s / 6), 0, 7); c.fill();
  }
  if (cell & paused && s >= 9) {
    c.fillStyle = ground;
    c.fillRect(x + s * 0.32, y + s * 0.25, s * 0.12, s * 0.5);
    c.fillRect(x + s * 0.56, y + s * 0.25, s * 0.12, s * 0.5);
  }
  c.globalAlpha = 1;
}
