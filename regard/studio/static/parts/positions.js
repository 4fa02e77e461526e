/* Sinusoidal positions as a picture: a row for each place, a column for each dimension; pointing draws the column as a wave. */
import { colorOf, drawn } from "./colors.js";
import { section, slider } from "./controls.js";
import { h, show, svg } from "./dom.js";
import { number } from "./numbers.js";
import { product, sinusoids, transposed } from "./toy.js";
import { place } from "../figures/heatmap.js";

export class Positions {
  constructor(go) {
    this.go = go;
    this.many = slider({ label: "Positions", min: 4, max: 128, step: 4, value: 48, change: many => go({ many }, { replace: true }) });
    this.wide = slider({ label: "Dimensions", min: 4, max: 128, step: 4, value: 64, change: wide => go({ wide }, { replace: true }) });
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.box = h("div", {
      class: "pixels", tabindex: "0", role: "application", "aria-roledescription": "map", "aria-label": "Positions; arrow keys move",
      onpointermove: event => this.at(...place(event, this.box, this.table.length, this.table[0].length)), onkeydown: event => this.move(event), onfocus: () => this.at(...this.cursor),
    }, this.canvas);
    this.told = h("p", { class: "told-line", role: "status" });
    this.wave = h("div", { class: "wave" });
    this.alike = h("canvas", { "aria-hidden": "true" });
    this.cursor = [1, 0];
    this.element = h("div", {}, h("div", { class: "row" }, this.many, this.wide),
      section("Where a token stands, as sines and cosines", h("p", { class: "formula" }, h("code", {}, "PE(p, 2i)   = sin(p / 10000^(2i/D))\nPE(p, 2i+1) = cos(p / 10000^(2i/D))")),
        h("p", {}, "Attention does not know what comes first. A Transformer adds the row of its place to each token: fast waves on the left, slow ones on the right, like the hands of many clocks."),
        this.told, h("div", { class: "positions" }, this.box, this.wave),
        h("p", { class: "legend" }, "−1 ", h("span", { class: "ramp signed" }), " 1 · rows are places, columns are dimensions")),
      section("How alike two places are", h("p", {}, "The product of two rows depends only on how far apart they are: the same bands everywhere along the diagonal."), h("div", { class: "pixels square" }, this.alike)));
  }

  update(query) {
    const many = Math.min(128, Math.max(4, Number(query.many ?? 48))), wide = Math.min(128, Math.max(4, Number(query.wide ?? 64)));
    if (document.activeElement !== this.many.input) this.many.set(many);
    if (document.activeElement !== this.wide.input) this.wide.set(wide);
    this.table = sinusoids(many, wide);
    this.cursor = [Math.min(this.cursor[0], many - 1), Math.min(this.cursor[1], wide - 1)];
    const alike = product(this.table, transposed(this.table)).map(row => row.map(value => value / (wide / 2)));
    drawn(this.canvas, () => paintSigned(this.canvas, this.table));
    drawn(this.alike, () => paintSigned(this.alike, alike));
    this.at(...this.cursor);
  }

  at(p, d) {
    this.cursor = [p, d];
    const name = d % 2 ? "cos" : "sin", turn = 2 * Math.PI * 10000 ** (2 * Math.floor(d / 2) / this.table[0].length);
    show(this.told, `place ${p}, dimension ${d}: `, h("b", {}, number(this.table[p][d])), ` · ${name}, once around in ${number(turn, 1)} places`);
    show(this.wave, waveOf(this.table.map(row => row[d]), p));
  }

  move(event) {
    const [p, d] = this.cursor, by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!by) return;
    event.preventDefault();
    const limit = (value, most) => Math.max(0, Math.min(most - 1, value));
    this.at(limit(p + by[0], this.table.length), limit(d + by[1], this.table[0].length));
  }
}

function paintSigned(canvas, values) {
  canvas.width = values[0].length;
  canvas.height = values.length;
  const context = canvas.getContext("2d"), image = context.createImageData(canvas.width, canvas.height);
  values.flat().forEach((value, i) => image.data.set([...colorOf(value, "signed"), 255], 4 * i));
  context.putImageData(image, 0, 0);
}

function waveOf(values, here) {
  const x = i => 8 + i * 284 / (values.length - 1), y = value => 60 - 48 * value;
  return svg("svg", { viewBox: "0 0 300 120", role: "img", "aria-label": "This dimension over all places" },
    svg("path", { class: "axis", d: "M8 60H292" }), svg("path", { class: "line", d: values.map((value, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`).join("") }),
    svg("circle", { cx: x(here), cy: y(values[here]), r: 4.5 }));
}
