/* How an attention formed: a slider over the steps of a run, and a button that plays them. */
import { paint } from "./heatmap.js";

const PAUSE = 400; /* milliseconds between steps */

/* Make a formation inside `element` move. `data` has rows, columns, captions, the places of the steps on the curves, the top of
   the scale, a ramp of colours, and views: the map that is shown and each head, with maps and numbers for every step. */
export function formation(element, data) {
  const slider = element.querySelector("#step"), button = element.querySelector("#play");
  const chosen = element.querySelector("#view"), state = element.querySelector("#state");
  const cells = Array.from(element.querySelectorAll(".map tbody td"));
  let timer = null;

  function show() {
    const step = Number(slider.value), view = data.views[chosen ? Number(chosen.value) : 0];
    paint(cells, view.maps[step], data);
    state.textContent = data.captions[step] + " \u00b7 greatest weight of a row " + view.sharpness[step].toFixed(2) +
      " \u00b7 alike to the last map " + view.alike[step].toFixed(2);
    slider.setAttribute("aria-valuetext", data.captions[step]);
    element.querySelectorAll(".now").forEach(mark => {
      mark.setAttribute("d", "M" + data.places[step] + " 0V" + mark.dataset.high);
    });
    element.querySelectorAll("path.shown").forEach(path => path.setAttribute("d", view[path.dataset.of]));
  }
  function atTheEnd() {
    return Number(slider.value) >= Number(slider.max);
  }
  function stop() {
    clearInterval(timer);
    timer = null;
    button.textContent = "Play";
  }
  function play() {
    if (atTheEnd()) slider.value = 0;
    button.textContent = "Pause";
    timer = setInterval(() => {
      slider.value = Number(slider.value) + 1;
      show();
      if (atTheEnd()) stop();
    }, PAUSE);
    show();
  }
  button.addEventListener("click", () => timer ? stop() : play());
  slider.addEventListener("input", () => { stop(); show(); });
  if (chosen) chosen.addEventListener("change", show);
  element.querySelector(".bar").hidden = false;
  show();
}
