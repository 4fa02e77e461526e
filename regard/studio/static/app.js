/* The studio's shell: the list of pages, the models there are, and which page is open. */
import { get, useToken } from "./api.js";
import { h, say, show } from "./parts/dom.js";
import { field, heading, problemCard, waiting } from "./parts/controls.js";
import { address, follow, parse } from "./url.js";

/* Each page is a module with `open(main, query, studio)`, which returns `update(query)` and, where something runs on, `close()`.
   A page is fetched when it is first opened. */
const PAGES = {
  translate: { title: "Translate", abilities: ["translate"] },
  generate: { title: "Generate", abilities: ["generate"] },
  read: { title: "Read", abilities: ["classify", "fill"] },
  see: { title: "See", abilities: ["caption", "answer", "classify-pictures"] },
  walk: { title: "Walk", abilities: [] },
  heads: { title: "Heads", abilities: ["heads"] },
  train: { title: "Train", abilities: [] },
  models: { title: "Models", abilities: [] },
};

/* Something to begin with where a model brings no examples of its own. */
const ANYTHING = {
  translate: ["Hello, how are you?", "A man rides a bike."], generate: ["It was a dark"], classify: ["a good film"], fill: ["It was a [MASK] night"],
};

const main = document.getElementById("page");
const nav = document.getElementById("nav");
const studio = { models: [], trouble: null, refresh: loadModels };
let open = { name: null, page: null, turn: 0 };

async function loadModels() {
  try {
    const { models } = await get("api/models");
    studio.models = models.map(model => model.examples.length ? model : { ...model, examples: ANYTHING[model.task] ?? [] });
    studio.trouble = null;
  } catch (error) {
    studio.models = [];
    studio.trouble = error; // the toy of the walk works without a server's help
  }
}

function drawNav(current) {
  const links = Object.entries(PAGES).map(([name, page]) =>
    h("a", { href: address(name), "aria-current": name === current ? "page" : null }, page.title));
  show(nav, links);
  const here = nav.querySelector("[aria-current]"); // on a narrow screen the list scrolls sideways
  if (here) nav.scrollLeft = here.offsetLeft - (nav.clientWidth - here.offsetWidth) / 2;
}

/* The first page that a model of this folder can fill, if none is named. */
function firstPage() {
  const can = new Set(studio.models.flatMap(model => model.abilities));
  return Object.keys(PAGES).find(name => PAGES[name].abilities.some(ability => can.has(ability))) ?? "walk";
}

async function opened({ page, query }) {
  const name = page || firstPage();
  if (name === open.name && open.page) return open.page.update?.(query);
  const moved = open.name !== null, turn = open.turn + 1;
  open.page?.close?.();
  open = { name, page: null, turn };
  drawNav(name);
  document.title = `${PAGES[name]?.title ?? "Not found"} · Regard`;
  show(main);
  if (studio.trouble?.status === 401) return show(main, askToken());
  if (!PAGES[name]) return show(main, heading("There is no such page", `“${name}” is not one of ${Object.keys(PAGES).join(", ")}.`));
  const late = setTimeout(() => show(main, waiting("Opening")), 300);
  const module = await import(`./pages/${name}.js`);
  clearTimeout(late);
  if (open.turn !== turn) return; // a person was faster than the network
  if (moved) {
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
    say(PAGES[name].title);
  }
  open.page = module.open(main, query, studio);
}

/* A service beyond this machine wants the token that it was started with. */
function askToken() {
  const box = h("input", { type: "password", autocomplete: "off", required: true }), wrong = h("div");
  return h("form", { class: "card box guarded", onsubmit: async event => {
    event.preventDefault();
    useToken(box.value);
    await loadModels();
    if (studio.trouble) show(wrong, problemCard(studio.trouble));
    else {
      open.name = null;
      opened(parse(location.hash));
    }
  } }, heading("This studio asks for its token", "It is in the file that --token-file named, or in the variable REGARD_TOKEN, where the studio was started."),
  field("Token", box), wrong, h("div", { class: "row end" }, h("button", { class: "main" }, "Enter")));
}

addEventListener("unhandledrejection", event => {
  event.preventDefault();
  main.prepend(problemCard(event.reason));
});

/* Large type, for a projector, stands before the hash: it stays while a person goes from page to page. */
function setType() {
  const large = new URLSearchParams(location.search).has("large"), button = document.getElementById("type");
  document.documentElement.classList.toggle("large", large);
  button.setAttribute("aria-pressed", large);
  button.addEventListener("click", () => { location.search = large ? "" : "large"; });
}

setType();
await loadModels();
follow(opened);
document.body.dataset.ready = "true";
