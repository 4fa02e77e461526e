import {decoded, place} from "./heatmap.js";

/* Make the heat maps inside `element` tell the number under the pointer; `data` has low, high and a panel for each. */
export function panels(element, data) {
  const told = element.querySelector(".told");
  element.querySelectorAll("figure[data-number]").forEach(figure => {
    const own = data[figure.dataset.number], cells = figure.querySelector(".cells"), image = cells.querySelector("img");
    const labels = name => Array.from(figure.querySelectorAll(name), each => each.textContent);
    const rows = labels(".rows span"), columns = labels(".columns span");
    let numbers = null;
    cells.addEventListener("pointermove", event => {
      numbers = numbers || decoded(own.panels[0]);
      const across = columns.length || image.naturalWidth, down = rows.length || image.naturalHeight;
      const [row, column] = place(event, cells, down, across), number = numbers[row * across + column];
      const value = number === 65535 ? "none" : (own.low + number / 65534 * (own.high - own.low)).toPrecision(4);
      const where = rows.length ? rows[row] + " \u00b7 " + columns[column] : "row " + row + ", column " + column;
      told.textContent = where + ": " + value;
      told.style.display = "block";
      told.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - told.offsetWidth - 8)) + "px";
      told.style.top = (event.clientY > innerHeight - 60 ? event.clientY - 40 : event.clientY + 18) + "px";
    });
    cells.addEventListener("pointerleave", () => { told.style.display = "none"; });
  });
}
