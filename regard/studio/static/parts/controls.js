/* What every page is made of: headings, choices, sliders, examples to click, and words for when something is wrong. */
import { h, unique } from "./dom.js";

export function heading(title, lead, ...more) {
  return h("header", { class: "heading" }, h("h1", {}, title), lead && h("p", { class: "lead" }, lead), ...more);
}

/* A region with a title of its own. */
export function section(title, ...children) {
  const id = unique("section");
  return h("section", { class: "card", "aria-labelledby": id }, h("h2", { id }, title), ...children);
}

export function field(label, control, note) {
  const id = unique("field");
  control.id = id;
  return h("div", { class: "field" }, h("label", { for: id }, label), control, note && h("span", { class: "note" }, note));
}

/* A choice among [value, name] pairs. */
export function select(options, chosen, choose) {
  const control = h("select", { onchange: () => choose(control.value) },
    options.map(([value, name]) => h("option", { value, selected: String(value) === String(chosen) }, name)));
  return control;
}

/* A slider that shows its value; `change` hears every movement. */
export function slider({ label, min, max, step = 1, value, tell = String, change, note }) {
  const shown = h("output", {}, tell(value));
  const control = h("input", {
    type: "range", min, max, step, "aria-valuetext": tell(value),
    oninput: () => {
      shown.textContent = tell(Number(control.value));
      control.setAttribute("aria-valuetext", shown.textContent);
      change(Number(control.value));
    },
  });
  control.value = value;
  const made = field(label, control, note);
  made.classList.add("slider");
  made.querySelector("label").append(" ", shown);
  made.input = control;
  made.set = next => {
    control.value = next;
    shown.textContent = tell(Number(next));
    control.setAttribute("aria-valuetext", shown.textContent);
  };
  return made;
}

export function checkbox(label, checked, change) {
  const control = h("input", { type: "checkbox", onchange: () => change(control.checked) });
  control.checked = checked;
  return h("label", { class: "check" }, control, label);
}

/* Buttons of which one is pressed. */
export function segments(label, options, chosen, choose) {
  return h("div", { class: "segments", role: "group", "aria-label": label }, options.map(([value, name]) =>
    h("button", { type: "button", "aria-pressed": String(value) === String(chosen), onclick: () => choose(value) }, name)));
}

/* Inputs to try. */
export function examples(list, pick) {
  if (!list.length) return null;
  return h("div", { class: "examples", role: "group", "aria-label": "Examples" }, h("span", {}, "Try"),
    list.map(each => h("button", { type: "button", class: "chip", dir: "auto", onclick: () => pick(each) }, each)));
}

/* The models that have one of these abilities, and the one that the URL names (else the first). */
export function choice(studio, abilities, query) {
  const able = studio.models.filter(model => abilities.some(ability => model.abilities.includes(ability)));
  return { able, model: able.find(model => model.name === query.model) ?? able[0] };
}

export function modelSelect(able, model, choose) {
  return field("Model", select(able.map(each => [each.name, each.shipped ? `${each.name} (comes with Regard)` : each.name]), model.name, choose));
}

const TRAIN = {
  translate: ["translates", 'regard train translate --data pairs.tsv', "or, on built-in dates: regard train translate --budget 1m"],
  generate: ["writes text", "regard train generate --data book.txt", "or, on Python's own source: regard train generate --budget 3m"],
  classify: ["sorts or fills texts", "regard train classify --data texts.tsv", "or, on built-in names: regard train classify --budget 1m"],
  caption: ["reads pictures", "regard train caption --data captions.jsonl", "or, on drawn scenes: regard train caption --budget 3m"],
  heads: ["has heads", "regard train translate --data pairs.tsv", "or, on built-in dates: regard train translate --budget 1m"],
};

/* What to do where no model can do what a page is for. */
export function noModel(studio, ability) {
  if (studio.trouble) return problemCard(studio.trouble);
  const [does, command, other] = TRAIN[ability];
  return h("section", { class: "card none" }, h("h2", {}, `No model here ${does} yet`),
    h("p", {}, "Train one from your own files in the folder where the studio runs:"),
    h("pre", {}, h("code", {}, command)), h("p", { class: "note" }, other),
    h("p", {}, "Meanwhile: ", h("a", { href: "#/walk?start=worked" }, "walk through attention with numbers you can change"), ", which needs no model."));
}

/* An error in words, with what would help. */
export function problemCard(error) {
  const hint = error.hint || (error.name === "Problem" || !error.stack ? "" : "This is a fault of the page; reloading it may help.");
  return h("div", { class: "problem", role: "alert" }, h("p", {}, error.message || String(error)), hint && h("p", { class: "note" }, hint));
}

/* A quiet line while something is computed; it appears only if that takes a moment. */
export function waiting(text) {
  return h("p", { class: "waiting", role: "status" }, h("span", { class: "dots", "aria-hidden": "true" }, h("i"), h("i"), h("i")), text);
}

/* Play through the values of a slider, one every `pause` milliseconds. */
export function player(slider, pause = 500) {
  let timer = null;
  const button = h("button", { type: "button", class: "play", onclick: () => timer ? stop() : start() }, "Play");
  function stop() {
    clearInterval(timer);
    timer = null;
    button.textContent = "Play";
  }
  function step() {
    const input = slider.input, next = Number(input.value) + Number(input.step || 1);
    if (next > Number(input.max) || !button.isConnected) return stop();
    input.value = next;
    input.dispatchEvent(new Event("input"));
    return undefined;
  }
  function start() {
    if (Number(slider.input.value) >= Number(slider.input.max)) {
      slider.input.value = slider.input.min;
      slider.input.dispatchEvent(new Event("input"));
    }
    button.textContent = "Pause";
    timer = setInterval(step, pause);
  }
  slider.input.addEventListener("pointerdown", stop);
  return button;
}
