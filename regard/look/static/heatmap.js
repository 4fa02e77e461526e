/* Heat maps that tell the number under the pointer. */

const MASKED = 65535;

/* The numbers of a panel, two bytes each in base64, from 0 for the lowest to 65534 for the highest weight. */
export function decoded(panel) {
  const raw = atob(panel || "");
  return Uint16Array.from({length: raw.length / 2}, (_, i) => raw.charCodeAt(2 * i) + 256 * raw.charCodeAt(2 * i + 1));
}

/* The row and the column of a grid under the pointer. */
export function place(event, box, rows, columns) {
  const at = box.getBoundingClientRect();
  const limit = (share, most) => Math.max(0, Math.min(most - 1, Math.floor(share * most)));
  return [limit((event.clientY - at.top) / at.height, rows), limit((event.clientX - at.left) / at.width, columns)];
}

/* Make the maps inside `element` answer: one large `div.map`, and a button for each head if there are several.
   `data` has `low` and `high`, the weights of the lowest and the highest number, and `panels`, see `decoded`. */
export function heatMap(element, data) {
  const get = name => element.querySelector(name), all = name => Array.from(element.querySelectorAll(name));
  const map = get("div.map"), cells = get(".cells"), told = get(".told"), across = get("i.across"), down = get("i.down");
  const rows = all(".rows span"), columns = all(".columns span"), buttons = all(".heads button"), numbers = {};
  let chosen = 0, marked = [];

  function said(panel, row, column) {
    if (numbers[panel] === undefined) numbers[panel] = decoded(data.panels[panel]);
    const number = numbers[panel][row * columns.length + column];
    const weight = number === undefined ? "" : number === MASKED ? ": masked"
      : ": " + (data.low + number / (MASKED - 1) * (data.high - data.low)).toFixed(4);
    return rows[row].textContent + " \u2192 " + columns[column].textContent + weight;
  }
  function tell(event, text) {
    told.textContent = text;
    told.style.display = "block";
    const left = Math.min(event.clientX + 14, innerWidth - told.offsetWidth - 8);
    told.style.left = Math.max(4, left) + "px";
    told.style.top = (event.clientY > innerHeight - 60 ? event.clientY - 40 : event.clientY + 18) + "px";
  }
  function leave() {
    marked.forEach(each => each.classList.remove("on"));
    told.style.display = across.style.display = down.style.display = "none";
  }
  function choose(panel) {
    chosen = panel;
    buttons.forEach((each, other) => each.setAttribute("aria-pressed", other === panel));
    cells.querySelector("img").src = buttons[panel].querySelector("img").src;
    get("h2").textContent = buttons[panel].getAttribute("aria-label");
    get("h2").scrollIntoView({block: "nearest"});
  }
  cells.addEventListener("pointermove", event => {
    const [row, column] = place(event, cells, rows.length, columns.length);
    leave();
    marked = [rows[row], columns[column]];
    marked.forEach(each => each.classList.add("on"));
    across.style.cssText = "display: block; top: calc(var(--cell) * " + row + ")";
    down.style.cssText = "display: block; left: calc(var(--cell) * " + column + ")";
    tell(event, said(chosen, row, column));
  });
  cells.addEventListener("pointerleave", leave);
  buttons.forEach((button, panel) => {
    const name = button.getAttribute("aria-label");
    button.addEventListener("pointermove", event => {
      tell(event, name + ", " + said(panel, ...place(event, button, rows.length, columns.length)));
    });
    button.addEventListener("pointerleave", leave);
    button.addEventListener("click", () => choose(panel));
  });
  get("input").addEventListener("input", event => {
    map.style.setProperty("--cell", event.target.value + "px");
    map.classList.toggle("small", 9 > event.target.value);
  });
}

/* Colour the cells of a `table.map` by thousandths of weights, null where masked; `data` has rows, columns, top and ramp. */
export function paint(cells, thousandths, data) {
  const across = data.columns.length, last = data.ramp.length - 1;
  cells.forEach((cell, i) => {
    const value = thousandths[i], row = data.rows[Math.floor(i / across)], column = data.columns[i % across];
    cell.className = value === null ? "masked" : "";
    const share = value === null ? 0 : Math.min(1, Math.max(0, value / 1000 / data.top));
    cell.style.background = data.ramp[Math.round(share * last)];
    cell.title = row + " \u2192 " + column + ": " + (value === null ? "masked" : (value / 1000).toFixed(3));
  });
}
