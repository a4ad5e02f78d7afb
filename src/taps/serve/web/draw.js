// Elements, numbers and small SVG pictures. Text goes in as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

export const $ = (selector, within = document) => within.querySelector(selector);

export function element(tag, given = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

export function shape(tag, given = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(given)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export function picture(width, height, label, ...children) {
  const made = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  made.append(...children);
  return made;
}

export const text = (x, y, said, given = {}) => shape("text", { x, y, ...given }, said);

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
export const count = (number) => whole.format(number);
export const share = (part) => (part > 0 && part < 0.005 ? "< 1 %" : `${whole.format(100 * part)} %`);
export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

// A bar from 0 to `most`, filled to `value`, with a mark.
export function gauge(label, value, most, mark, words) {
  const width = 320;
  const at = (number) => Math.max(0, Math.min(1, most ? number / most : 0)) * width;
  const parts = [
    shape("rect", { x: 0, y: 16, width, height: 10, rx: 5, class: "track" }),
    shape("rect", { x: 0, y: 16, width: Math.max(at(value), 3), height: 10, rx: 5, class: "fill" }),
    text(0, 9, words.left, { class: "small" }),
    text(width, 9, words.right, { class: "small end" }),
  ];
  if (mark !== null) parts.push(shape("rect", { x: at(mark) - 1.5, y: 13, width: 3, height: 16, class: "mark" }));
  return picture(width, 32, label, ...parts);
}

// Wilson's interval of a share at 95 %.
export function interval(right, all) {
  if (!all) return [0, 1];
  const z = 1.959964;
  const p = right / all;
  const middle = p + (z * z) / (2 * all);
  const half = z * Math.sqrt((p * (1 - p)) / all + (z * z) / (4 * all * all));
  const scale = 1 + (z * z) / all;
  return [Math.max(0, (middle - half) / scale), Math.min(1, (middle + half) / scale)];
}

// Estimated accuracy and the forecast of more answers, where the learner has them.
export const standing = ({ accuracy, forecast }) =>
  accuracy ? ["All predictions", accuracy.said, ...(forecast ? [forecast.said] : [])].join(" · ") : "";
