/* Colours of weights and of signed numbers, by day and by night.

   The ramps are those of regard/look/colors.py and regard/look/walk/shades.py (a test holds them together): each only ever
   gets darker on paper, or brighter on a dark ground, so that a print in grey still reads the order of the weights. */

export const RAMPS = {
  light: {
    weight: [[247, 251, 255], [222, 235, 247], [198, 219, 239], [158, 202, 225], [107, 174, 214], [66, 146, 198],
      [33, 113, 181], [8, 81, 156], [8, 48, 107]],
    above: [[255, 255, 255], [254, 224, 182], [253, 184, 99], [224, 130, 20], [179, 88, 6], [127, 59, 8]],
    below: [[255, 255, 255], [216, 218, 235], [178, 171, 210], [128, 115, 172], [84, 39, 136], [45, 0, 75]],
  },
  dark: {
    weight: [[27, 33, 39], [59, 81, 139], [33, 144, 141], [92, 200, 99], [150, 232, 240]],
    above: [[27, 33, 39], [74, 44, 16], [128, 70, 12], [190, 108, 20], [238, 156, 62], [255, 206, 140]],
    below: [[27, 33, 39], [50, 42, 84], [80, 68, 130], [118, 104, 178], [164, 152, 218], [214, 206, 246]],
  },
};

const night = matchMedia("(prefers-color-scheme: dark)");

function ramps() {
  return night.matches ? RAMPS.dark : RAMPS.light;
}

/* The colour at `part` of the way along a ramp, mixed from its two neighbours. */
export function mixed(ramp, part) {
  const place = Math.min(Math.max(part, 0), 1) * (ramp.length - 1);
  const below = Math.min(Math.floor(place), ramp.length - 2), mix = place - below;
  return ramp[below].map((value, i) => Math.round(value + (ramp[below + 1][i] - value) * mix));
}

/* Red, green and blue of a share: of a weight from 0 to 1, or of a signed number from -1 to 1. */
export function colorOf(part, kind = "weight") {
  if (kind === "weight") return mixed(ramps().weight, part);
  return mixed(part >= 0 ? ramps().above : ramps().below, Math.abs(part));
}

/* Black or white, whichever contrasts more (WCAG 2): at least 4.5 on any ground. */
export function inkOn(rgb) {
  const [red, green, blue] = rgb.map(part => part / 255).map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.1791 ? "#000" : "#fff";
}

const painted = new WeakMap();

/* Colour the ground of an element by a share, with an ink that can be read on it; it follows the theme from then on. */
export function shade(element, part, kind = "weight") {
  painted.set(element, [part, kind]);
  element.setAttribute("data-shade", kind);
  const rgb = colorOf(part, kind);
  element.style.backgroundColor = `rgb(${rgb.join(" ")})`;
  element.style.color = inkOn(rgb);
}

/* Take the colour away again. */
export function unshade(element) {
  painted.delete(element);
  element.removeAttribute("data-shade");
  element.style.backgroundColor = element.style.color = "";
}

const drawings = new WeakMap();

/* Draw now, and again whenever day becomes night. */
export function drawn(element, draw) {
  drawings.set(element, draw);
  element.setAttribute("data-drawn", "");
  draw();
}

night.addEventListener("change", () => {
  for (const element of document.querySelectorAll("[data-shade]")) shade(element, ...painted.get(element));
  for (const element of document.querySelectorAll("[data-drawn]")) drawings.get(element)();
});
