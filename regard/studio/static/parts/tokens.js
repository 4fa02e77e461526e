/* Tokens as a line of text whose pieces can be pointed at, chosen, and shaded. */
import { shade, unshade } from "./colors.js";
import { h } from "./dom.js";
import { percent, share, visible } from "./numbers.js";

/* A line of tokens as buttons, walked through with the arrow keys (one stop of Tab for the whole line).
   `choose(i)` hears clicks and Enter, `point(i)` where the pointer or the focus is, null when it has left. */
export class TokenLine {
  constructor({ label, choose = () => {}, point = () => {} }) {
    Object.assign(this, { choose, point });
    this.element = h("div", {
      class: "tokens", role: "group", "aria-label": label, dir: "auto",
      onkeydown: event => this.move(event), onpointerleave: () => this.point(null), onfocusout: () => this.point(null),
    });
    this.buttons = [];
  }

  /* `tokens` are labels, or objects with a label, an optional probability (below it, as a bar and a number) and `special`. */
  draw(tokens, chosen = null) {
    this.buttons = tokens.map((token, i) => this.button(typeof token === "string" ? { label: token } : token, i, chosen));
    const stop = this.buttons[chosen ?? 0];
    if (stop) stop.tabIndex = 0;
    const here = Array.from(this.element.children).indexOf(document.activeElement);
    this.element.replaceChildren(...this.buttons);
    if (here >= 0) this.buttons[Math.min(here, this.buttons.length - 1)]?.focus({ preventScroll: true });
  }

  button({ label, probability, special, mark }, i, chosen) {
    const known = probability !== undefined && probability !== null;
    return h("button", {
      type: "button", tabindex: "-1", class: `token${special ? " special" : ""}${mark ? " marked" : ""}`, "aria-pressed": i === chosen,
      "aria-label": known ? `${visible(label)}, probability ${share(probability)}` : null, title: mark || null,
      onclick: () => this.choose(i), onpointerenter: () => this.point(i), onfocus: () => this.point(i),
    }, h("span", { class: "piece" }, visible(label)), known && [bar(probability), h("span", { class: "chance", "aria-hidden": "true" }, percent(probability))]);
  }

  /* Shade every token by a weight between 0 and 1; null takes the shades away. */
  shade(weights) {
    this.buttons.forEach((button, i) => {
      if (weights && weights[i] !== null && weights[i] !== undefined) shade(button, weights[i]);
      else unshade(button);
    });
  }

  move(event) {
    const here = this.buttons.indexOf(document.activeElement);
    const next = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: this.buttons.length - 1 }[event.key];
    if (here < 0 || next === undefined || !this.buttons[next]) return;
    event.preventDefault();
    this.buttons[here].tabIndex = -1;
    this.buttons[next].tabIndex = 0;
    this.buttons[next].focus();
  }
}

/* The probability of a token as a small bar: full is certain. */
function bar(probability) {
  const sure = probability > 0.75 ? "sure" : probability > 0.3 ? "fair" : "unsure";
  return h("span", { class: `bar ${sure}`, "aria-hidden": "true" }, h("i", { style: { width: `${Math.max(4, 100 * probability)}%` } }));
}

/* Words coloured by their weight, as in `classify`: [{text, weight}]. Text between words has no weight. */
export function weighedWords(words) {
  const peak = Math.max(...words.map(word => word.weight ?? 0), 1e-9);
  return h("p", { class: "words", dir: "auto" }, words.map(({ text, weight }) => {
    if (weight === null || weight === undefined) return h("span", { class: "unweighed" }, text);
    const piece = h("span", { class: "word", title: `${visible(text)}: ${share(weight)}` }, text);
    shade(piece, weight / peak);
    return piece;
  }));
}
