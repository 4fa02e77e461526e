/* Results as files. What the server draws is a link to it; what is on the page is written from there. */
import { signed } from "../api.js";
import { h } from "./dom.js";

/* "Save as": a row of links. `files` are [[form, name, source]], where a source is an address or a function that gives text. */
export function saving(what, files) {
  return h("p", { class: "saving" }, h("span", { class: "note" }, `Save ${what} as`), files.map(([form, name, source]) => typeof source === "string"
    ? h("a", { href: signed(source), download: name, "aria-label": `Save ${what} as ${form}` }, form)
    : h("button", { type: "button", class: "link", "aria-label": `Save ${what} as ${form}`, onclick: () => save(name, source()) }, form)));
}

/* Text and JSON of a result; of a class, its name. */
export function savingResult(what, name, result) {
  return saving(what, [["text", `${name}.txt`, () => `${result.label ?? result.text}\n`], ["JSON", `${name}.json`, () => JSON.stringify(result, null, 2)]]);
}

function save(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: name.endsWith(".json") ? "application/json" : "text/plain" }));
  h("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000); // by then the browser has taken it
}

/* The links of a map that is served at `address`. */
export function savingMap(address, name) {
  const joint = address.includes("?") ? "&" : "?";
  return saving("the map", [["PNG", "png"], ["SVG", "svg"], ["JSON", "json"], ["CSV", "csv"]].map(([form, suffix]) => [form, `${name}.${suffix}`, `${address}${joint}form=${suffix}`]));
}
