/* Train: the runs of this folder, live; their curves side by side, what they wrote, and how their attention formed. */
import { Latest, get, mapOf, post } from "../api.js";
import { chart } from "../parts/chart.js";
import { python, showCall } from "../parts/call.js";
import { field, heading, player, problemCard, section, select, slider } from "../parts/controls.js";
import { h, scrolling, show } from "../parts/dom.js";
import { HeatMap, mapLegend } from "../parts/map.js";
import { duration, number, plain } from "../parts/numbers.js";
import { savingMap } from "../parts/saving.js";
import { go } from "../url.js";

const POLL = 2000; // milliseconds, while a run is running and the page is seen
const MOST = 6; // runs side by side
const SAYS = ["translate", "generate", "classify"]; // what a run's model can be asked for samples

export function open(main, query, studio) {
  const page = new Train(studio);
  show(main, heading("Train", "Runs of the folder in which the studio was started. Choose several to lay their curves side by side."), page.element);
  page.update(query);
  return page;
}

/* The rows of a log, apart: what was learned, and what was found on held-out data. */
function detailed(run) {
  const of = kind => run.rows.filter(row => row.kind === kind);
  return { ...run, curve: of("train"), checks: of("valid") };
}

class Train {
  constructor(studio) {
    Object.assign(this, { studio, runs: null, details: new Map(), latest: new Latest(), timer: 0 });
    this.list = h("div");
    this.curves = h("div");
    this.one = h("div");
    this.formation = new Formation();
    this.element = h("div", {}, this.list, this.curves, this.one, this.formation.element);
  }

  async update(query) {
    this.query = query;
    if (this.runs) this.drawList();
    await this.poll();
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.latest.stop();
    this.formation.close();
  }

  get chosen() {
    const known = this.runs.map(run => run.id), wanted = (this.query.runs ?? "").split("~").filter(id => known.includes(id));
    return wanted.length ? wanted.slice(0, MOST) : known.slice(0, 1);
  }

  /* --- Asking again while something runs */

  async poll() {
    clearTimeout(this.timer);
    try {
      const found = await this.latest.run(async signal => {
        const { runs } = await get("api/runs", signal);
        this.runs = runs;
        const stale = runs.filter(run => this.chosen.includes(run.id) && (run.state === "running" || this.details.get(run.id)?.state !== run.state)); // also once more at its end
        for (const run of stale) this.details.set(run.id, detailed(await get(`api/runs/${encodeURIComponent(run.id)}`, signal)));
        return true;
      });
      if (!found || this.closed) return;
      this.draw();
    } catch (error) {
      show(this.list, problemCard(error));
    }
    const live = this.runs?.some(run => run.state === "running");
    this.timer = setTimeout(() => this.poll(), live ? POLL : 5 * POLL);
  }

  draw() {
    this.drawList();
    if (!this.runs.length) return;
    const chosen = this.chosen.map(id => this.details.get(id)).filter(Boolean);
    this.drawCurves(chosen);
    this.drawSamples(chosen);
    this.formation.update(chosen[0], this.query);
  }

  drawList() {
    if (!this.runs.length) {
      show(this.list, section("There is no run here yet", h("p", {}, "Start one in this folder; it appears here while it learns:"), h("pre", {}, h("code", {}, "regard train translate --budget 1m"))));
      return;
    }
    const { chosen } = this, state = JSON.stringify([this.runs, chosen]);
    if (state === this.listState) return;
    this.listState = state;
    const focus = document.activeElement?.dataset?.run; // the list is drawn anew while a person is on it
    const toggle = id => {
      const next = chosen.includes(id) ? chosen.filter(each => each !== id) : [...chosen, id];
      go({ runs: next.join("~") || null, probe: null, at: null });
    };
    const row = run => h("tr", {}, h("td", {}, this.tick(run, chosen, toggle)), h("th", { scope: "row", title: run.folder }, run.id), h("td", { class: "of-task" }, run.task),
      h("td", {}, h("span", { class: `state ${run.state}`, title: run.reason || null }, run.state)), h("td", { class: "n" }, number(run.steps)),
      h("td", { class: "n" }, run.best === null ? "–" : `${number(run.best, 2)} ${run.metric}`), h("td", { class: "n" }, run.seconds ? duration(run.seconds) : "–"));
    show(this.list, section("Runs", scrolling("Runs", h("table", { class: "list" }, h("caption", { class: "unseen" }, "Runs"),
      h("thead", {}, h("tr", {}, ["", "run", "task", "state", "steps", "best", "time"].map((name, i) => h(name ? "th" : "td", { scope: name ? "col" : null, class: i > 3 ? "n" : name === "task" ? "of-task" : null }, name)))),
      h("tbody", {}, this.runs.map(row))))));
    if (focus) this.list.querySelector(`[data-run="${CSS.escape(focus)}"]`)?.focus();
  }

