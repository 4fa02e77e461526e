/* An attention map that tells the weight under the pointer or under the keyboard's cursor.

   Few cells become a table with their numbers; many become a canvas of one pixel a cell, as large as there is room for.
   Both answer to arrows, Home, End and Page Up and Down; Enter or a click chooses a cell. */
import { place } from "../figures/heatmap.js";
import { colorOf, drawn, shade, unshade } from "./colors.js";
import { h, say, show } from "./dom.js";
import { plain, share } from "./numbers.js";

const FEW_CELLS = 1200, FEW_COLUMNS = 44; // more are a canvas
const WITH_NUMBERS = 15; // columns at most, for cells to show their weights

export class HeatMap {
  /* `tell(row, column, weight)` gives the words for a cell; `point(row, column)` hears where the cursor is (null: nowhere);
     `choose(row, column)` hears clicks and Enter. */
  constructor({ label, tell, point = () => {}, choose = null }) {
    Object.assign(this, { label, tell, point, choose });
    this.told = h("p", { class: "told-line" });
    this.frame = h("div", { class: "frame" });
    this.element = h("div", { class: "heat" }, this.told, this.frame);
    this.cursor = [0, 0];
  }

  /* Show a map as `api.js:mapOf` gives it, with the labels of its rows and columns. */
  draw(map, rows, columns) {
    Object.assign(this, { map, rows, columns });
    this.cursor = [Math.min(this.cursor[0], map.rows - 1), Math.min(this.cursor[1], map.columns - 1)];
    const small = map.rows * map.columns <= FEW_CELLS && map.columns <= FEW_COLUMNS;
    show(this.frame, small ? this.table() : this.canvas());
    this.rest();
  }

  /* The weight of a cell; null where a query must not look. */
  weight(row, column) {
    const byte = this.map.bytes[row * this.map.columns + column];
    return this.map.masked && byte === 255 ? null : byte / this.map.top * this.map.peak;
  }

  /* The words while nothing is pointed at. */
  rest() {
    const keys = this.choose ? "Point at a cell, or use the arrow keys; Enter chooses." : "Point at a cell, or use the arrow keys.";
    show(this.told, h("span", { class: "note" }, keys));
    this.mark(null);
    this.point(null, null);
  }

  at(row, column, aloud = false) {
    const weight = this.weight(row, column), words = this.tell(row, column);
    const last = weight === null ? "masked" : share(weight);
    show(this.told, words.map((word, i) => i % 2 ? h("em", { dir: "auto" }, word) : word), " ", h("b", {}, last));
    if (aloud) say(`${words.join("")} ${last}`);
    this.mark([row, column]);
    this.point(row, column);
  }

