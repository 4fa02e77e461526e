/* Generate: probabilities under each token while it is written, what could have stood there, and what sampling cuts off. */
import { Latest, post, stream } from "../api.js";
import { cutBars, drawnFrom } from "../parts/bars.js";
import { command, pythonLines, showCall } from "../parts/call.js";
import { checkbox, choice, examples, field, heading, modelSelect, noModel, problemCard, section, slider, waiting } from "../parts/controls.js";
import { debounced, h, say, show } from "../parts/dom.js";
import { Looking } from "../parts/looking.js";
import { percent, visible } from "../parts/numbers.js";
import { firing } from "../parts/patterns.js";
import { savingResult } from "../parts/saving.js";
import { TokenLine } from "../parts/tokens.js";
import { go } from "../url.js";

const DEFAULTS = { length: 40, temperature: 1, top: 1, seed: 1 };
const SHOWN = 12; // bars at first
const FRESH = { branch: null, word: null };

export function open(main, query, studio) {
  const { able, model } = choice(studio, ["generate"], query);
  const title = heading("Generate", "Begin a text and let the model go on. Choose any token to see what else could have stood there, and branch off.");
  if (!model) {
    show(main, title, noModel(studio, "generate"));
    return {};
  }
  const page = new Generate(studio, able);
  show(main, title, page.element);
  page.update(query);
  return page;
}

