/* Heads: what each head of a model does and whether it matters; take one away and see what changes. */
import { Latest, get, mapOf, post, remove } from "../api.js";
import { command, python, showCall } from "../parts/call.js";
import { choice, examples, field, heading, modelSelect, noModel, problemCard, section, waiting } from "../parts/controls.js";
import { debounced, h, say, show } from "../parts/dom.js";
import { NAMES } from "../parts/looking.js";
import { HeatMap, thumbnail } from "../parts/map.js";
import { number, plain } from "../parts/numbers.js";
import { go } from "../url.js";

const TOGETHER = 4; // maps that are asked for at once
const ASKED = { // what is asked of a model with all heads, and without one
  translate: text => ({ text }), generate: text => ({ prompt: text, max_length: 24, sample: false, beam: 1 }),
  classify: text => ({ text }), fill: text => text.includes("[MASK]") ? { text, top: 100 } : null,
};
const PAUSE = 700; // milliseconds between questions about a job

export function open(main, query, studio) {
  const { able, model } = choice(studio, ["heads"], query);
  const title = heading("Heads", "What each head does, by rule, and how much worse the model is without it. Choose one to take it away.");
  if (!model) {
    show(main, title, noModel(studio, "heads"));
    return {};
  }
  const page = new Heads(studio, able);
  show(main, title, page.element);
  page.update(query);
  return page;
}

class Heads {
  constructor(studio, able) {
    Object.assign(this, { studio, able, latest: new Latest(), reports: new Map(), looks: new Latest() });
    this.bar = h("div", { class: "row" });
    this.box = h("input", { type: "text", dir: "auto", spellcheck: "false", oninput: debounced(() => go({ text: this.box.value }, { replace: true }), 600) });
    this.tries = h("div");
    this.grid = h("div");
    this.job = h("div", { class: "row" });
    this.without = h("div");
    this.call = h("div");
    this.element = h("div", {}, this.bar, h("div", { class: "card box" }, field("Text", this.box), this.tries), section("The grid", this.job, this.grid), this.without, this.call);
  }

  update(query) {
    const { model } = choice(this.studio, ["heads"], query);
    Object.assign(this, { query, model, text: query.text ?? model.examples[0] ?? "" });
    if (this.modelName !== model.name) {
      this.modelName = model.name;
      show(this.bar, modelSelect(this.able, model, name => go({ model: name, text: null, out: null })));
    }
    if (document.activeElement !== this.box) this.box.value = this.text;
    show(this.tries, examples(model.examples, text => { this.box.value = text; go({ text }); }));
    this.drawCall();
    this.drawJob();
    return this.look();
  }

  close() {
    this.closed = true;
    this.latest.stop();
    this.looks.stop();
  }

  /* How the heads are measured; or, where one is taken away, what the model says without it. */
  drawCall() {
    const { model, text, query } = this, place = model.path ?? model.name, on = model.measured_on, load = ["import regard", "", `model = regard.load(${python(place)})`];
    const verb = Object.keys(ASKED).find(each => model.abilities.includes(each)), body = ASKED[verb]?.(text), change = query.out && taken(query.out);
    if (!change || !body) return show(this.call, showCall({ path: "api/heads", body: { model: model.name }, command: command("regard", "heads", place, ...on ? ["--on", on] : []),
      lines: ["from regard.tasks.material import material_of", ...load, `report = regard.heads_of(model, material_of(model, ${[place, ...on ? [[on]] : []].map(python).join(", ")}))`] }));
    const { role, layer, head } = change;
    return show(this.call, showCall({ path: `api/${verb}`, body: { model: model.name, ...body, changes: [change] },
      lines: [...load, `with regard.intervene(model, regard.Remove(${python(role)}, ${layer}, head=${head})):`, `    out = model.${verb}(${python(text)})`] }));
  }

  /* --- Every head's map on the text, as a grid */

  async look() {
    const { model, text } = this, asked = JSON.stringify([model.name, text]);
    if (asked !== this.asked) {
      this.asked = asked;
      try {
        const found = await this.looks.run(async signal => {
          const look = await post("api/look", { model: model.name, text }, signal);
          return look.roles.map(role => ({ id: look.id, role, ...look.by_role[role] }));
        });
        if (!found) return undefined;
        this.seen = found;
        this.drawGrid();
      } catch (error) {
        this.asked = "";
        return show(this.grid, problemCard(error));
      }
    } else this.markGrid();
    return this.takeAway();
  }

