/* The steps of a walk one at a time: buttons, arrow keys, and the address; all at once on request, and on paper. */
export function walkSteps(walk) {
  const sections = [...walk.querySelectorAll("section")];
  const bar = walk.querySelector(".stepper");
  const [back, next, all] = ["back", "next", "all"].map((name) => bar.querySelector(`.${name}`));
  const place = bar.querySelector(".place");
  let shown = 0;

  const wanted = () => sections.findIndex((section) => `#${section.id}` === location.hash);

  function show(number) {
    shown = Math.max(0, Math.min(sections.length - 1, number));
    sections.forEach((section, index) => section.classList.toggle("shown", index === shown));
    walk.querySelectorAll("nav a").forEach((link, index) => {
      if (index === shown) link.setAttribute("aria-current", "step");
      else link.removeAttribute("aria-current");
    });
    place.textContent = `${shown + 1} of ${sections.length}`;
    back.disabled = shown === 0;
    next.disabled = shown === sections.length - 1;
    history.replaceState(null, "", `#${sections[shown].id}`);
  }

  function each(alone) {
    walk.classList.toggle("stepping", alone);
    all.textContent = alone ? "all steps" : "one at a time";
    all.setAttribute("aria-pressed", String(!alone));
  }

  function move(by) {
    each(true);
    show(shown + by);
    sections[shown].scrollIntoView({ block: "nearest" });
  }

  back.addEventListener("click", () => move(-1));
  next.addEventListener("click", () => move(1));
  all.addEventListener("click", () => each(!walk.classList.contains("stepping")));
  addEventListener("hashchange", () => show(Math.max(0, wanted())));
  addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by === undefined || event.target.closest(".scroll")) return;
    event.preventDefault();
    move(by);
  });
  bar.hidden = false;
  each(true);
  show(Math.max(0, wanted()));
}
