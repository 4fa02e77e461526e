/* Lines between two sentences that answer a pointer or the Tab key. */

/* Make the lines of `svg` answer, and the names of heads in `legend`: a word keeps only its lines, with their weights beside
   the words at their other ends; a head keeps only its lines. Each line says in `data-` attributes whose it is. */
export function lines(svg, legend) {
  const paths = Array.from(svg.querySelectorAll("path")), words = Array.from(svg.querySelectorAll(".w"));
  const several = svg.hasAttribute("data-heads");

  function clear() {
    svg.classList.remove("some");
    paths.concat(words).forEach(each => each.classList.remove("on"));
    svg.querySelectorAll(".n").forEach(each => { each.textContent = ""; });
  }
  function touches(word, path) {
    return word.dataset.row === path.dataset.row || word.dataset.column === path.dataset.column;
  }
  function keep(name, value, numbers) {
    clear();
    svg.classList.add("some");
    paths.filter(path => path.dataset[name] === value).forEach(path => {
      path.classList.add("on");
      words.filter(word => touches(word, path)).forEach(word => {
        word.classList.add("on");
        if (!numbers || name in word.dataset) return;
        word.querySelector(".n").textContent = path.dataset.weight + (several ? " h" + path.dataset.head : "");
      });
    });
  }
  function listen(element, name, numbers) {
    ["mouseenter", "focus"].forEach(kind => element.addEventListener(kind, () => {
      keep(name, element.dataset[name], numbers);
      if (numbers) element.classList.add("on");
    }));
    ["mouseleave", "blur"].forEach(kind => element.addEventListener(kind, clear));
  }
  words.forEach(word => listen(word, "row" in word.dataset ? "row" : "column", true));
  legend.querySelectorAll(".regard-heads span").forEach(head => listen(head, "head", false));
}

/* Make every picture of lines in the page answer that does not yet: a notebook does not say which script is running. */
export function everyLines(page) {
  page.querySelectorAll(".regard-lines:not([data-ready])").forEach(svg => {
    svg.setAttribute("data-ready", "");
    lines(svg, svg.parentNode);
  });
}
