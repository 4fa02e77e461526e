/* Models: a card for each, with its scores; of one, its layers, its tokenizer to play with; models go out and come in. */
import { Latest, get, post } from "../api.js";
import { showCall, command } from "../parts/call.js";
import { field, heading, problemCard, section, select, waiting } from "../parts/controls.js";
import { debounced, h, scrolling, show } from "../parts/dom.js";
import { number, short } from "../parts/numbers.js";
import { saving } from "../parts/saving.js";
import { Taking } from "../parts/taking.js";
import { TokenLine } from "../parts/tokens.js";
import { address, go } from "../url.js";

const FORMS = ["hf", "ctranslate2", "onnx"]; // those of `regard export`; what a form cannot express is told there
const PAGE_OF = { translate: "translate", generate: "generate", classify: "read", fill: "read", caption: "see", answer: "see", "classify-pictures": "see" };

export function open(main, query, studio) {
  const page = new Models(studio);
  show(main, heading("Models", "What is in this folder, and what comes with Regard. Choose one to look into it."), page.element);
  page.update(query);
  return page;
}

class Models {
  constructor(studio) {
    Object.assign(this, { studio, latest: new Latest(), tokens: new Latest() });
    this.cards = h("div", { class: "cards" });
    this.one = h("div");
    this.taking = new Taking(name => this.taken(name));
    this.element = h("div", {}, this.cards, this.one, this.taking.element);
  }

  async taken(name) {
    await this.studio.refresh();
    if (name === this.query.model) this.update(this.query);
    else go({ model: name, side: null, text: null });
  }

  update(query) {
    const { models, trouble } = this.studio;
    this.query = query;
    if (trouble) return show(this.cards, problemCard(trouble));
    if (!models.length) return show(this.cards, section("No model here yet", h("p", {}, "Train one on data that Regard makes itself:"), h("pre", {}, h("code", {}, "regard train translate --budget 1m"))));
    show(this.cards, models.map(model => this.card(model)));
    return this.open(models.find(model => model.name === query.model) ?? models[0]);
  }

  close() {
    this.latest.stop();
    this.tokens.stop();
  }

  card(model) {
    const page = PAGE_OF[model.abilities.find(ability => PAGE_OF[ability])], chosen = model.name === (this.query.model ?? this.studio.models[0].name);
    const scores = Object.entries(model.scores ?? {}).filter(([, value]) => typeof value === "number").slice(0, 3);
    return h("article", { class: `card model${chosen ? " chosen" : ""}` }, h("h2", {}, model.name),
      h("p", { class: "note" }, [model.task, model.title, model.shipped ? "comes with Regard" : null].filter(Boolean).join(" · ")),
      scores.length > 0 && h("dl", { class: "scores" }, scores.map(([name, value]) => h("div", {}, h("dt", {}, name.replaceAll("_", " ")), h("dd", {}, scored(value))))),
      h("p", { class: "row" }, page && h("a", { href: address(page, { model: model.name }), "aria-label": `Use ${model.name}` }, "Use it"),
        h("button", { type: "button", class: "link", "aria-pressed": chosen, "aria-label": `Look into ${model.name}`, onclick: () => { go({ model: model.name, side: null, text: null }); this.one.scrollIntoView({ block: "nearest" }); } }, "Look into it")));
  }

  async open(model) {
    if (this.shown === model.name) return this.play();
    this.shown = model.name;
    show(this.one, waiting("Opening the model"));
    try {
      const found = await this.latest.run(signal => get(`api/models/${encodeURIComponent(model.name)}`, signal));
      return found && this.draw(found);
    } catch (error) {
      this.shown = "";
      return show(this.one, problemCard(error));
    }
  }

  draw(model) {
    this.model = model;
    const place = model.path ?? model.name;
    this.playing = model.tokenizer ? this.playground(model) : null;
    show(this.one, this.playing && section("Its tokens", this.playing), this.layers = h("div"),
      model.card && section("Its card", h("div", { class: "model-card" }, markdown(model.card)),
        saving("the card", [["Markdown", `${model.name}.md`, () => model.card], ["JSON", `${model.name}.json`, () => JSON.stringify(model, null, 2)]])),
      section("Take it elsewhere", h("p", {}, "A bundle is a folder of safetensors and JSON, which regard.load reads."),
        saving("the bundle", [["ZIP", `${model.name}.zip`, `api/models/${encodeURIComponent(model.name)}/bundle`]]), h("p", {}, "Out to other libraries:"),
        h("pre", { tabindex: "0", "aria-label": "Commands" }, h("code", {}, FORMS.map(form => command("regard", "export", place, "--to", form, "-o", `${model.name}-${form}`)).join("\n")))),
      showCall({ path: `api/models/${encodeURIComponent(model.name)}`, command: command("regard", "summary", place), lines: ["import regard", "", `model = regard.load(${JSON.stringify(place)})`] }));
    this.drawLayers(model);
    this.play();
  }