  tick(run, chosen, toggle) {
    const place = chosen.indexOf(run.id);
    const control = h("input", { type: "checkbox", "data-run": run.id, "aria-label": `Show ${run.id}`, class: place >= 0 ? `c${place}` : null, onchange: () => toggle(run.id) });
    control.checked = place >= 0;
    return control;
  }

  drawCurves(chosen) {
    const state = JSON.stringify(chosen.map(run => [run.id, run.curve.length, run.checks.length]));
    if (state === this.curveState) return;
    this.curveState = state;
    const losses = chosen.flatMap((run, color) => [
      { name: `${run.id}, training`, color, dashed: true, points: run.curve.map(row => [row.step, row.loss]) },
      { name: `${run.id}, held out`, color, points: run.checks.map(row => [row.step, row.loss]) }]);
    const metrics = [...new Set(chosen.flatMap(run => run.checks.flatMap(row => Object.keys(row))))].filter(name => !["kind", "step", "loss", "best", "by", "errors"].includes(name));
    const wanted = chosen[0].metric && metrics.includes(chosen[0].metric) ? chosen[0].metric : metrics[0];
    show(this.curves, section("Curves", h("div", { class: "charts" }, chart("Loss", losses),
      wanted && chart(wanted, chosen.map((run, color) => ({ name: run.id, color, points: run.checks.map(row => [row.step, row[wanted]]) }))))));
  }

  /* What the models of the runs say now, for a few inputs of the first; asked once for each state of the runs. */
  async drawSamples(runs) {
    const state = JSON.stringify(runs.map(run => [run.id, run.checks.length]));
    if (state === this.sampleState) return;
    this.sampleState = state;
    const named = () => runs.map(run => this.studio.models.find(each => each.name === run.id));
    if (named().includes(undefined)) await this.studio.refresh(); // a run that began after the page was opened
    const models = named(), verb = SAYS.find(ability => models[0]?.abilities.includes(ability));
    const able = models.filter(model => model?.abilities.includes(verb)), inputs = verb ? models[0].examples.filter(each => typeof each === "string").slice(0, 5) : [];
    const body = (model, text) => verb === "generate" ? { model: model.name, prompt: text, max_length: 24 } : { model: model.name, text };
    const said = (model, text) => post(`api/${verb}`, body(model, text)).then(found => found.label ?? found.text, () => "–");
    const found = await Promise.all(inputs.map(text => Promise.all(able.map(model => said(model, text)))));
    if (state !== this.sampleState || this.closed) return;
    const rows = inputs.map((text, i) => h("tr", {}, [text, ...found[i]].map(each => h("td", { dir: "auto" }, each))));
    show(this.one, rows.length > 0 && section(runs.length > 1 ? "What they say now" : "What it says now", scrolling("Samples", h("table", { class: "list samples-of" }, h("caption", { class: "unseen" }, "Samples"),
      h("thead", {}, h("tr", {}, ["given", ...able.map(model => model.name)].map(name => h("th", { scope: "col" }, name)))), h("tbody", {}, rows)))),
    showCall({ path: `api/runs/${encodeURIComponent(runs[0].id)}`, command: "regard runs",
      lines: ["from pathlib import Path", "from regard.training.history import read_history", "", `history = read_history(Path(${python(runs[0].folder)}))`] }));
    if (models.includes(undefined) && this.askedAgain !== state) { // its folder may be newer than the server's list: once more
      this.askedAgain = state;
      this.sampleState = "";
    }
  }
}

