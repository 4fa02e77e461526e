"""The style and the script of the page of a formation. The page puts in CELL and SIZE; nothing needs escaping in XML."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --text: #1d2329; --quiet: #5b646c; --line: #dde2e7; --ground: #fff; --head: #9ecae1;
  --shown: #08519c; --loss: #c44e00; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e8ec; --quiet: #a0aab4; --line: #353d45; --ground: #14181c;
  --head: #3c5f7d; --shown: #7cc0f2; --loss: #f0935a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif; }
main { max-width: 74rem; margin: 0 auto; padding: 2rem 1.5rem 3rem; }
h1 { font-size: 1.35rem; line-height: 1.3; margin: 0 0 .3rem; }
p { margin: .2rem 0; color: var(--quiet); }
.bar { display: flex; flex-wrap: wrap; gap: .6rem 1rem; align-items: center; margin: 1.2rem 0 .4rem; }
.bar[hidden] { display: none; }
.bar input { flex: 1 1 16rem; accent-color: var(--shown); }
button, select { max-width: min(30rem, 100%); font: inherit; padding: .25rem .8rem; color: inherit; background: var(--ground);
  border: 1px solid var(--quiet); border-radius: 6px; }
button { min-width: 5.5rem; cursor: pointer; }
#state { color: var(--text); font-variant-numeric: tabular-nums; min-height: 1.5em; margin-bottom: 1rem; }
.both { display: flex; flex-wrap: wrap; gap: 1.5rem 2.5rem; align-items: flex-start; }
.scroll { overflow-x: auto; max-width: 100%; }
table.map { border-collapse: collapse; font-size: SIZE; }
.map td { width: CELL; min-width: CELL; height: CELL; padding: 0; border: 1px solid var(--ground); }
.masked { background: repeating-linear-gradient(45deg, #ececec, #ececec 3px, #d4d4d4 3px, #d4d4d4 5px) !important; }
.map th { font-weight: normal; padding: 0 .5em 0 0; text-align: right; white-space: nowrap; line-height: 1; }
.map thead th { padding: 0 0 .4em; vertical-align: bottom; text-align: center; }
.map thead span.upright { writing-mode: initial; transform: none; }
.map thead span { writing-mode: vertical-rl; transform: rotate(180deg); }
.ramp { display: inline-block; width: 8em; height: .8em; vertical-align: -.05em; }
.ramp.masked { width: 1em; }
.below .curves { display: flex; flex-wrap: wrap; gap: 0 2rem; max-width: none; margin-top: 1.2rem; }
.below svg { flex: 1 1 28%; width: 28%; min-width: 14rem; }
.curves { flex: 1 1 18rem; min-width: 15rem; max-width: 27rem; }
svg { display: block; width: 100%; height: auto; margin-bottom: .6rem; overflow: visible; }
svg text { font-size: 10px; fill: var(--quiet); }
svg .name { font-size: 11px; fill: var(--text); }
svg path { fill: none; vector-effect: non-scaling-stroke; }
.head { stroke: var(--head); stroke-width: .8; } .shown { stroke: var(--shown); stroke-width: 2.2; }
.loss { stroke: var(--loss); stroke-width: 2.2; } .axis { stroke: var(--line); stroke-width: 1; }
.now { stroke: var(--text); stroke-width: 1; stroke-dasharray: 3 3; }
.numbers { border-collapse: collapse; font-variant-numeric: tabular-nums; margin-top: .5rem; }
.numbers th, .numbers td { padding: .15rem 0 .15rem 1.4rem; text-align: right; border-bottom: 1px solid var(--line); }
details { margin-top: 1.5rem; } summary { cursor: pointer; }
"""

SCRIPT = """
const data = JSON.parse(document.getElementById('data').textContent);
const slider = document.getElementById('step'), button = document.getElementById('play');
const chosen = document.getElementById('view'), state = document.getElementById('state');
const cells = Array.from(document.querySelectorAll('.map tbody td')), across = data.columns.length;
const marks = document.querySelectorAll('.now');
let timer = null;
function paint() {
  const n = +slider.value, view = data.views[chosen ? +chosen.value : 0], map = view.maps[n];
  cells.forEach((cell, i) => {
    const value = map[i], row = data.rows[Math.floor(i / across)], column = data.columns[i % across];
    cell.className = value === null ? 'masked' : '';
    const share = value === null ? 0 : Math.min(1, Math.max(0, value / 1000 / data.top));
    cell.style.background = data.ramp[Math.round(share * (data.ramp.length - 1))];
    cell.title = row + ' \\u2192 ' + column + ': ' + (value === null ? 'masked' : (value / 1000).toFixed(3));
  });
  state.textContent = data.captions[n] + ' \\u00b7 greatest weight of a row ' + view.sharpness[n].toFixed(2) +
    ' \\u00b7 alike to the last map ' + view.alike[n].toFixed(2);
  slider.setAttribute('aria-valuetext', data.captions[n]);
  marks.forEach(mark => mark.setAttribute('d', 'M' + data.places[n] + ' 0V' + mark.dataset.high));
  document.querySelectorAll('path.shown').forEach(path => path.setAttribute('d', view[path.dataset.of]));
}
function stop() { clearInterval(timer); timer = null; button.textContent = 'Play'; }
function go() {
  if (+slider.value >= +slider.max) slider.value = 0;
  button.textContent = 'Pause';
  timer = setInterval(() => { slider.value = +slider.value + 1; paint(); if (+slider.value >= +slider.max) stop(); }, 400);
  paint();
}
button.addEventListener('click', () => timer ? stop() : go());
slider.addEventListener('input', () => { stop(); paint(); });
if (chosen) chosen.addEventListener('change', paint);
document.querySelector('.bar').hidden = false;
paint();
"""
