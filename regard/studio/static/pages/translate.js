/* Translate: two boxes, what else the search found, where it looked, another word instead, a pinned word, the beam as a tree. */
import { Latest, post } from "../api.js";
import { bars } from "../parts/bars.js";
import { command, python, pythonLines, showCall } from "../parts/call.js";
import { choice, examples, field, heading, modelSelect, noModel, problemCard, section, select, slider, waiting } from "../parts/controls.js";
import { debounced, h, say, show } from "../parts/dom.js";
import { Looking } from "../parts/looking.js";
import { number, visible } from "../parts/numbers.js";
import { savingResult } from "../parts/saving.js";
import { TokenLine } from "../parts/tokens.js";
import { tree } from "../parts/tree.js";
import { go, numbers, pairs, written } from "../url.js";

const FRESH = { prefix: null, pins: null, pick: null, word: null, step: null }; // a new text has none of these yet
const BEAM = 5;

export function open(main, query, studio) {
  const { able, model } = choice(studio, ["translate"], query);
  const title = heading("Translate", "Write a text. See what the model writes, what else it thought of, and where it looked for each word.");
  if (!model) {
    show(main, title, noModel(studio, "translate"));
    return {};
  }
  const page = new Translate(main, studio, able);
  show(main, title, page.element);
  page.update(query);
  return page;
}

/* Lines of Python whose last one is said of the model with pinned words. */
function changed(lines, changes) {
  if (!changes) return lines;
  const pins = changes.map(({ role, layer, head, query, weights }) =>
    `regard.Pin(${[python(role), layer, head === undefined ? null : `head=${head}`, `row=${query}`, `weights=${Object.keys(weights)[0]}`].filter(each => each !== null && each !== undefined).join(", ")})`);
  return [...lines.slice(0, -1), `with regard.intervene(model, ${pins.join(", ")}):`, `    ${lines.at(-1)}`];
}

class Translate {
  constructor(main, studio, able) {
    Object.assign(this, { studio, able, latest: new Latest(), next: new Latest(), beam: new Latest() });
    const typed = debounced(() => go({ ...FRESH, text: this.box.value }, { replace: true }), 600);
    this.box = h("textarea", { rows: 4, dir: "auto", spellcheck: "false", oninput: typed, onkeydown: event => {
      if (event.key === "Enter" && !event.shiftKey) {
        event.preventDefault();
        go({ ...FRESH, text: this.box.value });
      }
    } });
    this.bar = h("div", { class: "row" });
    this.tries = h("div");
    this.out = h("div", { class: "written", "aria-live": "polite" });
    this.line = new TokenLine({ label: "Written tokens; choose one for what could stand there", choose: i => this.chooseWord(i), point: i => this.pointed(i) });
    this.word = h("div");
    this.best = h("div", { class: "others" });
    this.call = h("div");
    this.looking = new Looking({ go, choose: (row, column) => this.pin(row, column), onlook: () => this.drawLooked() });
    this.pins = h("div", { class: "pins" });
    this.look = section("Where it looked", this.pins, this.looking.element);
    this.search = section("How it searched", this.treePlace = h("div"));
    const source = h("div", { class: "card box" }, field("Text", this.box), this.tries);
    const target = h("div", { class: "card box" }, h("h2", { class: "small" }, "Translation"), this.out, this.word, this.best);
    this.element = h("div", {}, this.bar, h("div", { class: "pair" }, source, target), this.call, this.look, this.search);
  }

  update(query) {
    const { model } = choice(this.studio, ["translate"], query);
    Object.assign(this, { query, model, text: query.text ?? model.examples[0] ?? "", width: Number(query.beam ?? BEAM) });
    this.drawBar();
    if (this.box.value !== this.text && document.activeElement !== this.box) this.box.value = this.text;
    show(this.tries, examples(model.examples, text => { this.box.value = text; go({ ...FRESH, text }); }));
    return this.translate();
  }

  close() {
    for (const each of [this.latest, this.next, this.beam]) each.stop();
  }