  drawGrid() {
    const report = this.reports.get(this.model.name), buttons = [];
    const lines = this.seen.map(look => h("div", {}, h("h3", {}, NAMES[look.role] ?? look.role), look.layers.map(({ layer, heads }) => h("div", { class: "head-row" }, h("span", { class: "side" }, `layer ${layer}`),
      h("div", { class: "head-cells" }, Array.from({ length: heads }, (_, head) => {
        const button = this.headButton(look, layer, head, report?.heads.find(each => each.role === look.role && each.layer === layer && each.head === head));
        buttons.push([button, look, layer, head]);
        return button;
      }))))));
    show(this.grid, h("div", { class: "head-roles" }, lines), report && h("div", { class: "notes" }, report.meaning?.map(line => h("p", { class: "note" }, line))));
    this.markGrid();
    this.fillGrid(buttons);
  }

  headButton(look, layer, head, known) {
    const name = `${look.role}, layer ${layer}, head ${head}`, change = known?.removed?.value;
    return h("button", { type: "button", class: "head", "data-head": `${look.role}.${layer}.${head}`, onclick: () => go({ out: this.query.out === `${look.role}.${layer}.${head}` ? null : `${look.role}.${layer}.${head}` }),
      "aria-label": [name, known?.rules[0], change === undefined ? null : `loss ${number(change)} more without it`].filter(Boolean).join(", ") },
    h("span", { class: "picture" }), h("span", { class: "name" }, `head ${head}`), known && h("span", { class: "rule" }, known.rules[0] ?? "no rule"),
    change !== undefined && h("span", { class: `loss ${change > 0.01 ? "matters" : ""}` }, `${change >= 0 ? "+" : ""}${number(change)}`));
  }

  async fillGrid(buttons) {
    const { seen } = this;
    for (let from = 0; from < buttons.length && this.seen === seen; from += TOGETHER) {
      await Promise.all(buttons.slice(from, from + TOGETHER).map(async ([button, look, layer, head]) => {
        const map = await mapOf(`api/look/${encodeURIComponent(look.id)}/${layer}/${head}?role=${look.role}`).catch(() => null);
        if (map) show(button.querySelector(".picture"), thumbnail(map));
      }));
    }
  }

  markGrid() {
    for (const button of this.grid.querySelectorAll("button.head")) button.setAttribute("aria-pressed", button.dataset.head === this.query.out);
  }

  /* --- Roles and losses: a long job with progress, which can be stopped */

  drawJob() {
    const { model } = this;
    if (this.reports.has(model.name) || this.running) return;
    show(this.job, h("button", { type: "button", class: "main", onclick: () => this.measure(model) }, "Name what each head does"),
      h("span", { class: "note" }, "Runs the model on its validation data once without each head; it may take minutes."));
  }

  async measure(model) {
    this.running = true;
    const bar = h("progress", { max: 1, "aria-label": "Progress" }), said = h("span", { class: "note" }, "Measuring");
    let job = null;
    const stop = h("button", { type: "button", onclick: () => { this.running = false; if (job) remove(`api/jobs/${job}`).catch(() => {}); this.drawJob(); } }, "Stop");
    show(this.job, bar, stop, said);
    try {
      let found = await post("api/heads", { model: model.name });
      job = found.job;
      while (job && this.running && !this.closed) {
        found = await get(`api/jobs/${job}`);
        if (found.total) { bar.max = found.total; bar.value = found.done; said.textContent = `${found.done} of ${found.total}`; }
        if (found.result || found.state === "failed") break;
        await new Promise(done => setTimeout(done, PAUSE));
      }
      if (!this.running || this.closed) return;
      this.running = false;
      const report = found.result ?? (found.heads ? found : null);
      if (!report) throw found.error ?? new Error("The job gave no result.");
      this.reports.set(model.name, report);
      show(this.job, h("p", { class: "note" }, `Measured on ${report.texts} texts of ${report.on}. +0.1 means: without this head the loss is 0.1 nats higher.`));
      say("Every head is measured.");
      this.drawGrid();
    } catch (error) {
      this.running = false;
      show(this.job, problemCard(error));
    }
  }

  /* --- Without a head: output and map, before and after */