  move(event) {
    const [row, column] = this.cursor, { rows, columns } = this.map;
    const page = Math.max(1, Math.round(rows / 10));
    const steps = {
      ArrowUp: [row - 1, column], ArrowDown: [row + 1, column], ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1],
      Home: [row, 0], End: [row, columns - 1], PageUp: [row - page, column], PageDown: [row + page, column],
    };
    if ((event.key === "Enter" || event.key === " ") && this.choose) {
      event.preventDefault();
      this.choose(row, column);
    }
    if (!steps[event.key]) return false;
    event.preventDefault();
    const limit = (value, most) => Math.max(0, Math.min(most - 1, value));
    this.cursor = [limit(steps[event.key][0], rows), limit(steps[event.key][1], columns)];
    this.at(...this.cursor, true);
    return true;
  }

  /* --- Few cells: a table */

  table() {
    const { rows, columns } = this.map, numbers = columns <= WITH_NUMBERS;
    const wide = this.columns.some(label => plain(label).length > 3);
    this.cells = [];
    const head = h("tr", {}, h("td"), this.columns.map(label =>
      h("th", { scope: "col" }, h("span", { class: wide ? null : "upright", dir: "auto" }, plain(label)))));
    const body = Array.from({ length: rows }, (_, row) =>
      h("tr", {}, h("th", { scope: "row", dir: "auto" }, plain(this.rows[row])),
        Array.from({ length: columns }, (_, column) => this.cell(row, column, numbers))));
    const room = (this.frame.clientWidth - 150) / columns, cell = numbers ? Math.min(64, Math.max(42, room)) : Math.min(30, Math.max(18, room));
    const table = h("table", { class: numbers ? "map numbers" : "map", role: "grid", "aria-label": this.label, style: { "--cell": `${cell}px` } },
      h("thead", {}, head), h("tbody", {}, body));
    table.addEventListener("pointerover", event => {
      const cell = event.target.closest("td[data-place]");
      if (cell) this.at(...cell.dataset.place.split(" ").map(Number));
    });
    table.addEventListener("pointerleave", () => this.rest());
    table.addEventListener("click", event => {
      const cell = event.target.closest("td[data-place]");
      if (cell) this.focusCell(...cell.dataset.place.split(" ").map(Number), true);
    });
    table.addEventListener("keydown", event => {
      if (this.move(event)) this.focusCell(...this.cursor);
    });
    table.addEventListener("focusin", () => this.at(...this.cursor));
    this.headers = [body.map(line => line.firstChild), Array.from(head.children).slice(1)];
    return h("div", { class: "scroll" }, table); // its cells are stops of Tab
  }

  cell(row, column, numbers) {
    const weight = this.weight(row, column);
    const said = weight === null ? "masked" : share(weight);
    const cell = h("td", {
      "data-place": `${row} ${column}`, class: weight === null ? "masked" : null, "aria-label": numbers && weight !== null ? null : said,
      tabindex: row === this.cursor[0] && column === this.cursor[1] ? "0" : "-1",
    }, numbers && weight !== null ? said.replace("0.", ".") : "");
    if (weight === null) unshade(cell);
    else shade(cell, weight / this.map.scale);
    this.cells.push(cell);
    return cell;
  }

  focusCell(row, column, chosen = false) {
    for (const cell of this.cells) if (cell.tabIndex === 0) cell.tabIndex = -1;
    this.cursor = [row, column];
    const cell = this.cells[row * this.map.columns + column];
    cell.tabIndex = 0;
    cell.focus({ preventScroll: chosen });
    if (chosen) this.choose?.(row, column);
  }

  /* --- Many cells: a canvas */

  canvas() {
    const { rows, columns } = this.map;
    const canvas = h("canvas", { width: columns, height: rows, "aria-hidden": "true" });
    drawn(canvas, () => paint(canvas, this.map));
    this.lines = [h("i", { class: "across" }), h("i", { class: "down" })];
    const cells = h("div", {
      class: "cells", tabindex: "0", role: "application", "aria-roledescription": "map",
      "aria-label": `${this.label}, ${rows} rows and ${columns} columns; arrow keys move`,
      onpointermove: event => this.at(...(this.cursor = place(event, cells, rows, columns))),
      onpointerleave: () => this.rest(),
      onclick: event => this.choose?.(...place(event, cells, rows, columns)),
      onkeydown: event => this.move(event),
      onfocus: () => this.at(...this.cursor),
    }, canvas, this.lines);
    const names = (list, name) => h("div", { class: name, "aria-hidden": "true" }, list.map(label => h("span", { dir: "auto" }, plain(label))));
    const named = rows <= 400 && columns <= 400; // labels that nobody can read only make the page heavy
    const grid = h("div", { class: "map", style: { "--across": columns, "--down": rows } }, h("div", { class: "corner" }),
      named ? names(this.columns, "columns") : h("div"), named ? names(this.rows, "rows") : h("div"), cells);
    this.headers = named ? [Array.from(grid.children[2].children), Array.from(grid.children[1].children)] : [[], []];
    return this.sized(grid);
  }

  sized(grid) {
    const room = Math.min(Math.max(260, this.frame.clientWidth - 120), 980);
    const start = Math.max(1, Math.min(18, Math.floor(room / this.map.columns)));
    const set = cell => {
      grid.style.setProperty("--cell", `${cell}px`);
      grid.classList.toggle("small", cell < 9);
    };
    set(start);
    const size = h("input", { type: "range", min: 1, max: 40, value: start, "aria-label": "Size of a cell", oninput: () => set(Number(size.value)) });
    return [h("div", { class: "scroll", role: "region", "aria-label": "Map", tabindex: "-1" }, grid), h("label", { class: "size" }, "size", size)];
  }

  /* --- The cursor, in either form */

  mark(at) {
    for (const each of this.marked ?? []) each.classList.remove("on");
    this.marked = at && this.headers ? [this.headers[0][at[0]], this.headers[1][at[1]]].filter(Boolean) : [];
    for (const each of this.marked) each.classList.add("on");
    if (!this.lines?.[0].isConnected) return;
    this.lines.forEach((line, i) => {
      line.style.display = at ? "block" : "none";
      if (at) line.style.setProperty(i ? "left" : "top", `calc(var(--cell) * ${at[i]})`);
    });
  }
}

/* Fill a canvas with one pixel a cell; what is masked stays transparent, so that the hatching below it shows. */
export function paint(canvas, map, kind = "weight") {
  const context = canvas.getContext("2d"), image = context.createImageData(map.columns, map.rows);
  const palette = new Uint32Array(256), pixels = new Uint32Array(image.data.buffer);
  const colors = new Uint8Array(palette.buffer);
  for (let byte = 0; byte < 256; byte += 1) colors.set([...colorOf(byte / map.top * map.peak / map.scale, kind), 255], 4 * byte);
  if (map.masked) palette[255] = 0;
  for (let i = 0; i < pixels.length; i += 1) pixels[i] = palette[map.bytes[i]]; // a million cells in a few milliseconds
  context.putImageData(image, 0, 0);
}

/* What the colours of a map mean. */
export function mapLegend(map) {
  return h("p", { class: "legend" }, "weight 0 ", h("span", { class: "ramp" }), ` ${share(map.scale)}`, map.masked && [h("span", { class: "swatch" }), " masked"], " · each row looks at the columns");
}

/* A small picture of a map, without words. */
export function thumbnail(map) {
  const canvas = h("canvas", { width: map.columns, height: map.rows, class: map.masked ? "thumbnail hatched" : "thumbnail", "aria-hidden": "true" });
  drawn(canvas, () => paint(canvas, map));
  return canvas;
}