  /* The layers are counted by running the model once: they come when they come. */
  async drawLayers(model) {
    const { layers: place } = this, found = await get(`api/models/${encodeURIComponent(model.name)}/layers`).catch(() => ({ layers: null }));
    if (found.layers) show(place, section("Its layers", layersOf(found.layers)));
  }

  /* --- The tokenizer */

  playground({ tokenizer }) {
    this.box = h("input", { type: "text", dir: "auto", spellcheck: "false", oninput: debounced(() => go({ text: this.box.value }, { replace: true }), 250) });
    this.line = new TokenLine({ label: "Tokens", point: i => this.tellToken(i) });
    this.told = h("p", { class: "told-line" });
    this.sides = tokenizer.joint ? ["source"] : Object.keys(tokenizer.sizes);
    const sizes = tokenizer.joint ? `${short(tokenizer.sizes.source)} tokens` : this.sides.map(side => `${side} ${short(tokenizer.sizes[side])} tokens`).join(", ");
    return [h("p", { class: "note" }, `${tokenizer.kind}: ${sizes}`), h("div", { class: "row wide" }, field("Text", this.box),
      this.sides.length > 1 && field("Side", select(this.sides.map(side => [side, side]), this.query.side ?? "source", side => go({ side })))), this.line.element, this.told];
  }

  async play() {
    if (!this.playing) return undefined;
    const { model, query } = this, example = model.examples?.find(each => typeof each === "string") ?? "A text to cut into tokens";
    const text = query.text ?? example, side = query.side ?? this.sides[0];
    if (document.activeElement !== this.box) this.box.value = text;
    try {
      const found = await this.tokens.run(signal => post("api/tokens", { model: model.name, text, side }, signal));
      if (!found) return undefined;
      this.found = found;
      this.line.draw(found.tokens);
      return this.tellToken(null);
    } catch (error) {
      return show(this.told, problemCard(error));
    }
  }

  tellToken(i) {
    if (!this.found) return;
    const { tokens, unknown } = this.found;
    const letters = this.box.value.length, rest = `${tokens.length} tokens for ${letters} letters${unknown ? `, ${unknown} unknown` : ""}`;
    show(this.told, i === null ? h("span", { class: "note" }, rest) : [`token ${i}: `, h("b", {}, `id ${tokens[i].id}`), tokens[i].special ? ", special" : ""]);
  }
}

/* A score in as many digits as tell something: 97.93, 0.09, 0.0027. */
const scored = value => value !== 0 && Math.abs(value) < 0.01 ? String(Number(value.toPrecision(2))) : number(value, 2);

/* The data of `regard summary`: a row for each layer, in the order in which they run. */
function layersOf(found) {
  const rows = Array.isArray(found) ? found : found.layers ?? found.rows ?? [];
  if (!rows.length) return h("p", { class: "note" }, "There is no list of its layers.");
  const text = value => Array.isArray(value) ? value.flat().join(" × ") : typeof value === "number" ? value.toLocaleString("en") : String(value ?? "");
  const total = rows.reduce((sum, row) => sum + (row.parameters ?? 0), 0);
  return [h("p", {}, `${rows.length} parts, ${total.toLocaleString("en")} parameters.`), h("details", {}, h("summary", {}, "Every layer"),
    table(Object.keys(rows[0]).map(name => name.replaceAll("_", " ")), rows.map(row => Object.values(row).map(text)), Object.values(rows[0]).map(value => typeof value === "number"), "Layers"))];
}

function table(names, rows, right, label) {
  const cell = (tag, text, i) => h(tag, { scope: tag === "th" ? "col" : null, class: right[i] ? "n" : null }, text);
  return scrolling(label, h("table", { class: "list" },
    h("thead", {}, h("tr", {}, names.map((name, i) => name ? cell("th", name, i) : h("td")))), h("tbody", {}, rows.map(row => h("tr", {}, row.map((text, i) => cell("td", text, i)))))));
}

/* Text with what stands between backticks as code. */
function coded(text) {
  return text.split("`").map((piece, i) => i % 2 ? h("code", {}, piece) : piece);
}

/* Headings, lists, tables, code and paragraphs of a card; everything else stays as it was written. */
function markdown(text) {
  return text.split(/\n{2,}/).filter(block => block.trim()).map(block => {
    const lines = block.split("\n");
    if (/^#+ /.test(block)) return h("h3", {}, lines[0].replace(/^#+ /, ""));
    if (lines.every(line => /^[-*] /.test(line))) return h("ul", {}, lines.map(line => h("li", {}, line.slice(2))));
    if (lines[0].startsWith("|")) {
      const cells = lines.filter(line => !/^\|[-| ]+\|$/.test(line)).map(line => line.split("|").slice(1, -1).map(cell => cell.trim().replace(/^\d+\.\d{6,}$/, long => String(Number(Number(long).toPrecision(5))))));
      return table(cells[0], cells.slice(1), cells[0].map(() => false), "Table");
    }
    if (/^( {4}|```)/.test(block)) return h("pre", { tabindex: "0" }, h("code", {}, block.replace(/^```\w*\n?|```$/gm, "").replace(/^ {4}/gm, "")));
    return h("p", {}, coded(lines.join(" ")));
  });
}
