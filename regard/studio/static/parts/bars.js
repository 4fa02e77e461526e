/* Distributions as bars: labels with probabilities, and what temperature and the cuts leave of them. */
import { h } from "./dom.js";
import { percent, visible } from "./numbers.js";

/* Rows of {label, probability}; with `choose`, each is a button. */
export function bars(rows, { choose = null, chosen = null, label = "Probabilities", plain = false } = {}) {
  const most = Math.max(...rows.map(row => row.probability), 1e-9);
  return h("ol", { class: "bars", "aria-label": label }, rows.map((row, i) => {
    const name = plain ? row.label : visible(row.label);
    const inside = [h("span", { class: "name", dir: "auto" }, name), track(row.probability / most), h("span", { class: "value" }, percent(row.probability))];
    return h("li", { class: i === chosen ? "chosen" : null }, choose
      ? h("button", { type: "button", "aria-label": `${name}, ${percent(row.probability)}`, onclick: () => choose(row, i) }, inside)
      : h("div", { class: "line" }, inside));
  }));
}

function track(part, kept = null) {
  return h("span", { class: "track", "aria-hidden": "true" },
    kept !== null && h("i", { class: "kept", style: { width: `${100 * kept}%` } }), h("i", { class: kept === null ? "all" : "raw", style: { width: `${100 * part}%` } }));
}

/* What sampling draws from: probabilities at temperature t, p_i^(1/t) / Σ p^(1/t), of which only the first are kept until
   they have `topP` together, at most `topK`, and none below `minP` of the likeliest; what is kept is scaled to one.
   `tokens` stand the likeliest first. Tokens beyond the list are taken as equally likely: `beyond` of them share the rest. */
export function drawnFrom(tokens, { temperature = 1, topP = 1, topK = 0, minP = 0 }, beyond = 0) {
  const rest = Math.max(0, 1 - tokens.reduce((sum, token) => sum + token.probability, 0));
  const powers = tokens.map(token => token.probability ** (1 / temperature));
  const far = beyond > 0 ? beyond * (rest / beyond) ** (1 / temperature) : 0;
  const total = powers.reduce((sum, each) => sum + each, far);
  const tempered = powers.map(each => each / total);
  const kept = [];
  let before = 0; // the mass of those that are likelier
  tempered.forEach((probability, i) => {
    kept.push((i === 0 || before < topP) && (topK === 0 || i < topK) && probability >= minP * tempered[0]);
    before += probability;
  });
  const seen = tempered.reduce((sum, each, i) => sum + (kept[i] ? each : 0), 0);
  const open = kept.every(Boolean) && topK === 0; // what is kept may go on beyond the list
  const mass = open ? Math.max(seen, Math.min(topP, seen + far / total)) : seen;
  return tokens.map((token, i) => ({ ...token, tempered: tempered[i], kept: kept[i], drawn: kept[i] ? tempered[i] / mass : 0 }));
}

/* The bars of `drawnFrom`: the outline is the model's own probability, the filling what sampling draws from. */
export function cutBars(rows, choose) {
  const most = Math.max(...rows.map(row => Math.max(row.probability, row.drawn)), 1e-9);
  return h("ol", { class: "bars cut", "aria-label": "Next tokens" }, rows.map(row => {
    const said = row.kept ? percent(row.drawn) : "cut";
    return h("li", { class: row.kept ? null : "gone" },
      h("button", { type: "button", "aria-label": `${visible(row.label)}: the model's own ${percent(row.probability)}, drawn with ${said}`, onclick: () => choose(row) },
        h("span", { class: "name", dir: "auto" }, visible(row.label)), track(row.probability / most, row.drawn / most), h("span", { class: "value" }, said)));
  }));
}
