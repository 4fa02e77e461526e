/* Walk: attention number by number. A toy that a person changes, positions as a picture, and a model's own numbers. */
import { Latest, post } from "../api.js";
import { command, python, showCall } from "../parts/call.js";
import { choice, examples, field, heading, modelSelect, noModel, problemCard, section, segments, select, waiting } from "../parts/controls.js";
import { debounced, h, say, show } from "../parts/dom.js";
import { plainMatrix } from "../parts/matrix.js";
import { number, visible } from "../parts/numbers.js";
import { Positions } from "../parts/positions.js";
import { Toy } from "../parts/walking.js";
import { go } from "../url.js";

const VIEWS = [["toy", "On paper"], ["positions", "Positions"], ["model", "In a model"]];
const MOST_CELLS = 4000; // of one array; more is said, not shown

export function open(main, query, studio) {
  const place = h("div"), tabs = h("div");
  show(main, heading("Walk", "Attention number by number: first on paper, where you can change every number, then with the numbers of a model."), tabs, place);
  const views = {};
  const make = { toy: () => new Toy(go), positions: () => new Positions(go), model: () => new ModelWalk(studio) };
  const page = {
    update(query) {
      const view = make[query.view] ? query.view : "toy";
      show(tabs, segments("What to walk through", VIEWS, view, next => go({ view: next === "toy" ? null : next })));
      views[view] ??= make[view]();
      if (place.firstChild !== views[view].element) show(place, views[view].element);
      views[view].update(query);
    },
    close() { views.model?.close(); removeEventListener("keydown", keys); },
  };
  const keys = event => views.model?.element.isConnected && views.model.key(event);
  addEventListener("keydown", keys);
  page.update(query);
  return page;
}

/* One query of one head of a model, step by step. */
class ModelWalk {
  constructor(studio) {
    Object.assign(this, { studio, latest: new Latest() });
    const typed = debounced(() => go({ text: this.box.value, query: null, step: null }, { replace: true }), 700);
    this.box = h("input", { type: "text", dir: "auto", spellcheck: "false", oninput: typed });
    this.choices = h("div", { class: "row" });
    this.where = h("div", { class: "row" });
    this.tries = h("div");
    this.step = h("div");
    this.call = h("div");
    this.element = h("div", { class: "model-walk" }, this.choices, h("div", { class: "card box" }, field("Text", this.box), this.tries), this.where, this.step, this.call);
  }

  async update(query) {
    const { able, model } = choice(this.studio, ["walk"], query);
    if (!model) return show(this.element, noModel(this.studio, "translate"));
    const text = query.text ?? model.examples[0] ?? "";
    Object.assign(this, { query, model, text });
    if (this.modelName !== model.name) {
      this.modelName = model.name;
      show(this.choices, modelSelect(able, model, name => go({ model: name, text: null, role: null, layer: null, head: null, query: null, step: null })));
    }
    show(this.tries, examples(model.examples, text => { this.box.value = text; go({ text, query: null, step: null }); }));
    if (document.activeElement !== this.box) this.box.value = text;
    return this.fetch();
  }

  close() {
    this.latest.stop();
  }

  request() {
    const { role, layer, head, query } = this.query, whole = value => value === undefined ? undefined : Number(value);
    return { model: this.model.name, text: this.text, role, layer: whole(layer), head: whole(head), query: whole(query) };
  }

  async fetch() {
    const request = this.request(), asked = JSON.stringify(request);
    if (asked === this.asked) return this.draw();
    this.asked = asked;
    const late = setTimeout(() => show(this.step, waiting("Computing every number")), 300);
    try {
      const walk = await this.latest.run(signal => post("api/walk", request, signal));
      const look = walk && await post("api/look", { model: request.model, text: request.text, role: walk.role }).catch(() => null);
      if (!walk) return undefined;
      Object.assign(this, { walk, look });
      this.drawWhere();
      this.drawCall(request);
      return this.draw();
    } catch (error) {
      this.asked = "";
      return show(this.step, problemCard(error));
    } finally {
      clearTimeout(late);
    }
  }