  async takeAway() {
    const { query, model, text } = this;
    if (!query.out) return show(this.without, h("p", { class: "note" }, "Choose a head above to take it away."));
    const late = setTimeout(() => show(this.without, waiting("Asking without it")), 300);
    const change = taken(query.out), { role, layer, head } = change;
    try {
      const found = await this.latest.run(async signal => {
        const before = await this.output(signal), after = await this.output(signal, [change]);
        const losses = await this.losses(signal, before, after, change);
        const look = await post("api/look", { model: model.name, text, written: after.ids, role, changes: [change] }, signal).catch(() => null);
        return { before, after, losses, look };
      });
      return found && this.drawWithout(role, layer, head, found);
    } catch (error) {
      return show(this.without, problemCard(error));
    } finally {
      clearTimeout(late);
    }
  }

  /* What the model says of the text; null where there is nothing to say, as where no gap is to be filled. */
  async output(signal, changes) {
    const { model, text } = this, verb = Object.keys(ASKED).find(each => model.abilities.includes(each)), body = ASKED[verb]?.(text);
    if (!body) return { text: null };
    const found = await post(`api/${verb}`, { model: model.name, ...body, changes }, signal);
    const shares = found.labels ?? found.gaps?.[0].map(({ token, probability }) => ({ label: token, probability }));
    return { text: found.label ?? found.text, ids: verb === "translate" ? found.ids : undefined, shares };
  }

  /* The loss of what it says with all heads, with them and without one: in nats a token, or of the one class. */
  async losses(signal, before, after, change) {
    const { model, text } = this;
    if (before.text === null) return null;
    if (before.shares) {
      const same = after.shares.find(each => each.label === before.shares[0].label);
      return same ? [before.shares[0], same].map(({ probability }) => -Math.log(probability)) : null;
    }
    const body = { model: model.name, text, written: before.ids };
    const found = await Promise.all([body, { ...body, changes: [change] }].map(each => post("api/score", each, signal)));
    return found.map(({ loss }) => loss);
  }

  async drawWithout(role, layer, head, { before, after, losses, look }) {
    const old = this.seen.find(each => each.role === role);
    const known = this.reports.get(this.model.name)?.heads.find(each => each.role === role && each.layer === layer && each.head === head);
    const maps = await Promise.all([old, look].map(each => each && mapOf(`api/look/${encodeURIComponent(each.id)}/mean/mean?role=${role}`).catch(() => null)));
    const apart = maps[0] && maps[1] && maps[0].bytes.length === maps[1].bytes.length ? furthest(...maps) : null;
    const places = [], figure = (i, words, text) => {
      const place = new HeatMap({ label: words, tell: (row, column) => ["", plain([old, look][i].target[row]), " looked at ", plain([old, look][i].source[column])] });
      places.push(() => maps[i] && place.draw(maps[i], [old, look][i].target, [old, look][i].source));
      return h("figure", { class: "side-map" }, h("figcaption", {}, words), text !== null && h("p", { class: "text", dir: "auto" }, text || "∅"), maps[i] && place.element);
    };
    show(this.without, section(`Without ${role}, layer ${layer}, head ${head}`, before.text !== null &&
      h("p", {}, before.text === after.text ? "It says the same without this head." : "It says something else without this head."),
    h("div", { class: "pair" }, figure(0, "With all heads; mean of all", before.text), figure(1, "Without it; mean of all", after.text)),
    apart !== null && h("p", { class: "note" }, `The mean map changes by at most ${number(apart)}.`),
    losses && h("p", { class: "losses" }, `The loss of ${before.shares ? "what it said first" : this.model.abilities.includes("generate") ? "this text" : "its own translation"} goes from ${number(losses[0])} to `, h("b", {}, number(losses[1])), before.shares ? " nats." : " nats a token."),
    known?.removed && h("p", {}, `On validation data the loss is ${number(known.removed.value)} nats higher without it.`)));
    for (const draw of places) draw(); // maps are as large as the room that they now have
  }
}

/* A head of the URL, as in cross.1.0, as a change of the model. */
function taken(out) {
  const [role, layer, head] = out.split(".");
  return { kind: "remove", role, layer: Number(layer), head: Number(head) };
}

/* The greatest difference between two maps of the same shape. */
function furthest(one, other) {
  const weight = (map, i) => map.masked && map.bytes[i] === 255 ? 0 : map.bytes[i] / map.top * map.peak;
  return one.bytes.reduce((most, _, i) => Math.max(most, Math.abs(weight(one, i) - weight(other, i))), 0);
}
