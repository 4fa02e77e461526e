/* Curves of runs: a line for each, axes with few round numbers, the values under the pointer. */
import { h, show, svg } from "./dom.js";
import { number } from "./numbers.js";

const HIGH = 240, LEFT = 46, RIGHT = 12, TOP = 14, BOTTOM = 28;

/* Round numbers between two values, about `many`. */
export function ticks(low, high, many = 4) {
  if (!(high > low)) return [low];
  const rough = (high - low) / many, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(each => each * power).find(each => each >= rough * 0.999);
  const found = [];
  for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + step * 1e-9; value += step) found.push(Number(value.toPrecision(12)));
  return found;
}

/* `lines`: [{name, points: [[x, y]], dashed}]; `title` says what y is. A line's number is its colour. */
export function chart(title, lines) {
  const wide = Math.max(260, Math.min(640, innerWidth - 80)); // letters keep their size on narrow screens
  const known = lines.map(line => ({ ...line, points: line.points.filter(([, y]) => Number.isFinite(y)) })).filter(line => line.points.length);
  if (!known.length) return h("p", { class: "note" }, `${title}: nothing yet.`);
  const xs = known.flatMap(line => line.points.map(point => point[0])), ys = known.flatMap(line => line.points.map(point => point[1]));
  const [left, right] = [Math.min(...xs, 0), Math.max(...xs, 1)], pad = (Math.max(...ys) - Math.min(...ys)) * 0.05 || 1;
  const least = Math.min(...ys) - pad, [low, high] = [Math.min(...ys) >= 0 ? Math.max(0, least) : least, Math.max(...ys) + pad];
  const x = value => LEFT + (value - left) / (right - left) * (wide - LEFT - RIGHT), y = value => HIGH - BOTTOM - (value - low) / (high - low) * (HIGH - TOP - BOTTOM);
  const path = points => points.map(([a, b], i) => `${i ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("");
  const now = svg("path", { class: "now" });
  const drawing = svg("svg", { viewBox: `0 0 ${wide} ${HIGH}`, role: "img", "aria-label": `${title}: ${known.map(line => `${line.name} ${number(line.points.at(-1)[1])} at step ${line.points.at(-1)[0]}`).join("; ")}` },
    ticks(low, high).map(value => [svg("path", { class: "axis", d: `M${LEFT} ${y(value)}H${wide - RIGHT}` }), svg("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, number(value, 2))]),
    svg("text", { x: LEFT - 14, y: HIGH - 8, "text-anchor": "end" }, "step"),
    ticks(left, right, 5).map(value => svg("text", { x: x(value), y: HIGH - 8, "text-anchor": "middle" }, value >= 1000 ? `${value / 1000}k` : String(value))),
    known.map(line => svg("path", { class: `curve c${line.color % 6}${line.dashed ? " dashed" : ""}`, d: path(line.points) })), now);
  const told = h("p", { class: "legend" });
  const tell = at => show(told, known.map(line => {
    const point = at === null ? line.points.at(-1) : line.points.reduce((a, b) => Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a);
    return h("span", { class: "curve-name" }, h("i", { class: `key c${line.color % 6}${line.dashed ? " dashed" : ""}` }), `${line.name} `, h("b", {}, number(point[1])), ` at ${point[0]}`);
  }));
  drawing.addEventListener("pointermove", event => {
    const box = drawing.getBoundingClientRect(), at = left + ((event.clientX - box.left) / box.width * wide - LEFT) / (wide - LEFT - RIGHT) * (right - left);
    now.setAttribute("d", `M${x(Math.max(left, Math.min(right, at)))} ${TOP}V${HIGH - BOTTOM}`);
    tell(at);
  });
  drawing.addEventListener("pointerleave", () => { now.removeAttribute("d"); tell(null); });
  tell(null);
  return h("figure", { class: "chart" }, h("figcaption", {}, title), drawing, told);
}