  drawWhere() {
    const { walk, look } = this, fresh = { step: this.query.step };
    const roles = look?.roles ?? [walk.role], layers = look?.layers ?? [];
    const count = (many, name) => Array.from({ length: many }, (_, i) => [i, `${name} ${i}`]);
    show(this.where,
      roles.length > 1 && field("Attention", select(roles.map(role => [role, role]), walk.role, role => go({ ...fresh, role, layer: null, head: null, query: null }))),
      layers.length > 1 && field("Layer", select(count(layers.length, "layer"), walk.layer, layer => go({ ...fresh, role: walk.role, layer, head: walk.head }))),
      layers[walk.layer]?.heads > 1 && field("Head", select(count(layers[walk.layer].heads, "head"), walk.head, head => go({ ...fresh, role: walk.role, layer: walk.layer, head }))),
      walk.queries?.length > 1 && field("Who looks", select(walk.queries.map((label, i) => [i, `${i} · ${visible(label)}`]), walk.query, query => go({ ...fresh, query }))));
  }

  drawCall(request) {
    const { model, text, walk } = this;
    show(this.call, showCall({
      path: "api/walk", body: request,
      lines: ["import regard", "", `model = regard.load(${python(model.path ?? model.name)})`, `regard.walk(model, ${python(text)}, role=${python(walk.role)}, layer=${walk.layer}, head=${walk.head}, query=${walk.query})`],
      command: command("regard", "walk", text, "-m", model.path ?? model.name, "--role", walk.role, "--layer", String(walk.layer), "--head", String(walk.head), "--query", String(walk.query)),
    }));
  }

  /* --- One step on the screen; arrows lead on */

  get at() {
    return Math.max(0, Math.min(Number(this.query.step ?? 0), this.walk.steps.length - 1));
  }

  turn(by) {
    const next = this.at + by;
    if (this.walk?.steps[next]) go({ step: next || null });
  }

  key(event) {
    if (event.target.closest?.("input, textarea, select, [role=grid], .scroll") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "ArrowRight") this.turn(1);
    else if (event.key === "ArrowLeft") this.turn(-1);
  }

  draw() {
    const { walk, at } = this, step = walk.steps[at], last = walk.steps.length - 1;
    const list = h("ol", { class: "steps", "aria-label": "Steps" }, walk.steps.map((each, i) => h("li", {},
      h("button", { type: "button", "aria-current": i === at ? "step" : null, "aria-label": `Step ${i}: ${each.title}`, title: each.title, onclick: () => go({ step: i || null }) }, String(i)))));
    const turn = (name, by, off) => h("button", { type: "button", disabled: off, onclick: () => this.turn(by) }, name);
    show(this.step, h("p", { class: "lead" }, walk.title, ". ", walk.summary),
      h("div", { class: "row steer" }, turn("← Back", -1, at === 0), list, turn("On →", 1, at === last)),
      section(`${at} · ${step.title}`, h("p", { class: "formula" }, h("code", {}, step.formula)), h("p", {}, step.text),
        step.lines.map(line => h("p", { class: "worked" }, h("code", {}, worked(line)))), h("div", { class: "matrices" }, step.arrays.map(arrayOf))));
    say(`Step ${at} of ${last}: ${step.title}`);
  }
}

/* The equation with its numbers in place of {}. */
function worked(line) {
  const parts = line.text.split("{}");
  return parts.slice(1).reduce((text, part, i) => text + number(line.numbers[i]) + part, parts[0]);
}

function arrayOf({ name, rows, columns, values, remarks }) {
  const wide = values[0]?.length ?? 0, size = values.length > 1 ? `${name} (${values.length} × ${wide})` : wide > 1 ? `${name} (${wide})` : name;
  if (values.length * wide > MOST_CELLS) return h("p", { class: "note" }, `${size}: too many for a page; the request below gives them all.`);
  const kind = /weight/.test(name) ? "weight" : "signed";
  const noted = remarks ? rows.map((row, i) => remarks[i] ? `${visible(row)} (${remarks[i]})` : visible(row)) : rows.map(visible);
  return plainMatrix({ name: size, values, rows: noted, columns, kind });
}