/* The maps of a run's probes, with a slider over the steps at which they were kept. */
class Formation {
  constructor() {
    this.latest = new Latest();
    this.cache = new Map();
    this.map = new HeatMap({ label: "Attention of a probe", tell: (row, column) => ["", plain(this.probe.target[row]), " looked at ", plain(this.probe.source[column])] });
    this.bar = h("div", { class: "row" });
    this.body = section("How its attention formed", this.whose = h("p", { class: "note" }), this.bar, this.map.element, this.legend = h("div"), this.files = h("div"));
    this.element = h("div", {}, this.body);
    this.body.hidden = true;
  }

  close() {
    this.latest.stop();
  }

  async update(run, query) {
    this.body.hidden = !run.probes || !run.steps_probed.length;
    if (this.body.hidden) return;
    const text = Math.min(Number(query.probe ?? 0), run.probes - 1), asked = JSON.stringify([run.id, text, query.role, run.steps_probed]);
    Object.assign(this, { run, query, text });
    show(this.whose, `${run.id}: the same text at every validation, from even to where it looks now.`);
    if (asked !== this.asked) {
      this.asked = asked;
      const { steps, roles, by_role: layers } = await get(`api/runs/${encodeURIComponent(run.id)}/probes/${text}`);
      const role = roles.includes(query.role) ? query.role : roles.includes("cross") ? "cross" : roles[0];
      this.probe = { steps, roles, role, ...layers[role] };
      this.drawBar();
    }
    await this.show();
  }

  get at() {
    const { steps } = this.probe, place = this.query.at === undefined ? steps.length - 1 : steps.indexOf(Number(this.query.at));
    return place < 0 ? steps.length - 1 : place;
  }

  drawBar() {
    const { run, probe, query } = this, heads = probe.layers.flatMap(({ layer, heads }) => Array.from({ length: heads }, (_, head) => [`${layer}.${head}`, `layer ${layer}, head ${head}`]));
    this.steps = slider({ label: "Step", min: 0, max: probe.steps.length - 1, value: this.at, tell: place => `${probe.steps[place]} of ${probe.steps.at(-1)}`, change: place => go({ at: probe.steps[place] }, { replace: true }) });
    show(this.bar, this.steps, player(this.steps, 450),
      run.probes > 1 && field("Text", select(Array.from({ length: run.probes }, (_, i) => [i, `text ${i + 1}`]), this.text, probe => go({ probe, role: null, layer: null, head: null }))),
      probe.roles.length > 1 && field("Attention", select(probe.roles.map(role => [role, role]), probe.role, role => go({ role, layer: null, head: null }))),
      field("Head", select([["mean.mean", "mean of all heads"], ...heads], `${query.layer ?? "mean"}.${query.head ?? "mean"}`, value => {
        const [layer, head] = value.split(".");
        go({ layer: layer === "mean" ? null : layer, head: head === "mean" ? null : head });
      })));
  }

  async show() {
    const { run, probe, text, query } = this, step = probe.steps[this.at];
    const address = `api/runs/${encodeURIComponent(run.id)}/probes/${text}/${step}/${query.layer ?? "mean"}/${query.head ?? "mean"}?role=${probe.role}`;
    if (address === this.shown) return;
    this.shown = address;
    if (document.activeElement !== this.steps.input) this.steps.set(this.at);
    const known = this.cache.get(address) ?? await this.latest.run(signal => mapOf(address, signal));
    if (!known) return;
    this.cache.set(address, known);
    this.map.draw(known, probe.target, probe.source);
    show(this.legend, mapLegend(known));
    show(this.files, savingMap(address, ["attention", probe.role, `step-${step}`].join("-")));
  }
}
