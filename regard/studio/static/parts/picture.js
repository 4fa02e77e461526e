/* A picture with the weights of one panel laid over it: what was looked at stays bright, a frame is around the most. */
import { h, show } from "./dom.js";
import { share, visible } from "./numbers.js";

/* `attention` as docs/json.md has it: height, width, grid, boxes (left, top, right, bottom of each cell), panels of weights. */
export class Overlay {
  constructor(address, alt) {
    this.image = h("img", { src: address, alt });
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.frame = h("div", { class: "overlay" }, this.image, this.canvas);
    this.told = h("p", { class: "note" });
    this.element = h("div", {}, this.frame, this.told);
  }

  /* Lay a panel on the picture; null takes it away. */
  draw(attention, panel) {
    show(this.told);
    const { width, height } = attention ?? { width: 1, height: 1 };
    this.canvas.width = width;
    this.canvas.height = height;
    if (!attention || !panel) return;
    const context = this.canvas.getContext("2d"), peak = Math.max(...panel.weights.flat(), 1e-9);
    let best = null;
    panel.weights.forEach((row, i) => row.forEach((weight, j) => {
      const [left, top, right, bottom] = attention.boxes[i][j];
      context.fillStyle = `rgb(12 18 26 / ${0.86 * (1 - weight / peak)})`; // the less it was looked at, the darker
      context.fillRect(left, top, right - left, bottom - top);
      if (best === null || weight > best.weight) best = { weight, left, top, right, bottom };
    }));
    const line = Math.max(1, Math.round(width / 160));
    context.strokeStyle = "#ff9a3c";
    context.lineWidth = line;
    context.strokeRect(best.left + line / 2, best.top + line / 2, best.right - best.left - line, best.bottom - best.top - line);
    show(this.told, `${visible(panel.title)}: the most on one place ${share(panel.peak ?? peak)}`, panel.note ? ` · ${panel.note}` : "");
  }
}

/* Small copies of the picture, one for each panel, to choose from. */
export function sheet(address, attention, chosen, choose) {
  return h("div", { class: "sheet-of", role: "group", "aria-label": "Where each looked" }, attention.panels.map((panel, i) => {
    const small = new Overlay(address, "");
    small.draw(attention, panel);
    return h("button", { type: "button", "aria-pressed": i === chosen, onclick: () => choose(i) }, small.frame, h("span", { dir: "auto" }, visible(panel.title)));
  }));
}

const LARGEST = 1024; // pixels of a side; a model sees far fewer

/* A file as base64 of a PNG that is no larger than needed, drawn by the browser: whatever it can open, the server need not. */
export async function encoded(file) {
  const bitmap = await createImageBitmap(file);
  const scale = Math.min(1, LARGEST / Math.max(bitmap.width, bitmap.height));
  const canvas = h("canvas", { width: Math.round(bitmap.width * scale), height: Math.round(bitmap.height * scale) });
  canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
  return canvas.toDataURL("image/png").split(",")[1];
}
