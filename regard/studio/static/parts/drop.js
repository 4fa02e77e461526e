/* A place to drop a file on, or to choose one by mouse and keyboard. */
import { h } from "./dom.js";

/* `take(file)` hears every file; `accept` is what the browser offers to choose. */
export function dropArea(words, accept, take) {
  const input = h("input", { type: "file", accept, onchange: () => input.files[0] && take(input.files[0]) });
  const area = h("label", { class: "drop" }, input, h("span", {}, words));
  const over = on => event => { event.preventDefault(); area.classList.toggle("over", on); };
  area.addEventListener("dragover", over(true));
  area.addEventListener("dragleave", over(false));
  area.addEventListener("drop", event => {
    over(false)(event);
    if (event.dataTransfer.files[0]) take(event.dataTransfer.files[0]);
  });
  return area;
}
