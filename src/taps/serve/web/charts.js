// Charts in SVG: axes with round numbers, lines, bands, dots, bars.

import { element, picture, shape, text } from "/web/draw.js";

const WIDTH = 520;
const HEIGHT = 230;
const PAD = { left: 44, right: 12, top: 10, bottom: 34 };

// Round numbers from 0 or `low` to at least `high`.
export function ticks(low, high, wanted = 4) {
  const span = high - low || 1;
  const raw = span / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= raw);
  const made = [];
  for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + 1e-9 * span; value += step)
    made.push(Number(value.toPrecision(12)));
  return made;
}

// A frame with axes: gives the svg and functions from values to places.
export function frame(label, x, y) {
  const place = (value, [low, high], from, to) => from + ((value - low) / (high - low || 1)) * (to - from);
  const atX = (value) => place(value, x.range, PAD.left, WIDTH - PAD.right);
  const atY = (value) => place(value, y.range, HEIGHT - PAD.bottom, PAD.top);
  const svg = picture(WIDTH, HEIGHT, label);
  for (const value of ticks(...y.range)) {
    svg.append(shape("line", { x1: PAD.left, x2: WIDTH - PAD.right, y1: atY(value), y2: atY(value), class: "grid" }));
    svg.append(text(PAD.left - 6, atY(value) + 4, y.format(value), { class: "end" }));
  }
  for (const value of ticks(...x.range).filter((value) => Number.isInteger(value)))
    svg.append(text(atX(value), HEIGHT - PAD.bottom + 15, String(value), { class: "middle" }));
  svg.append(text((PAD.left + WIDTH - PAD.right) / 2, HEIGHT - 4, x.label, { class: "middle" }));
  return { svg, atX, atY };
}

const points = (all) => all.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");

export function line({ svg, atX, atY }, values, given) {
  svg.append(shape("polyline", { points: points(values.map(([x, y]) => [atX(x), atY(y)])), ...given }));
}

export function band({ svg, atX, atY }, low, high, given) {
  const edge = [...high, ...[...low].reverse()].map(([x, y]) => [atX(x), atY(y)]);
  svg.append(shape("polygon", { points: points(edge), ...given }));
}

export function dot({ svg, atX, atY }, x, y, radius, given) {
  svg.append(shape("circle", { cx: atX(x).toFixed(1), cy: atY(y).toFixed(1), r: radius, ...given }));
}

// Horizontal bars, one a row, with names and counts.
export function bars(label, rows, most) {
  const height = 24 * rows.length + 4;
  const svg = picture(WIDTH, height, label);
  rows.forEach(([name, value, said], index) => {
    const y = 24 * index + 4;
    const short = name.length > 24 ? `${name.slice(0, 23)}…` : name;
    svg.append(
      text(150, y + 13, short, { class: "end" }),
      shape("rect", { x: 158, y, width: Math.max(1, (300 * value) / (most || 1)), height: 17, rx: 3, class: "fill" }),
      text(164 + (300 * value) / (most || 1), y + 13, said),
    );
  });
  return svg;
}

export const nothing = (words) => element("p", { class: "nothing" }, words);

// A legend entry: a sample of the mark, and words.
export function legend(...entries) {
  return element(
    "ul",
    { class: "legend" },
    ...entries.map(([kind, words]) => element("li", {}, element("span", { class: `key ${kind}` }), words)),
  );
}
