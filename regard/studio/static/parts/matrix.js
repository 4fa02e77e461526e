/* Matrices as tables: shaded by value, some with cells to type in, some with cells to press. */
import { shade, unshade } from "./colors.js";
import { h, scrolling } from "./dom.js";
import { number } from "./numbers.js";

/* The share of the greatest number that each value has; weights are on a scale of their own. */
function shareOf(value, most, kind) {
  if (!Number.isFinite(value)) return 0;
  return kind === "weight" ? value : most > 0 ? value / most : 0;
}

export class Matrix {
  /* `name` stands above; `edit(row, column, value)` makes cells inputs; `press(row, column)` makes them buttons.
     `point(row, column)` hears where pointer or focus is; null when it has left. */
  constructor({ name, label, rows = [], columns = [], kind = "signed", digits = 3, least = 0, edit = null, press = null, point = () => {} }) {
    Object.assign(this, { name, label: label ?? name, rows, columns, kind, digits, least, edit, press, point });
    this.table = h("table", { class: `matrix ${edit ? "editable" : ""}`, "aria-label": this.label });
    this.element = h("figure", { class: "matrix-figure", onpointerleave: () => point(null) }, h("figcaption", {}, name), scrolling(this.label, this.table));
  }

  /* Show values; cells stay the same elements while the shape does, so that a person can go on typing. `masked` hatches. */
  draw(values, masked = null) {
    if (!this.cells || this.cells.length !== values.length || this.cells[0].length !== values[0].length) this.build(values);
    const most = Math.max(...values.flat().filter(Number.isFinite).map(Math.abs), this.least);
    const whole = values.flat().every(value => !Number.isFinite(value) || Number.isInteger(value));
    values.forEach((row, i) => row.forEach((value, j) => this.set(this.cells[i][j], value, most, whole, masked?.[i]?.[j])));
  }

  set(cell, value, most, whole, masked) {
    const text = number(value, whole ? 0 : this.digits), inside = cell.firstChild;
    if (this.edit) {
      if (document.activeElement !== inside) inside.value = String(value);
    } else if (this.press) {
      inside.textContent = text;
      inside.setAttribute("aria-pressed", Boolean(masked));
    } else inside.textContent = text;
    cell.classList.toggle("masked", Boolean(masked) || value === -Infinity || value === null);
    const ground = this.edit || this.press ? inside : cell;
    if (cell.classList.contains("masked")) unshade(ground);
    else shade(ground, shareOf(value, most, this.kind), this.kind);
  }

  build(values) {
    this.cells = values.map((row, i) => row.map((_, j) => this.cell(i, j)));
    const head = this.columns.length > 0 && h("thead", {}, h("tr", {}, this.rows.length > 0 && h("td"), this.columns.map(name => h("th", { scope: "col", dir: "auto" }, name))));
    const body = h("tbody", {}, this.cells.map((row, i) => h("tr", {}, this.rows.length > 0 && h("th", { scope: "row", dir: "auto" }, this.rows[i]), row)));
    this.table.replaceChildren(...[head, body].filter(Boolean));
    this.table.onkeydown = event => this.move(event);
  }

  cell(i, j) {
    const where = `${this.label}, row ${i + 1}, column ${j + 1}`;
    const at = { onpointerenter: () => this.point(i, j), onfocus: () => this.point(i, j) };
    const inside = this.edit
      ? h("input", { type: "text", inputmode: "decimal", autocomplete: "off", "aria-label": where, "data-cell": `${i} ${j}`, ...at, oninput: event => this.typed(event.target, i, j), onfocusin: event => event.target.select() })
      : this.press ? h("button", { type: "button", "aria-label": `Mask ${where}`, "data-cell": `${i} ${j}`, ...at, onclick: () => this.press(i, j) })
        : h("span", at);
    return h("td", { onpointerenter: () => this.point(i, j) }, inside);
  }

  typed(input, i, j) {
    const value = Number(input.value.replace(",", ".").replace("−", "-"));
    const good = input.value.trim() !== "" && Number.isFinite(value);
    input.setAttribute("aria-invalid", !good);
    if (good) this.edit(i, j, value);
  }

  /* Up and Down move between cells; Alt with them changes the number by one. */
  move(event) {
    const place = event.target.dataset?.cell?.split(" ").map(Number);
    if (!place || !["ArrowUp", "ArrowDown"].includes(event.key)) return;
    const by = event.key === "ArrowUp" ? -1 : 1;
    event.preventDefault();
    if (event.altKey && this.edit) {
      event.target.value = Number(event.target.value) - by;
      this.typed(event.target, ...place);
    } else this.cells[place[0] + by]?.[place[1]]?.firstChild.focus();
  }

  /* Frame rows and columns that a pointed number is made of. */
  mark({ rows = [], columns = [], cells = [] } = {}) {
    this.cells?.forEach((row, i) => row.forEach((cell, j) => {
      cell.classList.toggle("used", rows.includes(i) || columns.includes(j) || cells.some(([a, b]) => a === i && b === j));
    }));
  }
}

/* A matrix to read only, for numbers from elsewhere: {values, rows, columns}; null is minus infinity. */
export function plainMatrix({ name, values, rows, columns, kind = "signed", marked = null }) {
  const named = rows.some(row => row !== "") ? rows : [];
  const made = new Matrix({ name, rows: named, columns, kind });
  made.draw(values.map(row => row.map(value => value === null ? -Infinity : value)));
  if (marked !== null) made.table.tBodies[0].rows[marked]?.classList.add("here");
  return made.element;
}
