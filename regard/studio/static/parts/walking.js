/* The toy on the page: matrices to type in, everything that follows from them, and how each number comes about. */
import { showCall } from "./call.js";
import { segments, slider } from "./controls.js";
import { h, show } from "./dom.js";
import { Matrix } from "./matrix.js";
import { number } from "./numbers.js";
import { saving } from "./saving.js";
import { EXAMPLES, computed, numbersOf, toyOf } from "./toy.js";

/* How a number of each result is made: which row of what with which column of what. */
const MADE = {
  Q: ["x", "q", "x · W_q"], K: ["x", "k", "x · W_k"], V: ["x", "v", "x · W_v"], scores: ["Q", "K", "Q · Kᵀ"], output: ["weights", "V", "weights · V"],
};

export class Toy {
  constructor(go) {
    this.go = go;
    this.head = h("div");
    this.stage = h("div", { class: "toy" });
    this.why = h("p", { class: "told-line", role: "status" });
    this.knobs = h("div", { class: "row" });
    const file = "numbers.json", lines = ["from regard.look.walk.given import read_numbers", "from regard.look.walk.examples import walk_of", "", `print(walk_of(read_numbers("${file}"), None).text())`];
    const calls = h("div", { class: "taken-along" }, saving("the numbers", [["JSON", file, () => JSON.stringify(numbersOf(this.toy), null, 1)]]), showCall({ command: `regard walk --from ${file}`, lines }));
    this.element = h("div", {}, this.head, this.knobs, this.why, this.stage, calls);
  }

  update(query) {
    const start = EXAMPLES[query.start] ? query.start : "worked";
    this.query = { start, edits: query.edits ?? "", mask: query.mask === undefined ? null : query.mask.replace("none", ""), scale: query.scale ?? null, temperature: query.t ?? null };
    this.toy = toyOf(this.query);
    if (start !== this.built) this.build(start);
    this.draw();
  }

  change(changes) {
    this.go(changes, { replace: true });
  }

  build(start) {
    this.built = start;
    const { tokens, about, scores } = EXAMPLES[start], width = EXAMPLES[start].q?.[0].length;
    const choices = Object.entries(EXAMPLES).map(([name, example]) => [name, example.title]);
    show(this.head, segments("Example", choices, start, name => this.go({ start: name, edits: null, mask: null, scale: null, t: null })),
      h("p", {}, about, " ", h("button", { type: "button", class: "link", onclick: () => this.go({ edits: null, mask: null, scale: null, t: null }) }, "Begin anew")));
    const root = Math.sqrt(width ?? 64);
    this.scale = slider({ label: "Divide scores by", min: 1, max: scores ? 32 : 4, step: 0.01, value: this.toy.scale, tell: value => number(value, 2) + (width && Math.abs(value - root) < 0.006 ? ` = √${width}` : ""), change: value => this.change({ scale: value }) });
    this.heat = slider({ label: "Temperature", min: 0.1, max: 5, step: 0.1, value: this.toy.temperature, tell: value => value.toFixed(1), change: value => this.change({ t: value }) });
    const half = h("button", { type: "button", onclick: () => this.change({ scale: root }) }, width ? `√${width}, as the paper does` : "√64");
    const ahead = h("button", { type: "button", onclick: () => this.change({ mask: this.later() }) }, "Mask what comes later");
    const free = h("button", { type: "button", onclick: () => this.change({ mask: "none" }) }, "No mask");
    show(this.knobs, this.scale, half, this.heat, ahead, free);
    this.matrices = this.makeMatrices(tokens, Boolean(scores));
    show(this.stage, this.rows(Boolean(scores)));
    this.rest();
  }

  later() {
    const size = this.toy.tokens.length, found = [];
    for (let i = 0; i < size; i += 1) for (let j = i + 1; j < size; j += 1) found.push(`${i}-${j}`);
    return found.join("_");
  }

  makeMatrices(tokens, given) {
    const input = (name, label, rows = []) => new Matrix({ name: label, rows, least: 4, edit: (i, j, value) => this.edit(name, i, j, value), point: i => i === null && this.rest() });
    const result = (name, label, options = {}) => new Matrix({ name: label, rows: tokens, point: (i, j) => this.explain(name, i, j), ...options });
    const square = { columns: tokens };
    const common = {
      masked: result("masked", "scaled, and masked: press a cell", { ...square, press: (i, j) => this.press(i, j) }),
      weights: result("weights", "weights = softmax of each row", { ...square, kind: "weight" }),
    };
    if (given) return { scores: new Matrix({ name: "scores", rows: tokens, columns: tokens, edit: (i, j, value) => this.edit("scores", i, j, value) }), ...common };
    return {
      x: input("x", "x: one row a token", tokens), q: input("q", "W_q"), k: input("k", "W_k"), v: input("v", "W_v"),
      Q: result("Q", "Q = x W_q: what each asks"), K: result("K", "K = x W_k: what each offers"), V: result("V", "V = x W_v: what each says"),
      scores: result("scores", "scores = Q Kᵀ", square), ...common, output: result("output", "output = weights V"),
    };
  }

