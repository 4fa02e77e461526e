/* Graphs whose nodes answer a pointer or the Tab key. */

/* Make the nodes of `svg` answer: one keeps only what it looks at, and who is looked at. */
export function graph(svg) {
  const arrows = Array.from(svg.querySelectorAll(".a")), nodes = Array.from(svg.querySelectorAll(".n"));

  function clear() {
    svg.classList.remove("some");
    arrows.concat(nodes).forEach(each => each.classList.remove("on"));
  }
  function keep(node) {
    clear();
    svg.classList.add("some");
    nodes[node].classList.add("on");
    arrows.filter(each => Number(each.dataset.row) === node).forEach(each => {
      each.classList.add("on");
      nodes[Number(each.dataset.column)].classList.add("on");
    });
  }
  nodes.forEach((element, node) => {
    ["mouseenter", "focus"].forEach(kind => element.addEventListener(kind, () => keep(node)));
    ["mouseleave", "blur"].forEach(kind => element.addEventListener(kind, clear));
  });
}

/* Make every graph in the page answer that does not yet: a notebook does not say which script is running. */
export function everyGraph(page) {
  page.querySelectorAll(".regard-graph:not([data-ready])").forEach(svg => {
    svg.setAttribute("data-ready", "");
    graph(svg);
  });
}
