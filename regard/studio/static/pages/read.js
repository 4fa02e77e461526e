/* Read: which class a text belongs to and which words counted; what fills the gaps of a text. */
import { Latest, post } from "../api.js";
import { bars } from "../parts/bars.js";
import { command, pythonLines, showCall } from "../parts/call.js";
import { choice, examples, field, heading, modelSelect, noModel, problemCard, section, waiting } from "../parts/controls.js";
import { debounced, h, say, show } from "../parts/dom.js";
import { Looking } from "../parts/looking.js";
import { savingResult } from "../parts/saving.js";
import { weighedWords } from "../parts/tokens.js";
import { go } from "../url.js";

const ABILITIES = ["classify", "fill"];
const GAP = "[MASK]";

export function open(main, query, studio) {
  const { able, model } = choice(studio, ABILITIES, query);
  const title = heading("Read", "Give a text: see its class and which words counted, or what the model would write into its gaps.");
  if (!model) {
    show(main, title, noModel(studio, "classify"));
    return {};
  }
  const page = new Read(studio, able);
  show(main, title, page.element);
  page.update(query);
  return page;
}

class Read {
  constructor(studio, able) {
    Object.assign(this, { studio, able, latest: new Latest() });
    this.box = h("textarea", { rows: 4, dir: "auto", spellcheck: "false", oninput: debounced(() => go({ text: this.box.value }, { replace: true }), 500) });
    this.other = h("textarea", { rows: 3, dir: "auto", spellcheck: "false", oninput: debounced(() => go({ second: this.other.value }, { replace: true }), 500) });
    this.pair = field("Second text", this.other);
    this.bar = h("div", { class: "row" });
    this.tries = h("div");
    this.tools = h("div", { class: "row" });
    this.out = h("div", { "aria-live": "polite" });
    this.call = h("div");
    this.looking = new Looking({ go });
    this.look = section("Where it looked", this.looking.element);
    this.element = h("div", {}, this.bar, h("div", { class: "pair" }, h("div", { class: "card box" }, field("Text", this.box), this.pair, this.tools, this.tries), h("div", { class: "card box" }, this.out)), this.call, this.look);
  }

  update(query) {
    const { model } = choice(this.studio, ABILITIES, query), ability = ABILITIES.find(each => model.abilities.includes(each));
    Object.assign(this, { query, model, ability, text: query.text ?? model.examples[0] ?? "", second: model.pairs ? query.second ?? "" : undefined });
    this.pair.hidden = !model.pairs;
    if (document.activeElement !== this.other) this.other.value = this.second ?? "";
    if (this.modelName !== model.name) {
      this.modelName = model.name;
      show(this.bar, modelSelect(this.able, model, name => go({ model: name, text: null, second: null, role: null, layer: null, head: null })));
    }
    if (document.activeElement !== this.box) this.box.value = this.text;
    show(this.tries, examples(model.examples, text => { this.box.value = text; go({ text }); }));
    show(this.tools, ability === "fill" && h("button", { type: "button", onclick: () => this.insertGap() }, `Insert a gap, ${GAP}`));
    this.look.hidden = !model.abilities.includes("look");
    return this.ask();
  }

  close() {
    this.latest.stop();
  }

  insertGap() {
    const { selectionStart: from, selectionEnd: to, value } = this.box;
    this.box.value = value.slice(0, from) + GAP + value.slice(to);
    go({ text: this.box.value });
  }

  async ask() {
    const { model, ability, text, second } = this, body = { model: model.name, text, second, ...ability === "classify" && { words: true } }, asked = JSON.stringify([ability, body]);
    if (!text.trim()) return show(this.out, h("p", { class: "note" }, "Write something on the left, or take an example."));
    if (ability === "fill" && !text.includes(GAP)) return show(this.out, h("p", { class: "note" }, `Put ${GAP} where a word is missing.`));
    if (asked === this.asked) return this.draw();
    this.asked = asked;
    const late = setTimeout(() => show(this.out, waiting("Reading")), 250);
    try {
      const found = await this.latest.run(signal => post(`api/${ability}`, body, signal));
      if (!found) return undefined;
      this.result = Array.isArray(found) ? found[0] : found;
      this.body = body;
      say(this.result.label ?? this.result.text);
      return this.draw();
    } catch (error) {
      this.asked = "";
      return show(this.out, problemCard(error));
    } finally {
      clearTimeout(late);
    }
  }

  draw() {
    const { model, ability, text, second } = this;
    show(this.out, ability === "classify" ? this.classified() : this.filled());
    show(this.call, savingResult("the result", ability, this.result), showCall({ path: `api/${ability}`, body: this.body, lines: pythonLines(model, ability, second === undefined ? [text] : [text, second]), command: command("regard", ability, text, "-m", model.path ?? model.name, ...second ? ["--second", second] : []) }));
    if (model.abilities.includes("look")) this.looking.update({ model: model.name, text, second }, this.query);
  }

  classified() {
    const { label, labels, words } = this.result;
    return [h("h2", { class: "small" }, "Class"), h("p", { class: "text", dir: "auto" }, label), words?.length > 0 && [weighedWords(words), h("p", { class: "legend" }, "weight 0 ", h("span", { class: "ramp" }), " the most")],
      bars(labels.slice(0, 8), { plain: true, label: "Classes" })];
  }

  filled() {
    const { gaps, text } = this.result, pieces = this.text.split(GAP);
    const fill = (gap, token) => {
      const next = pieces.reduce((all, piece, i) => all + (i - 1 === gap ? token.trimStart() : GAP) + piece);
      this.box.value = next;
      go({ text: next });
    };
    return [h("h2", { class: "small" }, "Filled"), h("p", { class: "text", dir: "auto" }, text),
      gaps.map((guesses, gap) => h("div", {}, h("h3", {}, gaps.length > 1 ? `Gap ${gap + 1}` : "The gap"),
        bars(guesses.map(guess => ({ label: guess.token, probability: guess.probability })), { label: `Guesses for gap ${gap + 1}`, choose: guess => fill(gap, guess.label) })))];
  }
}
