// Finds class names by a typed text: the whole name, its beginning, a word's beginning, a part, letters in order, or
// with a typing error. Pure functions.

export const plain = (text) =>
  text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase().replace(/[_\s-]+/g, " ").trim();

// The best matches first: [{name, index}]. Names that match equally well stay in their order.
export function rank(query, names, limit = 8) {
  const wanted = plain(query);
  if (!wanted) return names.slice(0, limit).map((name, index) => ({ name, index }));
  const found = [];
  names.forEach((name, index) => {
    const score = match(wanted, plain(name));
    if (score !== null) found.push({ name, index, score });
  });
  found.sort((a, b) => a.score - b.score || a.index - b.index);
  return found.slice(0, limit).map(({ name, index }) => ({ name, index }));
}

// How badly a name fits, 0 best; null where it does not fit at all.
export function match(wanted, name) {
  const longer = name.length / 1000;
  if (name === wanted) return 0;
  if (name.startsWith(wanted)) return 1 + longer;
  if (name.includes(" " + wanted)) return 2 + longer;
  if (name.includes(wanted)) return 3 + longer;
  const slips = Math.min(...starts(name).map((from) => distance(wanted, name.slice(from))));
  if (wanted.length > 2 && slips <= Math.max(1, Math.floor(wanted.length / 3))) return 4 + slips / 10 + longer;
  const spread = inOrder(wanted, name);
  return spread === null ? null : 5 + spread / 100 + longer;
}

const starts = (name) => [0, ...[...name.matchAll(/ /g)].map((space) => space.index + 1)];

// Letters to change, leave out, put in or swap until `wanted` is some beginning of `name`.
export function distance(wanted, name) {
  const text = name.slice(0, wanted.length + 3);
  let before = [];
  let row = Array.from({ length: text.length + 1 }, (_, j) => j);
  for (let i = 1; i <= wanted.length; i++) {
    const next = [i];
    for (let j = 1; j <= text.length; j++) {
      const same = wanted[i - 1] === text[j - 1] ? 0 : 1;
      next[j] = Math.min(row[j - 1] + same, row[j] + 1, next[j - 1] + 1);
      const swapped = i > 1 && j > 1 && wanted[i - 1] === text[j - 2] && wanted[i - 2] === text[j - 1];
      if (swapped) next[j] = Math.min(next[j], before[j - 2] + 1);
    }
    before = row;
    row = next;
  }
  return Math.min(...row);
}

// Letters between the first and the last match, where those of `wanted` come in order and begin a word.
function inOrder(wanted, name) {
  const letters = wanted.replaceAll(" ", "");
  for (const from of starts(name)) {
    if (name[from] !== letters[0]) continue;
    let place = from;
    let all = true;
    for (const letter of letters) {
      place = name.indexOf(letter, place);
      if (place < 0) {
        all = false;
        break;
      }
      place++;
    }
    if (all) return place - from - letters.length;
  }
  return null;
}
