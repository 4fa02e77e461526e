/* "Show the call": what a program would send, write or type to get the same result. */
import { h } from "./dom.js";

const quoted = text => `'${String(text).replaceAll("'", "'\\''")}'`;

/* A value as Python writes it. */
export function python(value) {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  return JSON.stringify(value);
}

/* The same request by curl. A picture's bytes are named, not printed. */
export function curl(path, body, file) {
  const address = `${location.origin}/${path}`;
  if (file) return `curl ${quoted(address)} \\\n  -H 'Content-Type: application/zip' \\\n  --data-binary ${quoted(`@${file}`)}`;
  if (body === undefined) return `curl ${address}`;
  const brief = JSON.stringify(body, (key, value) => key === "picture" ? "(base64 of the picture)" : value);
  return `curl ${address} \\\n  -H 'Content-Type: application/json' \\\n  -d ${quoted(brief)}`;
}

/* A closed box with the request, the lines of Python and the command; each can be copied. Lines that there are not are left out.
   A request has a body of fields, a file, or neither; what the browser computes by itself has no request. */
export function showCall({ path, body, file, lines, command }) {
  const parts = [["Request", path && curl(path, body, file)], ["Python", lines?.join("\n")], ["Command", command]].filter(([, text]) => text);
  return h("details", { class: "call" }, h("summary", {}, "Show the call"), parts.map(([name, text]) =>
    h("div", { class: "told-call" }, h("h3", {}, name), copy(text, name), h("pre", { tabindex: "0", "aria-label": name }, h("code", {}, text)))));
}

function copy(text, name) {
  const button = h("button", {
    type: "button", class: "copy", "aria-label": `Copy: ${name}`,
    onclick: async () => {
      await navigator.clipboard.writeText(text).then(() => { button.textContent = "Copied"; }, () => { button.textContent = "Select it by hand"; });
      setTimeout(() => { button.textContent = "Copy"; }, 1600);
    },
  }, "Copy");
  return button;
}

/* Arguments of a command line, quoted where a shell needs it. */
export function command(...words) {
  return words.filter(word => word !== null && word !== undefined && word !== "")
    .map(word => /^[\w./:=,@%+-]+$/.test(word) ? word : quoted(word)).join(" ");
}

/* Lines of Python that load a model and call it; `options` that are undefined are left to their defaults. */
export function pythonLines(model, method, texts, options = {}) {
  const given = Object.entries(options).filter(([, value]) => value !== undefined).map(([name, value]) => `${name}=${python(value)}`);
  return ["import regard", "", `model = regard.load(${python(model.path ?? model.name)})`,
    `out = model.${method}(${[...texts.map(python), ...given].join(", ")})`];
}