  rows(given) {
    const { matrices } = this, line = (title, ...names) => h("section", { class: "toy-line" }, h("h3", {}, title), h("div", { class: "matrices" }, names.map(name => matrices[name].element)));
    if (given) return [line("Scores, to change", "scores"), line("What each query may see, and sees", "masked", "weights")];
    return [line("Type in any of these", "x", "q", "k", "v"), line("Each token asks, offers and says", "Q", "K", "V"),
      line("How well each question meets each offer", "scores", "masked"), line("Shares of attention, and what they bring", "weights", "output")];
  }

  /* --- A person's changes go into the URL, and everything downstream is computed again */

  edit(name, i, j, value) {
    const place = `${name}.${i}.${j}`, others = this.query.edits.split("_").filter(edit => edit && !edit.startsWith(`${place}:`));
    const same = EXAMPLES[this.query.start][name][i][j] === value;
    this.change({ edits: (same ? others : [...others, `${place}:${value}`]).join("_") });
  }

  press(i, j) {
    const mask = this.toy.mask.map(row => [...row]);
    mask[i][j] = !mask[i][j];
    const found = mask.flatMap((row, a) => row.flatMap((on, b) => on ? [`${a}-${b}`] : []));
    this.change({ mask: found.join("_") || "none" });
  }

  draw() {
    const found = computed(this.toy);
    this.found = { ...this.toy, ...found };
    for (const [name, matrix] of Object.entries(this.matrices)) {
      matrix.draw(name === "masked" ? found.masked : this.found[name], ["masked", "weights"].includes(name) ? this.toy.mask : null);
    }
    if (document.activeElement !== this.scale.input) this.scale.set(this.toy.scale);
    if (document.activeElement !== this.heat.input) this.heat.set(this.toy.temperature);
  }

  /* --- Where a number comes from */

  rest() {
    show(this.why, h("span", { class: "note" }, "Point at a number to see what it is made of. In a cell, Alt with ↑ or ↓ changes it by one."));
    for (const matrix of Object.values(this.matrices ?? {})) matrix.mark();
  }

  explain(name, i, j) {
    this.rest();
    if (i === null) return;
    const { matrices, found } = this;
    matrices[name].mark({ cells: [[i, j]] });
    if (name === "masked") return this.explainScaled(i, j);
    if (name === "weights") return this.explainWeight(i, j);
    const [left, right, words] = MADE[name], across = name === "scores";
    const a = found[left][i], b = across ? found[right][j] : found[right].map(row => row[j]);
    matrices[left].mark({ rows: [i] });
    matrices[right].mark(across ? { rows: [j] } : { columns: [j] });
    const terms = a.map((value, at) => `${bracket(value)} · ${bracket(b[at])}`).join(" + ");
    show(this.why, `${words}: ${terms} = `, h("b", {}, number(found[name][i][j])));
  }

  explainScaled(i, j) {
    const { found, toy, matrices } = this;
    matrices.scores.mark({ cells: [[i, j]] });
    if (toy.mask[i][j]) return show(this.why, `${toy.tokens[i]} must not see ${toy.tokens[j]}: its score becomes −∞, its weight 0. Press to let it.`);
    const hot = toy.temperature === 1 ? "" : ` / ${number(toy.temperature, 1)}`;
    return show(this.why, `${number(found.scores[i][j])} / ${number(toy.scale, 2)}${hot} = `, h("b", {}, number(found.masked[i][j])), ". Press to mask it.");
  }

  explainWeight(i, j) {
    const { found, matrices } = this;
    matrices.masked.mark({ rows: [i] });
    const total = found.masked[i].map(value => `e^${number(value, 2)}`).join(" + ");
    show(this.why, `e^${number(found.masked[i][j], 2)} / (${total}) = `, h("b", {}, number(found.weights[i][j])));
  }
}

function bracket(value) {
  return value < 0 ? `(${number(value)})` : number(value);
}