class Generate {
  constructor(studio, able) {
    Object.assign(this, { studio, able, latest: new Latest(), next: new Latest(), tokens: [] });
    this.box = h("textarea", { rows: 3, dir: "auto", spellcheck: "false", onkeydown: event => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.start();
    } });
    this.button = h("button", { type: "button", class: "main", onclick: () => this.running ? this.stop() : this.start() }, "Go on");
    this.bar = h("div", { class: "row" });
    this.tries = h("div");
    this.line = new TokenLine({ label: "Written tokens; choose one for what could stand there", choose: i => go({ word: String(i) === this.query.word ? null : i }) });
    this.state = h("div", {});
    this.choicePlace = h("div");
    this.firing = h("div");
    this.call = h("div");
    this.looking = new Looking({ go, onlook: () => this.drawFiring() });
    const look = section("Where it looked", this.firing, this.looking.element);
    this.knobs = h("div", { class: "row knobs" });
    const start = h("div", { class: "card box" }, field("Beginning", this.box), this.tries, this.knobs, h("div", { class: "row end" }, this.button));
    const out = section("What it wrote", this.context = h("p", { class: "context", dir: "auto" }), this.line.element, this.state, this.files = h("div"));
    this.element = h("div", {}, this.bar, h("div", { class: "pair" }, start, this.choicePlace), out, this.call, look);
  }

  update(query) {
    const { model } = choice(this.studio, ["generate"], query);
    const prompt = query.prompt ?? model.examples[0] ?? "", branch = query.branch ?? "";
    Object.assign(this, { query, model, prompt, branch, begun: prompt + branch }); // a branch is text that a person chose
    this.settings = { length: Number(query.length ?? DEFAULTS.length), temperature: Number(query.temperature ?? 1), topP: Number(query.top ?? 1), sample: query.sample === "1", seed: Number(query.seed ?? 1) };
    if (document.activeElement !== this.box) this.box.value = this.prompt;
    this.drawBar();
    show(this.tries, examples(model.examples, prompt => { this.box.value = prompt; go({ ...FRESH, prompt }); }));
    return this.generate();
  }

  close() {
    this.latest.stop();
    this.next.stop();
  }

  start() {
    go({ ...FRESH, prompt: this.box.value });
    if (this.asked && !this.running) this.again();
  }

  again() {
    this.asked = "";
    this.generate();
  }

  stop() {
    this.latest.stop();
    this.ended("Stopped.");
  }

  drawBar() {
    if (this.knobs.contains(document.activeElement) && this.model.name === this.barOf) { // a knob is being turned
      this.random.firstChild.checked = this.settings.sample;
      return;
    }
    this.barOf = this.model.name;
    const soon = (name, usual, more = {}) => debounced(value => go({ [name]: value === usual ? null : value, ...FRESH, ...more }, { replace: true }), 300);
    const draws = { sample: 1 }; // what only drawing heeds turns it on
    const { length, temperature, topP, sample, seed } = this.settings;
    const digits = value => value.toFixed(2);
    show(this.bar, modelSelect(this.able, this.model, name => go({ ...FRESH, model: name, prompt: null, role: null, layer: null, head: null })));
    show(this.knobs, slider({ label: "Tokens", min: 5, max: 200, step: 5, value: length, change: soon("length", DEFAULTS.length) }),
      this.random = checkbox("draw at random", sample, on => go({ sample: on ? 1 : null })),
      slider({ label: "Temperature", min: 0.1, max: 2, step: 0.05, value: temperature, tell: digits, change: soon("temperature", 1, draws) }),
      slider({ label: "Top-p", min: 0.05, max: 1, step: 0.05, value: topP, tell: digits, change: soon("top", 1, draws) }),
      slider({ label: "Seed", min: 1, max: 20, value: seed, change: soon("seed", 1, draws) }));
  }

  request() {
    return { model: this.model.name, prompt: this.begun, max_length: this.settings.length, ...this.drawing() };
  }

  /* How tokens are chosen; without drawing, the likeliest. */
  drawing() {
    const { temperature, topP, sample, seed } = this.settings;
    return sample ? { sample: true, temperature, top_p: topP, seed } : { sample: false, beam: 1 };
  }

  /* --- Writing, token by token */

  async generate() {
    const request = this.request(), asked = JSON.stringify(request);
    if (asked === this.asked) return this.drawChosen();
    Object.assign(this, { asked, tokens: [], running: true });
    this.button.textContent = "Stop";
    this.drawCall(request);
    show(this.state, waiting("Writing"));
    show(this.files);
    this.line.draw([]);
    try {
      const whole = await this.latest.run(async signal => {
        let found = null;
        await stream("api/generate", { ...request, stream: true }, (name, data) => {
          if (signal.aborted) return;
          if (name === "piece") this.heard(data);
          else if (name === "done") found = data;
        }, signal);
        return { found };
      });
      return whole && this.finished(whole.found);
    } catch (error) {
      this.asked = "";
      this.ended();
      return show(this.state, problemCard(error));
    }
  }

  /* Pieces come as they become certain; one of several tokens has their probability together, until the whole tells each. */
  heard({ text, token_log_probabilities: each }) {
    this.tokens.push({ label: text, probability: Math.exp(each.reduce((sum, one) => sum + one, 0)) });
    this.drawLine();
  }

  drawLine() {
    this.line.draw(this.tokens, this.query.word === undefined ? null : Number(this.query.word));
    show(this.context, h("span", {}, this.prompt), this.branch && h("span", { class: "branch", title: "your choice" }, this.branch));
  }

  finished(result) {
    if (result?.tokens) {
      this.tokens = result.tokens.map((label, i) => ({ label, id: result.ids?.[i], probability: Math.exp(result.token_log_probabilities[i]) }));
    }
    this.text = result?.text ?? this.tokens.map(token => token.label).join("");
    this.drawLine();
    say(`Written: ${this.text}`);
    this.ended(result?.finished ? "The model ended here by itself." : "");
    if (result) show(this.files, savingResult("the text", "text", { ...result, text: this.begun + result.text }));
    this.drawChosen();
  }

  ended(words = "") {
    this.running = false;
    this.button.textContent = "Go on";
    const branched = this.branch && h("button", { type: "button", class: "link", onclick: () => go(FRESH) }, "Back to the model's own text");
    show(this.state, h("p", { class: "note" }, words, " ", branched));
  }

  drawCall(request) {
    const { model, begun } = this, { length, temperature, topP, sample, seed } = this.settings;
    show(this.call, showCall({
      path: "api/generate", body: request, lines: pythonLines(model, "generate", [begun], { max_length: length, ...this.drawing() }),
      command: command("regard", "generate", "-m", model.path ?? model.name, begun, "--length", String(length),
        ...sample ? ["--temperature", String(temperature), "--top-p", String(topP), "--seed", String(seed)] : ["--beam", "1"]),
    }));
  }

  /* --- What could have stood there, and what temperature and top-p leave of it */

  async drawChosen() {
    if (this.running) return undefined;
    this.drawLine();
    if (this.running === false) this.looking.update({ model: this.model.name, text: this.begun + (this.text ?? "") }, this.query);
    const place = Number(this.query.word ?? 0);
    const before = this.tokens.slice(0, place).map(token => token.id);
    if (before.some(id => id === undefined)) return show(this.choicePlace);
    const request = { model: this.model.name, prompt: this.begun, prefix: before, count: 1000 }, asked = JSON.stringify(request);
    try {
      const found = asked === this.likely?.asked ? this.likely.found : await this.next.run(signal => post("api/next", request, signal));
      if (!found) return undefined;
      this.likely = { asked, found };
      return show(this.choicePlace, this.cut(found, place));
    } catch (error) {
      return show(this.choicePlace, problemCard(error));
    }
  }

  cut({ tokens, vocabulary }, place) {
    const { sample, temperature, topP } = this.settings;
    const beyond = Math.max(0, (vocabulary ?? tokens.length) - tokens.length);
    const rows = drawnFrom(tokens, sample ? { temperature, topP } : { topK: 1 }, beyond);
    const kept = rows.filter(row => row.kept).length, mass = rows.reduce((sum, row) => sum + (row.kept ? row.tempered : 0), 0);
    const many = kept < rows.length || !beyond ? kept : topP < 1 ? `at least ${kept}` : "all";
    const behind = this.tokens.slice(0, place).map(token => token.label).join(""), text = this.begun + behind;
    const said = !sample ? "Without drawing, the likeliest is always taken; all others are cut."
      : `Temperature ${temperature.toFixed(2)} and top-p ${topP.toFixed(2)} keep ${many} of ${(vocabulary ?? tokens.length).toLocaleString("en")} tokens${kept < rows.length ? `, ${percent(mass)} of the mass` : ""}.`;
    return section(place ? `What could follow, at token ${place + 1}` : "What could come first",
      h("p", { class: "context", dir: "auto" }, "…", visible(text.slice(-36)), h("b", {}, "▁")), h("p", { class: "note" }, said),
      cutBars(rows.slice(0, SHOWN), token => go({ branch: this.branch + behind + token.label, word: null })),
      h("p", { class: "legend" }, h("span", { class: "key raw" }), " the model's own ", h("span", { class: "key kept" }), " what is drawn from · choose one to go on from there"));
  }

  /* --- Heads that fire: of each head, the pattern that its map follows on this text */

  async drawFiring() {
    const look = this.looking.look;
    if (look.role !== "causal" || look.source.length > 400) return show(this.firing);
    const found = [];
    for (const { layer, heads } of look.layers) {
      for (let head = 0; head < heads; head += 1) {
        if (this.looking.look !== look) return undefined;
        const map = await this.looking.mapAt(layer, head).catch(() => null);
        if (map) found.push(...firing(map, look.source).map(pattern => ({ ...pattern, layer, head })));
      }
    }
    this.looking.markFiring(found);
    if (!found.length) return show(this.firing, h("p", { class: "note" }, "On this text no head follows a simple pattern (previous token, first token, induction)."));
    found.sort((a, b) => b.share - a.share);
    return show(this.firing, h("ul", { class: "chips", "aria-label": "Heads that fire" }, found.slice(0, 12).map(({ name, layer, head, share }) => h("li", {},
      h("button", { type: "button", class: `chip ${name.split(" ")[0]}`, onclick: () => go({ role: look.role, layer, head }) }, h("b", {}, name), ` layer ${layer}, head ${head} · ${percent(share)}`)))));
  }
}
