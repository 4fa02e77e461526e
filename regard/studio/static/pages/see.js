/* See: captions, answers and classes of a picture, with where each word looked. Drop a picture in, or take a drawn one. */
import { Latest, post, signed } from "../api.js";
import { bars } from "../parts/bars.js";
import { command, python, pythonLines, showCall } from "../parts/call.js";
import { choice, field, heading, modelSelect, noModel, problemCard, section, select, waiting } from "../parts/controls.js";
import { debounced, h, say, show } from "../parts/dom.js";
import { dropArea } from "../parts/drop.js";
import { Overlay, encoded, sheet } from "../parts/picture.js";
import { savingResult } from "../parts/saving.js";
import { TokenLine } from "../parts/tokens.js";
import { go } from "../url.js";

const ABILITIES = ["caption", "answer", "classify-pictures"];
const DOES = { caption: "says what is in the picture", answer: "answers a question about the picture", "classify-pictures": "names the class of the picture" };

export function open(main, query, studio) {
  const { able, model } = choice(studio, ABILITIES, query);
  const title = heading("See", "Give a picture. Read what the model says of it, and see where it looked for each word.");
  if (!model) {
    show(main, title, noModel(studio, "caption"));
    return {};
  }
  const page = new See(studio, able);
  show(main, title, page.element);
  page.update(query);
  return page;
}

class See {
  constructor(studio, able) {
    Object.assign(this, { studio, able, latest: new Latest(), own: null });
    this.bar = h("div", { class: "row" });
    const drop = dropArea("Drop a picture here, or choose a file", "image/*", file => this.take(file));
    this.samples = h("div", { class: "samples", role: "group", "aria-label": "Pictures to try" });
    this.question = h("input", { type: "text", dir: "auto", oninput: debounced(() => go({ question: this.question.value, panel: null }, { replace: true }), 600) });
    this.asking = field("Question", this.question);
    this.view = h("div", { class: "view" });
    this.line = new TokenLine({ label: "Words; choose one to see where it looked", choose: i => this.choose(i), point: i => this.lay(i) });
    this.said = h("div");
    this.rest = h("div");
    this.call = h("div");
    this.element = h("div", {}, this.bar, h("div", { class: "pair" },
      h("div", { class: "card box" }, this.view, drop, this.samples), h("div", { class: "card box said" }, this.asking, this.said)), this.call, this.rest);
  }

