/* Patterns that a head's map follows on one text, as shares of its weight (Elhage et al. 2021, Olsson et al. 2022):

   previous token   the weight on the place just before
   first token      the weight on the first place, which stands for "nothing"
   induction        the weight on what came after an earlier occurrence of the same token, over the queries that have one

   A pattern fires where it has that share of the weight, and twice what even attention would give it. */

const FIRES = { "previous token": 0.4, "first token": 0.6, induction: 0.3 };
const MORE_THAN_EVEN = 2;

/* The patterns that fire, of a causal map over the tokens `labels`: [{name, share}]. */
export function firing(map, labels) {
  const weight = (row, column) => {
    const byte = map.bytes[row * map.columns + column];
    return map.masked && byte === 255 ? 0 : byte / map.top * map.peak;
  };
  const places = { // where a query of each pattern looks; before the third token all are the same
    "previous token": row => row < 2 ? [] : [row - 1],
    "first token": row => row < 2 ? [] : [0],
    induction: row => followers(labels, row),
  };
  return Object.entries(places).flatMap(([name, looks]) => {
    const rows = Array.from({ length: map.rows }, (_, row) => row).filter(row => looks(row).length);
    const share = mean(rows.map(row => looks(row).reduce((sum, column) => sum + weight(row, column), 0)));
    const even = mean(rows.map(row => looks(row).length / (row + 1)));
    return rows.length >= 3 && share >= FIRES[name] && share >= MORE_THAN_EVEN * even ? [{ name, share }] : [];
  });
}

/* The places just behind earlier occurrences of the token at `row`. */
function followers(labels, row) {
  const found = [];
  for (let place = 0; place + 1 < row; place += 1) if (labels[place] === labels[row]) found.push(place + 1);
  return found;
}

function mean(list) {
  return list.length ? list.reduce((sum, each) => sum + each, 0) / list.length : 0;
}
