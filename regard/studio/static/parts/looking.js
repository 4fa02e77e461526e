/* "Where it looked": a text's attention with a choice of role, layer and head, the map, and both token lines shaded by it. */
import { Latest, get, mapOf, post } from "../api.js";
import { field, problemCard, select, waiting } from "./controls.js";
import { h, show } from "./dom.js";
import { HeatMap, mapLegend, thumbnail } from "./map.js";
import { plain } from "./numbers.js";
import { savingMap } from "./saving.js";
import { TokenLine } from "./tokens.js";

export const NAMES = { cross: "cross-attention", self: "self-attention", causal: "causal self-attention", pool: "pooling" };
const MOST_LINE = 300; // tokens; a longer line of buttons is no line any more
const MOST_PANELS = 36, PANEL_CELLS = 64 * 64; // thumbnails of heads
const LARGE = 400 * 400; // cells; of a larger map one head is shown first: the mean of all takes the server longer

export class Looking {
  /* `go(changes)` puts role, layer and head into the URL; `choose(row, column)` hears a chosen cell of cross-attention. */
  constructor({ go, choose = null, onlook = () => {} }) {
    Object.assign(this, { go, choose, onlook });
    this.latest = new Latest();
    this.fetching = new Latest();
    this.source = new TokenLine({ label: "Tokens that are read", point: i => this.pointSource(i) });
    this.target = new TokenLine({ label: "Tokens that look", point: i => this.pointTarget(i) });
    this.map = new HeatMap({ label: "Attention", tell: (row, column) => this.tell(row, column), point: (row, column) => this.pointMap(row, column) });
    this.choices = h("div", { class: "row" });
    this.lines = h("div", { class: "two-lines" });
    this.panels = h("div", { class: "panels" });
    this.legend = h("div");
    this.notes = h("div", { class: "notes" });
    this.files = h("div");
    this.body = h("div", { class: "looking" }, h("div", { class: "looked" }, this.map.element, this.legend, this.files), this.panels);
    this.element = h("div", {}, this.choices, this.lines, this.body, this.notes);
    this.asked = "";
  }

  /* Look at what `request` says ({model, text, second?, changes?}); null shows nothing. `where` has role, layer and head. */
  async update(request, where) {
    const asked = JSON.stringify(request);
    this.where = where;
    if (asked === this.asked) return this.whole && this.turn();
    Object.assign(this, { asked, whole: null });
    if (!request) return undefined;
    const late = setTimeout(() => show(this.choices, waiting("Looking")), 300);
    try {
      const whole = await this.latest.run(signal => post("api/look", request, signal));
      clearTimeout(late);
      if (!whole) return undefined;
      Object.assign(this, { whole, look: null, maps: new Map() });
      await this.turn();
      return await this.drawNotes();
    } catch (error) {
      this.asked = "";
      return show(this.choices, problemCard(error));
    } finally {
      clearTimeout(late);
    }
  }

  /* Show the role, the layer and the head that the URL names: first the map, then all heads beside it. */
  async turn() {
    const { whole } = this, role = whole.roles.includes(this.where.role) ? this.where.role : whole.role;
    const other = this.look?.role !== role;
    if (other) {
      const found = { ...whole, role, ...whole.by_role[role] };
      this.look = role === "pool" && found.target.length === 1 ? { ...found, target: ["text"] } : found;
      this.map.choose = role === "cross" ? this.choose : null; // what is written is chosen by what it reads
      this.drawRole();
    }
    this.drawChoices();
    const { look } = this;
    await this.fetchMap();
    if (!other || this.look !== look) return;
    this.onlook(look);
    this.fillPanels();
  }

  drawChoices() {
    const { look } = this, roles = look.roles.map(role => [role, NAMES[role] ?? role]), heads = this.headOptions();
    show(this.choices,
      roles.length > 1 && field("Attention", select(roles, look.role, role => this.go({ role, layer: null, head: null }))),
      heads.length > 2 && field("Head", select(heads, this.place.join("."), value => this.go({ role: look.role, ...this.named(...value.split(".")) }))));
  }

  drawRole() {
    const { look } = this, short = look.source.length <= MOST_LINE && look.target.length <= MOST_LINE;
    this.source.draw(short ? look.source : []);
    this.target.draw(short ? look.target : []);
    show(this.lines, short && [h("div", {}, h("span", { class: "side" }, "reads"), this.source.element),
      look.target.length > 1 && h("div", {}, h("span", { class: "side" }, look.role === "cross" ? "writes" : "looks"), this.target.element)]);
    this.drawPanels();
  }

  /* The layer and the head that are shown: those of the URL, else the mean of all; of a large map the first head. */
  get place() {
    const { layer, head } = this.where;
    return layer === undefined ? this.usual : [layer, head ?? "mean"];
  }

  get usual() {
    return this.look.source.length * this.look.target.length > LARGE ? ["0", "0"] : ["mean", "mean"];
  }

  /* A layer and a head as the URL names them; what is shown anyway is not named. */
  named(layer, head) {
    return `${layer}.${head}` === this.usual.join(".") ? { layer: null, head: null } : { layer, head: head === "mean" ? null : head };
  }

