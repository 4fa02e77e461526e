/* Attention on numbers that a person can follow: the mathematics as functions, and examples to begin with.

   Q = x W_q,  K = x W_k,  V = x W_v,  weights = softmax(Q Kᵀ / (scale · temperature)),  output = weights V
   (Vaswani et al. 2017, eq. 1). A matrix is a list of rows. */

export const product = (a, b) => a.map(row => b[0].map((_, column) => row.reduce((sum, value, i) => sum + value * b[i][column], 0)));
export const transposed = a => a[0].map((_, column) => a.map(row => row[column]));
export const mapped = (a, f) => a.map((row, i) => row.map((value, j) => f(value, i, j)));

/* The softmax of one row; -Infinity gets nothing, and a row of nothing but -Infinity gets zeros. */
export function softmax(row) {
  const most = Math.max(...row);
  if (most === -Infinity) return row.map(() => 0);
  const powers = row.map(value => Math.exp(value - most)), total = powers.reduce((sum, each) => sum + each, 0);
  return powers.map(each => each / total);
}

/* From scores to weights: divided by scale and temperature, -∞ where `mask` is true, then the softmax of each row. */
export function attention(scores, { mask = [], scale = 1, temperature = 1 }) {
  const scaled = mapped(scores, value => value / (scale * temperature));
  const masked = mapped(scaled, (value, i, j) => mask[i]?.[j] ? -Infinity : value);
  return { scaled, masked, weights: masked.map(softmax) };
}

/* Everything that follows from a toy {x, q, k, v} or {scores}, by name. */
export function computed(toy) {
  if (toy.scores) return { scores: toy.scores, ...attention(toy.scores, toy) };
  const Q = product(toy.x, toy.q), K = product(toy.x, toy.k), V = product(toy.x, toy.v);
  const scores = product(Q, transposed(K)), found = attention(scores, toy);
  return { Q, K, V, scores, ...found, output: product(found.weights, V) };
}

/* A toy as `regard walk --from` reads it: there `scale` multiplies, and a mask has 1 where a query may look. */
export function numbersOf(toy) {
  const given = toy.scores ? { scores: toy.scores } : { x: toy.x, W_q: toy.q, W_k: toy.k, W_v: toy.v };
  return { ...given, mask: mapped(toy.mask, hidden => hidden ? 0 : 1), scale: 1 / (toy.scale * toy.temperature), labels: toy.tokens };
}

/* PE(p, 2i) = sin(p / 10000^(2i/D)), PE(p, 2i+1) = cos(p / 10000^(2i/D)) (section 3.5). */
export function sinusoids(positions, width) {
  return Array.from({ length: positions }, (_, p) => Array.from({ length: width }, (_, d) => {
    const angle = p / 10000 ** (2 * Math.floor(d / 2) / width);
    return d % 2 ? Math.cos(angle) : Math.sin(angle);
  }));
}

const causal = size => Array.from({ length: size }, (_, i) => Array.from({ length: size }, (_, j) => j > i));

export const EXAMPLES = {
  worked: {
    title: "Three tokens by hand",
    about: "Three tokens of four dimensions, keys of width three, every number small and whole. Nothing is scaled, so the scores stay whole too.",
    tokens: ["first", "second", "third"],
    x: [[1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]],
    k: [[0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]],
    q: [[1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]],
    v: [[0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]],
  },
  reads: {
    title: "she reads books",
    about: "Keys of width four: divided by √4 = 2, every score is still a whole number or a half. The same numbers as regard walk --toy.",
    tokens: ["she", "reads", "books"], scale: 2,
    x: [[1, 0, 1, 0], [0, 2, 0, 1], [1, 1, 0, 1]],
    q: [[1, 0, 2, 0], [1, 0, 0, 0], [0, 2, 0, 2], [0, 0, 0, 2]],
    k: [[0, 0, 3, 0], [0, 0, 0, 1], [0, 3, 0, 0], [0, 0, 0, 0]],
    v: [[1, 0, 0, 2], [0, 3, 0, 0], [0, 0, 1, 0], [1, 0, 0, 1]],
  },
  hello: {
    title: "Hi how are you",
    about: "Scores as large as these leave one winner in each row, even divided by 8. Raise the temperature, and the others come back.",
    tokens: ["Hi", "how", "are", "you"], scale: 8,
    scores: [[98, 27, 10, 12], [27, 89, 31, 67], [10, 31, 91, 54], [12, 67, 54, 92]],
  },
  ahead: {
    title: "No looking ahead",
    about: "A decoder must not see what it has yet to write: later keys get −∞ before the softmax, and so no weight. Click the mask.",
    tokens: ["<start>", "I", "am", "fine"], mask: causal(4),
    scores: [[0.7, 0.1, 0.1, 0.1], [0.1, 0.6, 0.2, 0.1], [0.1, 0.3, 0.6, 0.1], [0.1, 0.3, 0.3, 0.3]],
  },
};

/* An example with a person's changes: edits such as "x.0.1:3_q.2.0:-1", a mask such as "0-1_0-2" (null: the example's own). */
export function toyOf({ start = "worked", edits = "", mask = null, scale = null, temperature = null }) {
  const given = EXAMPLES[start] ?? EXAMPLES.worked, toy = structuredClone(given);
  for (const edit of edits ? edits.split("_") : []) {
    const [place, value] = edit.split(":"), [name, row, column] = place.split(".");
    if (toy[name]?.[row]?.[column] !== undefined && Number.isFinite(Number(value))) toy[name][row][column] = Number(value);
  }
  const size = given.tokens.length;
  if (mask !== null) {
    toy.mask = Array.from({ length: size }, () => Array(size).fill(false));
    for (const pair of mask.split("_").filter(Boolean)) {
      const [row, column] = pair.split("-").map(Number);
      if (row < size && column < size) toy.mask[row][column] = true;
    }
  }
  toy.mask ??= Array.from({ length: size }, () => Array(size).fill(false));
  toy.scale = scale === null ? given.scale ?? 1 : Number(scale);
  toy.temperature = temperature === null ? 1 : Number(temperature);
  return toy;
}
