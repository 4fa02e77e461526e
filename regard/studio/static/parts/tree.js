/* Beam search as a tree: a column for each step, the hypotheses that live on, those that ended, those that were dropped. */
import { player, slider } from "./controls.js";
import { h, scrolling, show, svg } from "./dom.js";
import { number, share, visible } from "./numbers.js";

const STATES = { alive: "goes on", ended: "has ended", dropped: "was dropped" };
const HIGH = 30, LEFT = 12, TOP = 14, LETTER = 8.2, GAP = 52;

/* Where each node stands: columns as wide as their longest label, in each the living first. */
export function layout(steps) {
  let x = LEFT;
  const columns = steps.map(nodes => {
    const wide = Math.max(...nodes.map(node => visible(node.label).length), 2) * LETTER + 14;
    const order = ["alive", "ended", "dropped"];
    const sorted = nodes.map((_, i) => i).sort((a, b) => order.indexOf(nodes[a].state) - order.indexOf(nodes[b].state) || a - b);
    const column = { x, wide, y: nodes.map((_, i) => TOP + HIGH * sorted.indexOf(i)) };
    x += wide + GAP;
    return column;
  });
  const high = TOP + HIGH * Math.max(...steps.map(nodes => nodes.length), 1);
  return { columns, wide: x - GAP + LEFT, high };
}

/* The text of a node: the labels from the root to it. */
export function textOf(steps, step, place) {
  const labels = [];
  for (let at = place, back = step; back >= 0 && at !== null && at !== undefined; at = steps[back][at].parent, back -= 1) {
    if (steps[back][at].state !== "ended") labels.unshift(steps[back][at].label);
  }
  return labels.join("");
}

/* The nodes on the path of the best hypothesis that has ended (else of the best there is), as "step place", and its last step. */
function bestPath(steps) {
  const all = steps.flatMap((nodes, step) => nodes.map((node, place) => ({ ...node, step, place })));
  const ended = all.filter(node => node.state === "ended");
  const from = ended.length ? ended : all.filter(node => node.step === steps.length - 1);
  const best = from.reduce((a, b) => (b.score ?? b.total) > (a.score ?? a.total) ? b : a);
  const found = new Set();
  for (let at = best.place, step = best.step; step >= 0 && at !== null && at !== undefined; at = steps[step][at].parent, step -= 1) found.add(`${step} ${at}`);
  return { found, last: best.step };
}

/* The tree with a slider over its steps. `wanted` is the last step to show (from 0; null: where the best ended), `change(step)` hears the slider. */
export function tree(steps, wanted, change) {
  const stage = h("div", { class: "scroll tree", role: "region", "aria-label": "The search as a tree", tabindex: "0" });
  const list = h("div", {});
  const last = steps.length - 1, { found: best, last: end } = bestPath(steps), shown = Math.min(wanted ?? end, last);
  const draw = step => {
    show(stage, drawing(steps, step, best));
    show(list, listing(steps, step, best));
    const column = layout(steps).columns[step];
    stage.scrollLeft = column.x + column.wide - stage.clientWidth + 40;
  };
  const steer = slider({
    label: "Step", min: 0, max: last, value: shown, tell: step => `${step + 1} of ${last + 1}`,
    change: step => { draw(step); change(step); },
  });
  requestAnimationFrame(() => draw(shown));
  const made = h("div", {}, h("div", { class: "row" }, steer, player(steer, 700)), stage, list);
  made.set = step => {
    if (document.activeElement !== steer.input) steer.set(step ?? end);
    draw(Math.min(step ?? end, last));
  };
  return made;
}

function drawing(steps, shown, best) {
  const { columns, wide, high } = layout(steps);
  const edges = [], nodes = [];
  steps.slice(0, shown + 1).forEach((step, number) => step.forEach((node, place) => {
    const { x, y, wide: width } = columns[number], name = `${node.state}${best.has(`${number} ${place}`) ? " best" : ""}`;
    const from = number > 0 && node.parent !== null ? columns[number - 1] : null;
    if (from) edges.push(edge(from.x + from.wide, from.y[node.parent] + 10, x, y[place] + 10, name));
    nodes.push(svg("g", { class: name, transform: `translate(${x} ${y[place]})` },
      svg("rect", { width, height: 21, rx: 5 }), svg("text", { x: 7, y: 15 }, node.state === "ended" ? "end" : visible(node.label)),
      svg("text", { x: width + 3, y: 15, class: "score" }, share(Math.exp(node.log_probability)))));
  }));
  return svg("svg", { width: wide + 40, height: high, role: "img", "aria-label": `The search up to step ${shown + 1}; the list below says the same` }, edges, nodes);
}

function edge(x1, y1, x2, y2, name) {
  const middle = (x1 + x2) / 2 + 8;
  return svg("path", { class: name, d: `M${x1 + 28} ${y1} C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}` });
}

/* The hypotheses of one step in words. */
function listing(steps, step, best) {
  const rows = steps[step].map((node, place) => h("tr", { class: best.has(`${step} ${place}`) ? "best" : null },
    h("td", { dir: "auto", class: "so-far" }, textOf(steps, step, place) || "∅"), h("td", {}, STATES[node.state] ?? node.state),
    h("td", { class: "n" }, number(node.log_probability)), h("td", { class: "n" }, number(node.total)), h("td", { class: "n" }, number(node.score))));
  return scrolling("Hypotheses", h("table", { class: "list" },
    h("caption", {}, `Hypotheses after step ${step + 1}`),
    h("thead", {}, h("tr", {}, ["text so far", "", "log-probability of this token", "of all", "score"].map((name, i) => h("th", { scope: "col", class: i > 1 ? "n" : null }, name)))),
    h("tbody", {}, rows)));
}