  update(query) {
    const { model } = choice(this.studio, ABILITIES, query), ability = ABILITIES.find(each => model.abilities.includes(each));
    Object.assign(this, { query, model, ability });
    if (this.modelName !== model.name) {
      this.modelName = model.name;
      show(this.bar, modelSelect(this.able, model, name => { go({ model: name, example: null, question: null, panel: null, layer: null, head: null }); }));
      this.drawSamples();
    }
    const example = model.examples[Number(query.example ?? 0)] ?? model.examples[0];
    if (query.example !== "own") this.own = null;
    this.asking.hidden = ability !== "answer";
    this.words = query.question ?? example?.question ?? "";
    if (document.activeElement !== this.question) this.question.value = this.words;
    this.address = this.own ? `data:image/png;base64,${this.own}` : (example && signed(example.picture.replace(/^\//, "")));
    for (const [i, button] of Array.from(this.samples.children).entries()) button.setAttribute("aria-pressed", !this.own && String(i) === (query.example ?? "0"));
    return this.ask();
  }

  close() {
    this.latest.stop();
  }

  drawSamples() {
    show(this.samples, this.model.examples.map((example, i) => h("button", { type: "button", "aria-label": `Picture ${i + 1}`, onclick: () => go({ example: i || null, panel: null, question: null }) },
      h("img", { src: signed(example.picture.replace(/^\//, "")), alt: "" }))));
  }

  /* A person's own picture stays in this tab: it is in no URL. */
  async take(file) {
    try {
      this.own = await encoded(file);
    } catch {
      show(this.said, problemCard({ message: `${file.name} cannot be opened as a picture.`, hint: "PNG, JPEG, GIF, WebP and BMP can." }));
      return;
    }
    this.latestKey = "";
    if (this.query.example === "own") this.update(this.query);
    else go({ example: "own", panel: null });
  }

  async picture() {
    if (this.own) return this.own;
    const response = await fetch(this.address);
    return encoded(await response.blob());
  }

  async ask() {
    if (!this.address) return show(this.said, h("p", { class: "note" }, "Drop a picture on the left."));
    const { layer, head } = this.query, key = JSON.stringify([this.model.name, this.own ? "own" : this.address, this.words, layer, head]);
    if (key === this.latestKey) return this.draw();
    this.latestKey = key;
    if (this.shown !== this.address) {
      this.shown = this.address;
      this.overlay = new Overlay(this.address, "The picture");
      show(this.view, this.overlay.element);
      show(this.rest);
    }
    const late = setTimeout(() => show(this.said, waiting("Looking")), 250);
    try {
      const found = await this.latest.run(async signal => {
        const body = { model: this.model.name, picture: await this.picture(), attention: true };
        if (this.ability === "answer") body.question = this.words;
        if (layer !== undefined) body.layer = Number(layer);
        if (head !== undefined) body.head = Number(head);
        return { body, result: await post(`api/${this.ability}`, body, signal) };
      });
      if (!found) return undefined;
      Object.assign(this, found);
      say(this.result.text ?? this.result.label);
      return this.draw();
    } catch (error) {
      this.latestKey = "";
      return show(this.said, problemCard(error));
    } finally {
      clearTimeout(late);
    }
  }

  /* --- The result, and the panel that lies on the picture */

  draw() {
    const { result, query } = this, { attention } = this;
    this.chosen = query.panel === undefined ? null : Number(query.panel);
    this.lay(null);
    show(this.said, h("h2", { class: "small" }, `This model ${DOES[this.ability]}`), h("p", { class: "text", dir: "auto" }, result.text ?? result.label),
      this.ability === "caption" ? this.wordLine(attention) : bars(result.labels.slice(0, 8), { plain: true, label: "What it thought of" }));
    show(this.rest, attention && section("Where it looked", this.headChoice(attention), attention.title !== "attention" && h("p", { class: "note" }, attention.title), sheet(this.address, attention, this.chosen, i => this.choose(i))));
    this.drawCall();
  }

  /* Where the model looked on the picture; a network that mixes all places, or weighs channels, looked nowhere. */
  get attention() {
    return this.result?.attention?.panels ? this.result.attention : null;
  }

  headChoice({ heads }) {
    if (heads.reduce((sum, each) => sum + each, 0) < 2) return null;
    const options = [["", "mean of all"], ...heads.flatMap((many, layer) => Array.from({ length: many }, (_, head) => [`${layer}.${head}`, `layer ${layer}, head ${head}`]))];
    const { layer, head } = this.query, chosen = layer === undefined ? "" : `${layer}.${head}`;
    return field("Head", select(options, chosen, value => {
      const [layer, head] = value ? value.split(".") : [null, null];
      go({ layer, head });
    }));
  }

  choose(i) {
    go({ panel: String(i) === this.query.panel ? null : i });
  }

  /* Lay the weights of a panel on the picture: the one that is pointed at, else the chosen one. */
  lay(i) {
    const { attention } = this;
    this.overlay.draw(attention, attention?.panels[i ?? this.chosen]);
  }

  wordLine(attention) {
    this.line.draw((attention?.panels ?? []).map(panel => panel.title), this.chosen);
    return [this.line.element, h("p", { class: "note" }, "Point at a word: what it was read from stays bright.")];
  }

  /* Where a head that was chosen looked, in Python. */
  lookLines(more) {
    const { layer, head } = this.query;
    if (layer === undefined && this.ability === "caption") return []; // its result has it
    const given = layer === undefined ? [] : [`layer=${layer}`, `head=${head}`];
    return this.attention ? [`looked = model.look(${["picture.png", ...more].map(python).concat(given).join(", ")})`] : [];
  }

  drawCall() {
    const { model, ability, words } = this, verb = ability === "classify-pictures" ? "classify" : ability;
    const more = ability === "answer" ? [words] : [];
    show(this.call, savingResult("the result", ability, this.result), showCall({
      path: `api/${ability}`, body: this.body,
      lines: [...pythonLines(model, verb, ["picture.png", ...more], ability === "caption" ? { attention: true } : {}), ...this.lookLines(more)],
      command: command("regard", verb, "picture.png", ...more, "-m", model.path ?? model.name),
    }));
  }
}