  drawBar() {
    const state = `${this.model.name} ${this.width}`;
    if (this.barState === state) return;
    this.barState = state;
    if (this.bar.contains(document.activeElement) && document.activeElement.type === "range") return; // it is being dragged
    const beam = slider({ label: "Beam", min: 1, max: 8, value: this.width, change: debounced(beam => go({ beam: beam === BEAM ? null : beam, pick: null, step: null }, { replace: true }), 250) });
    show(this.bar, modelSelect(this.able, this.model, name => go({ ...FRESH, model: name, text: null, role: null, layer: null, head: null })), beam);
  }

  /* --- The request, and the same without pins to compare with */

  request() {
    const { query, model, text, width } = this;
    const changes = pairs(query.pins).map(([row, key, layer, head]) => ({ kind: "pin", role: "cross", layer, head, query: row, weights: { [key]: 1 } }));
    return {
      model: model.name, text, beam: width, n_best: Math.min(width, 5), prefix: query.prefix ? numbers(query.prefix) : undefined,
      changes: changes.length ? changes : undefined,
    };
  }

  async translate() {
    const request = this.request(), asked = JSON.stringify(request);
    if (!this.text.trim()) return show(this.out, h("p", { class: "note" }, "Write something on the left, or take an example."));
    if (asked === this.asked) return this.draw();
    this.asked = asked;
    const late = setTimeout(() => show(this.out, waiting("Translating")), 250);
    try {
      const found = await this.latest.run(async signal => {
        const result = await post("api/translate", request, signal);
        const before = request.changes ? await post("api/translate", { ...request, changes: undefined }, signal) : null;
        return { result, before };
      });
      if (!found) return undefined;
      Object.assign(this, found);
      say(`Translation: ${this.result.text}`);
      return this.draw();
    } catch (error) {
      this.asked = "";
      return show(this.out, problemCard(error));
    } finally {
      clearTimeout(late);
    }
  }

  get picked() {
    return [this.result, ...this.result.alternatives ?? []][Number(this.query.pick ?? 0)] ?? this.result;
  }

  draw() {
    const { query, picked } = this, fixed = numbers(query.prefix).length;
    const tokens = picked.tokens.map((label, i) => ({
      label, probability: Math.exp(picked.token_log_probabilities[i]), mark: i === fixed - 1 ? "your choice" : "",
    }));
    this.line.draw(tokens, query.word === undefined ? null : Number(query.word));
    show(this.out, h("p", { class: "text", dir: "auto" }, picked.text || "∅"), this.line.element,
      fixed > 0 && h("p", { class: "note" }, "It had to begin with your words. ", h("button", { type: "button", class: "link", onclick: () => go({ prefix: null, pick: null, word: null }) }, "Let it choose itself")));
    this.drawBest();
    this.drawCall();
    this.drawPins();
    this.drawWord();
    this.drawTree();
    const { changes } = this.request();
    this.looking.update({ model: this.model.name, text: this.text, written: picked.ids, changes }, query);
  }

  drawBest() {
    const all = [this.result, ...this.result.alternatives ?? []];
    if (all.length < 2) return show(this.best);
    const chosen = Number(this.query.pick ?? 0);
    return show(this.best, h("h3", {}, "What else it found"), h("p", { class: "note" }, "By score: the log-probability of the whole, divided by the length penalty."), h("ol", { class: "n-best" }, all.map((each, i) => h("li", {},
      h("button", { type: "button", "aria-pressed": i === chosen, onclick: () => go({ pick: i || null, word: null }) },
        h("span", { dir: "auto" }, each.text || "∅"), h("span", { class: "value" }, number(each.score)))))));
  }

  drawCall() {
    const { model, text, width, query } = this, request = this.request();
    const special = query.prefix || query.pins; // what no option of the command says
    const lines = pythonLines(model, "translate", [text], { beam: width === BEAM ? undefined : width, n_best: request.n_best > 1 ? request.n_best : undefined, prefix: request.prefix });
    show(this.call, savingResult("the translation", "translation", this.result), showCall({
      path: "api/translate", body: request, lines: changed(lines, request.changes),
      command: special ? null : command("regard", "translate", "-m", model.path ?? model.name, text, "--beam", String(width), "--n-best", String(request.n_best)),
    }));
  }

  /* --- Another word, and decoding on from there */

  chooseWord(i) {
    go({ word: String(i) === this.query.word ? null : i });
  }

  pointed(i) {
    if (this.looking.look?.role === "cross") this.looking.pointTarget(i);
  }

