/* The state of the studio is its URL: `#/translate?model=dates&text=...`. Whoever copies it, copies what is on the screen. */

/* The page and its parameters, from a hash. */
export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  return { page: decodeURIComponent(path), query: Object.fromEntries(new URLSearchParams(query)) };
}

/* The hash of a page; parameters that are empty, null or undefined are left out. */
export function address(page, query = {}) {
  const kept = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(kept.map(([name, value]) => [name, String(value)])).toString();
  return `#/${page}${text ? `?${text}` : ""}`;
}

let listener = () => {};

/* Call `open({page, query})` now and whenever the URL changes, by links, by back and forward, or by `go`. */
export function follow(open) {
  listener = () => open(parse(location.hash));
  addEventListener("hashchange", listener);
  listener();
}

/* Change parameters of the page that is open. A new state is a step that "back" undoes; `replace` leaves no step behind,
   for what moves while a person types or drags. */
export function go(changes, { replace = false } = {}) {
  const { page, query } = parse(location.hash);
  const hash = address(page, { ...query, ...changes });
  if (hash === location.hash) return;
  history[replace ? "replaceState" : "pushState"](null, "", hash);
  listener();
}

/* Lists of whole numbers as in 12.45.3. */
export const numbers = text => text ? text.split(".").map(Number).filter(Number.isInteger) : [];

/* Pairs of whole numbers as in 2-5_3-0. */
export const pairs = text => text ? text.split("_").map(pair => pair.split("-").map(Number)) : [];
export const written = list => list.map(pair => pair.join("-")).join("_");