  /* What there is to say of the pass. Whether the weights are true is asked for where it was not told yet. */
  async drawNotes() {
    const { whole } = this, notes = whole.notes.map(note => h("p", { class: "note" }, note));
    show(this.notes, notes);
    const difference = whole.difference ?? (await get(`api/look/${encodeURIComponent(whole.id)}/difference`).catch(() => ({}))).difference;
    if (this.whole !== whole || difference === undefined) return;
    const by = difference ? `differ from the model's own by at most ${difference.toExponential(1)}` : "are the model's own, bit by bit";
    show(this.notes, notes, h("p", { class: difference > 1e-3 ? "problem" : "note" }, `Outputs rebuilt from these weights ${by}.`));
  }

  headOptions() {
    const { layers } = this.look;
    const all = layers.length > 1 ? [["mean.mean", "mean of all heads"]] : [];
    const each = layers.flatMap(({ layer, heads }) => [
      [layers.length > 1 ? `${layer}.mean` : "mean.mean", layers.length > 1 ? `layer ${layer}, mean of ${heads}` : `mean of ${heads} heads`],
      ...Array.from({ length: heads }, (_, head) => [`${layer}.${head}`, `layer ${layer}, head ${head}`])]);
    return [...all, ...each];
  }

  address(layer, head) {
    return `api/look/${encodeURIComponent(this.look.id)}/${layer}/${head}?role=${this.look.role}`;
  }

  /* One map, asked for once however many want it. */
  mapAt(layer, head) {
    const address = this.address(layer, head);
    if (!this.maps.has(address)) this.maps.set(address, mapOf(address));
    return this.maps.get(address);
  }

  async fetchMap() {
    try {
      const map = await this.fetching.run(() => this.mapAt(...this.place));
      if (!map) return;
      this.map.label = this.title();
      this.map.draw(map, this.look.target, this.look.source);
      show(this.legend, mapLegend(map));
      show(this.files, savingMap(this.address(...this.place), ["attention", this.look.role, ...this.place].join("-")));
      this.markPanel();
    } catch (error) {
      show(this.legend, problemCard(error));
    }
  }

  title() {
    const [layer, head] = this.place;
    const place = layer === "mean" ? "mean of all heads" : head === "mean" ? `layer ${layer}, mean of its heads` : `layer ${layer}, head ${head}`;
    return `${NAMES[this.look.role] ?? this.look.role}, ${place}`;
  }

  /* --- All heads, small */

  /* Their places, empty: the map is as large as the room that they leave. */
  drawPanels() {
    const { look } = this, many = look.layers.reduce((sum, layer) => sum + layer.heads, 0);
    if (many < 2 || many > MOST_PANELS || look.source.length * look.target.length > PANEL_CELLS) return show(this.panels);
    return show(this.panels, h("h3", {}, "Every head"), look.layers.map(({ layer, heads }) => h("div", { class: "layer" }, h("span", { class: "side" }, `layer ${layer}`),
      Array.from({ length: heads }, (_, head) => h("button", { type: "button", "data-head": `${layer}.${head}`, "aria-label": `layer ${layer}, head ${head}`, title: `layer ${layer}, head ${head}`,
        onclick: () => this.go({ role: look.role, layer, head }) })))));
  }

  async fillPanels() {
    const { look } = this;
    for (const layer of this.panels.querySelectorAll(".layer")) {
      if (this.look !== look) return;
      await Promise.all(Array.from(layer.querySelectorAll("button"), async button => {
        const map = await this.mapAt(...button.dataset.head.split(".")).catch(() => null);
        if (map) show(button, thumbnail(map));
      }));
    }
  }

  /* Mark heads that are said to do something: [{layer, head, name, share}]. */
  markFiring(found) {
    for (const button of this.panels.querySelectorAll("button")) {
      const said = found.filter(({ layer, head }) => button.dataset.head === `${layer}.${head}`).map(({ name }) => name), [layer, head] = button.dataset.head.split(".");
      button.classList.toggle("fires", said.length > 0);
      button.title = [`layer ${layer}, head ${head}`, ...said].join(": ");
    }
  }

  markPanel() {
    for (const button of this.panels.querySelectorAll("button")) {
      button.setAttribute("aria-pressed", button.dataset.head === this.place.join("."));
    }
  }

  /* --- Pointing: words for a cell, shades on both lines */

  tell(row, column) {
    const { role, source, target } = this.look, from = plain(target[row]), to = plain(source[column]);
    if (role === "cross") return ["writing ", from, " read ", to];
    return role === "pool" ? ["the text's vector takes from ", to] : ["", from, " looked at ", to];
  }

  pointMap(row, column) {
    this.source.shade(row === null ? null : this.rowOf(row));
    this.target.shade(column === null ? null : this.columnOf(column));
  }

  pointTarget(row) {
    const nothing = row === null || !this.map.map; // words are there before their weights
    this.source.shade(nothing ? null : this.rowOf(row));
    this.map.mark(nothing ? null : [row, this.best(row)]);
  }

  pointSource(column) {
    this.target.shade(column === null || !this.map.map ? null : this.columnOf(column));
  }

  rowOf(row) {
    return this.look.source.map((_, column) => (this.map.weight(row, column) ?? 0) / this.map.map.scale);
  }

  columnOf(column) {
    return this.look.target.map((_, row) => (this.map.weight(row, column) ?? 0) / this.map.map.scale);
  }

  best(row) {
    const weights = this.rowOf(row);
    return weights.indexOf(Math.max(...weights));
  }
}
