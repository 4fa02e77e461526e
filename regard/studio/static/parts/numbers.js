/* Numbers and tokens as a person reads them. */

/* A number with so many digits behind the point; whole ones without; -∞ where a score is masked. */
export function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value < 0 ? "−∞" : "∞";
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return minus(String(value));
  if (value !== 0 && (Math.abs(value) < 0.5 * 10 ** -digits || Math.abs(value) >= 1e6)) return minus(value.toExponential(1));
  return minus(value.toFixed(digits));
}

function minus(text) {
  return text.replace("-", "−");
}

/* A share between 0 and 1 in two digits; what would read 0.00 or 1.00 and is neither says so. */
export function share(value) {
  if (value > 0 && value < 0.005) return "<0.01";
  if (value < 1 && value >= 0.995) return ">0.99";
  return value.toFixed(2);
}

export function percent(value) {
  if (value > 0 && value < 0.001) return "<0.1%";
  return `${(100 * value).toFixed(value < 0.0995 ? 1 : 0)}%`;
}

/* 2349568 as 2.3 M. */
export function short(count) {
  const units = [[1e9, "G"], [1e6, "M"], [1e3, "k"]];
  const [size, unit] = units.find(([size]) => count >= size) ?? [1, ""];
  return unit ? `${(count / size).toFixed(count / size < 10 ? 1 : 0)} ${unit}` : String(count);
}

export function duration(seconds) {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 60 ? `${minutes} min ${Math.round(seconds % 60)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/* A token as a label: without the space before it, unless there is nothing else. */
export function plain(label) {
  return label.trim() || (label === " " ? "·" : visible(label));
}

/* A token with its spaces and line ends made visible, so that " of" and "of" can be told apart. */
export function visible(label) {
  if (label === "") return "∅";
  return label.replaceAll("\n", "↵").replaceAll("\t", "⇥").replace(/^ +| +$/g, spaces => "␣".repeat(spaces.length));
}
