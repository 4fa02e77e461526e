"""How a page of attention maps looks, and the few lines of script that tell the number under the pointer.

Cells are a picture with one pixel each, made larger by the style; without script the page still shows them all. There
is no `<` and no `&` in either text, so that the page is well-formed XML as well.
"""

MASKED = "repeating-linear-gradient(45deg, #f0f0f0 0 3px, #d4d4d4 3px 5px)"

STYLE = """
:root { color-scheme: light dark; --text: #1d2329; --quiet: #5b646c; --line: #c9d0d7; --ground: #fff; --on: #0b5c96; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e8ec; --quiet: #a0aab4; --line: #3c454e; --ground: #14181c;
  --on: #7cc0f2; } }
* { box-sizing: border-box; }
body { margin: 0; padding: 1.2rem 1.5rem 3rem; background: var(--ground); color: var(--text);
  font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.25rem; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1rem; margin: .3rem 0; }
p { margin: .2rem 0; color: var(--quiet); max-width: 60rem; overflow-wrap: anywhere; }
.bar { display: flex; flex-wrap: wrap; gap: .3rem 1.6rem; align-items: center; margin: .7rem 0; }
.ramp, .swatch { display: inline-block; height: .8em; vertical-align: -.05em; border: 1px solid var(--line); }
.ramp { width: 9em; } .swatch { width: .9em; background: MASKED; }
.bar label { display: flex; gap: .5em; align-items: center; }
.heads { display: grid; width: max-content; gap: .5rem .6rem; align-items: center; color: var(--quiet);
  font-size: .8rem; padding: 4px; }
.both { display: flex; flex-wrap: wrap; gap: .2rem 2.5rem; align-items: flex-start; }
.heads b { font-weight: 600; text-align: center; } .heads b.layer { text-align: right; }
.heads button { padding: 0; border: 1px solid var(--line); background: MASKED; cursor: pointer; line-height: 0; }
.heads button[aria-pressed=true] { outline: 3px solid var(--on); }
.heads img { display: block; } img { image-rendering: pixelated; } img.shrunk { image-rendering: auto; }
.scroll { overflow: auto; max-height: 94vh; width: fit-content; max-width: 100%; }
.map { display: grid; grid-template-columns: max-content max-content; width: max-content; padding: 0 1rem 1rem 0;
  --size: calc(var(--cell) * .78); font-size: clamp(8px, var(--size), 14px); }
.columns, .rows, .corner { background: var(--ground); position: sticky; z-index: 2; display: flex; }
.columns { top: 0; align-items: flex-end; padding-bottom: 4px; }
.rows { left: 0; flex-direction: column; padding-right: 6px; }
.corner { top: 0; left: 0; z-index: 3; }
.columns span { width: var(--cell); line-height: var(--cell); writing-mode: vertical-rl; transform: rotate(180deg);
  text-align: left; white-space: nowrap; max-height: 11em; overflow: hidden; text-overflow: ellipsis; }
.rows span { height: var(--cell); line-height: var(--cell); text-align: right; white-space: nowrap; max-width: 15em;
  overflow: hidden; text-overflow: ellipsis; }
.small .columns span, .small .rows span { color: transparent; font-size: 1px; max-width: 1em; max-height: 1em; }
.columns span.on, .rows span.on { color: var(--on); text-shadow: 0 0 .6px currentColor; }
.cells { position: relative; background: MASKED; width: calc(var(--cell) * var(--across));
  height: calc(var(--cell) * var(--down)); outline: 1px solid var(--line); cursor: crosshair; touch-action: none; }
.cells img { display: block; width: 100%; height: 100%; }
.cells::after { content: ""; position: absolute; inset: 0; pointer-events: none;
  background: linear-gradient(to right, #fff 1px, transparent 1px) 0 0 / var(--cell) var(--cell),
  linear-gradient(#fff 1px, transparent 1px) 0 0 / var(--cell) var(--cell); }
.small .cells::after { background: none; }
.cells i { position: absolute; pointer-events: none; border: 0 solid #d4540a; z-index: 1; display: none; }
#across { left: 0; right: 0; height: var(--cell); border-width: 1px 0; }
#down { top: 0; bottom: 0; width: var(--cell); border-width: 0 1px; }
#told { position: fixed; z-index: 9; pointer-events: none; display: none; background: #1d2329; color: #fff;
  padding: .15em .5em; border-radius: 4px; font-size: 14px; white-space: nowrap; }
@media print { .scroll { max-height: none; overflow: visible; } .bar label { display: none; } }
""".replace("MASKED", MASKED)

SCRIPT = """
const all = JSON.parse(document.getElementById("numbers").textContent);
const get = id => document.getElementById(id), cells = get("cells"), map = get("map"), told = get("told");
const rows = [...document.querySelectorAll(".rows span")], columns = [...document.querySelectorAll(".columns span")];
const buttons = [...document.querySelectorAll(".heads button")], kept = {};
let chosen = 0, marked = [];

function numbers(panel) {
  if (kept[panel] === undefined) {
    const raw = atob(all.panels[panel] || "");
    kept[panel] = Uint16Array.from({length: raw.length / 2},
      (_, i) => raw.charCodeAt(2 * i) + 256 * raw.charCodeAt(2 * i + 1));
  }
  return kept[panel];
}
function say(panel, row, column) {
  const n = numbers(panel)[row * columns.length + column];
  const weight = n === undefined ? "" : n === 65535 ? ": masked"
    : ": " + (all.low + n / 65534 * (all.high - all.low)).toFixed(4);
  return rows[row].textContent + " \\u2192 " + columns[column].textContent + weight;
}
function place(event, box) {
  const at = box.getBoundingClientRect();
  const limit = (value, most) => Math.max(0, Math.min(most - 1, Math.floor(value * most)));
  return [limit((event.clientY - at.top) / at.height, rows.length),
          limit((event.clientX - at.left) / at.width, columns.length)];
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
  told.style.display = get("across").style.display = get("down").style.display = "none";
}
cells.addEventListener("pointermove", event => {
  const [row, column] = place(event, cells);
  leave();
  marked = [rows[row], columns[column]];
  marked.forEach(each => each.classList.add("on"));
  get("across").style.cssText = "display: block; top: calc(var(--cell) * " + row + ")";
  get("down").style.cssText = "display: block; left: calc(var(--cell) * " + column + ")";
  tell(event, say(chosen, row, column));
});
cells.addEventListener("pointerleave", leave);
buttons.forEach((button, panel) => {
  button.addEventListener("pointermove", event => tell(event, button.title0 + ", " + say(panel, ...place(event, button))));
  button.addEventListener("pointerleave", leave);
  button.title0 = button.getAttribute("aria-label");
  button.addEventListener("click", () => {
    chosen = panel;
    buttons.forEach((each, other) => each.setAttribute("aria-pressed", other === panel));
    cells.querySelector("img").src = button.querySelector("img").src;
    get("name").textContent = button.title0;
    get("name").scrollIntoView({block: "nearest"});
  });
});
get("size").addEventListener("input", event => {
  map.style.setProperty("--cell", event.target.value + "px");
  map.classList.toggle("small", 9 > event.target.value);
});
"""
