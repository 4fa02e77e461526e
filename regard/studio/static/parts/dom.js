/* Elements from data. Text always goes in as text nodes: nothing that a model or a person wrote is ever read as HTML. */

const SVG = "http://www.w3.org/2000/svg";

/* Make an element: `h("button", {class: "chip", onclick: f, "aria-pressed": true}, "text", child)`.
   A property that is null, undefined or false is left out; `on...` listens; `style` is an object of CSS properties. */
export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/* The same for drawings. */
export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, each] of Object.entries(value)) element.style.setProperty(key, each);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true && !name.startsWith("aria-") ? "" : value);
  }
  element.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined && child !== false));
  return element;
}

/* Put new children in place of all that was there. Who was on one of them by keyboard is then on the one that took its place. */
export function show(element, ...children) {
  const held = element.contains(document.activeElement) && element !== document.activeElement ? nameOf(document.activeElement) : null;
  element.replaceChildren(...children.flat(Infinity).filter(child => child !== null && child !== undefined && child !== false));
  if (held && !element.contains(document.activeElement)) {
    Array.from(element.querySelectorAll("button, input, select, summary, a")).find(each => nameOf(each) === held)?.focus({ preventScroll: true });
  }
  return element;
}

function nameOf(element) {
  return `${element.tagName} ${element.getAttribute("aria-label") ?? element.labels?.[0]?.firstChild.textContent ?? element.textContent}`;
}

/* A box whose content may be larger than its room. Where it is, the box is a stop of Tab, so that arrows can move it. */
export function scrolling(label, ...children) {
  const box = h("div", { class: "scroll", role: "group", "aria-label": label }, ...children);
  requestAnimationFrame(() => { if (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight) box.tabIndex = 0; });
  return box;
}

/* Tell screen readers; the same words twice in a row are said once. */
export function say(text) {
  const place = document.getElementById("said");
  if (place.textContent !== text) place.textContent = text;
}

let last = 0;

/* An id that no other element has, for labels and descriptions. */
export function unique(name) {
  last += 1;
  return `${name}-${last}`;
}

/* Call `f` when nothing has happened for `wait` milliseconds. */
export function debounced(f, wait = 450) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => f(...given), wait);
  };
}

export const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