  async drawWord() {
    const { query, picked, model, text } = this;
    if (query.word === undefined || !picked.ids) return show(this.word);
    const place = Number(query.word), before = picked.ids.slice(0, place);
    if (place >= picked.ids.length) return show(this.word);
    try {
      const found = await this.next.run(signal => post("api/next", { model: model.name, text, prefix: before, count: 8 }, signal));
      if (!found) return undefined;
      const here = found.tokens.findIndex(token => token.id === picked.ids[place]);
      this.pinPlace = h("div");
      show(this.word, h("div", { class: "instead" }, h("h3", {}, "Instead of ", h("em", { dir: "auto" }, visible(picked.tokens[place]))),
        bars(found.tokens, { chosen: here, label: "What could stand here", choose: token => go({ prefix: [...before, token.id].join("."), pick: null, word: null, step: null }) }),
        this.pinPlace));
      return show(this.pinPlace, this.pinChoice(place));
    } catch (error) {
      return show(this.word, problemCard(error));
    }
  }

  /* What names source words, once they are known. */
  drawLooked() {
    this.drawPins();
    if (this.query.word !== undefined && this.pinPlace) show(this.pinPlace, this.pinChoice(Number(this.query.word)));
  }

  /* --- Pinning: the query that writes a word looks only where a person says */

  pinChoice(row) {
    const source = this.looking.look?.source;
    if (!source || this.looking.look.role !== "cross") return null;
    const options = [["", "where it wants"], ...source.map((label, key) => [key, `${key} · ${visible(label)}`])];
    const pinned = pairs(this.query.pins).find(pin => pin[0] === row);
    return field("While writing it, look only at", select(options, pinned?.[1] ?? "", key => key === "" ? this.unpin(row) : this.pin(row, Number(key))));
  }

  pin(row, key) {
    if (this.looking.look.role !== "cross") return;
    const others = pairs(this.query.pins).filter(pin => pin[0] !== row), place = this.looking.place.filter(each => each !== "mean");
    go({ pins: written([...others, [row, key, ...place]]), pick: null });
  }

  unpin(row) {
    go({ pins: written(pairs(this.query.pins).filter(pin => pin[0] !== row)) || null });
  }

  drawPins() {
    const pins = pairs(this.query.pins), look = this.looking.look;
    if (!pins.length && look && look.role !== "cross") return show(this.pins);
    if (!pins.length) return show(this.pins, h("p", { class: "note" }, "Choose a cell to pin it: the word of its row then looks only at the word of its column, and the sentence is written again."));
    const name = (list, i) => list?.[i] === undefined ? `place ${i}` : visible(list[i]);
    const same = this.before.text === this.result.text;
    return show(this.pins, h("ul", { class: "chips", "aria-label": "Pinned" }, pins.map(([row, key, layer, head]) => h("li", {},
      h("button", { type: "button", class: "chip", "aria-label": `Unpin word ${row}`, onclick: () => this.unpin(row) },
        `word ${row} reads only `, h("em", {}, name(look?.source, key)), layer === undefined ? "" : ` in layer ${layer}${head === undefined ? "" : `, head ${head}`}`, " ×")))),
    h("p", {}, same ? "It writes the same as without the pin." : ["Without the pin it wrote ", h("em", { dir: "auto" }, this.before.text), "."]));
  }

  /* --- The beam as a tree */

  async drawTree() {
    const { model, text, width, query } = this, asked = JSON.stringify([model.name, text, width]);
    if (query.prefix || query.pins) return show(this.treePlace, h("p", { class: "note" }, "The tree is of the model's own search, without chosen words and pins."));
    if (asked === this.treeAsked && this.tree?.isConnected) return this.tree.set(query.step === undefined ? null : Number(query.step));
    this.treeAsked = asked;
    try {
      const found = await this.beam.run(signal => post("api/beam", { model: model.name, text, beam: width }, signal));
      if (!found) return undefined;
      if (!found.steps.length) return show(this.treePlace, h("p", { class: "note" }, "The search ended at once."));
      this.tree = tree(found.steps, query.step === undefined ? null : Number(query.step), step => go({ step }, { replace: true }));
      return show(this.treePlace, this.tree);
    } catch (error) {
      this.treeAsked = "";
      return show(this.treePlace, problemCard(error));
    }
  }
}
