// Elements of the labelling page, made from data.

import { $, count, element, gauge, plural, share } from "/web/draw.js";

export const pictureOf = (stream, prediction, size) =>
  `/v1/streams/${encodeURIComponent(stream)}/predictions/${prediction.id}/picture` +
  `?size=${size}&v=${prediction.image.slice(0, 16)}`;

const MOST = 9; // guesses that are listed: one for each number key

// The guesses; where all classes were among them, also those that were added since.
export function showGuesses(list, prediction, classes, choose) {
  const { top } = prediction;
  const added = classes.slice(top.length, MOST).map((label) => ({ label, probability: 0 }));
  list.replaceChildren(
    ...[...top, ...added].map(({ label, probability }, index) => {
      const bar = element("span", { class: "bar" });
      bar.style.setProperty("--share", probability); // by script: the policy forbids style attributes
      return element(
        "li",
        {},
        element(
          "button",
          { type: "button", class: "guess", onclick: () => choose(label) },
          element("kbd", { "aria-hidden": "true" }, String(index + 1)),
          element("span", { class: "label" }, label),
          element("span", { class: "percent" }, share(probability)),
          bar,
        ),
      );
    }),
  );
}

export function showQuestion(stream, { prediction, why }, classes, choose) {
  const image = $("#image");
  const source = pictureOf(stream, prediction, 1600);
  if (image.getAttribute("src") !== source) image.src = source;
  image.alt = `The image to label, ${prediction.name}`;
  $("#name").textContent = prediction.name;
  const yesNo = prediction.question === "yes_no";
  $("#ask").textContent = yesNo ? `Is this “${prediction.label}”?` : "What is this?";
  $("#yes-no").hidden = !yesNo;
  showGuesses($("#guesses"), prediction, classes, choose);
  showWhy(prediction, why);
}

function showWhy(prediction, why) {
  const entropy = why.threshold === null ? [] : [
    gauge(
      `Uncertainty ${why.entropy.toFixed(2)}, threshold ${why.threshold.toFixed(2)}`,
      why.entropy, why.highest, why.threshold,
      { left: `uncertainty ${why.entropy.toFixed(2)}`, right: `asks above ${why.threshold.toFixed(2)}` },
    ),
  ];
  const [first, second] = prediction.top;
  const margin = why.rule !== "margin" || !second ? [] : [
    gauge(
      `${share(first.probability)} against ${share(second.probability)}`,
      second.probability, first.probability, null,
      { left: `second guess ${share(second.probability)}`, right: `first guess ${share(first.probability)}` },
    ),
  ];
  const most = Math.max(why.spent, why.allowed, 1);
  const budget = gauge(
    `${count(why.spent)} questions of ${count(why.allowed)} allowed`,
    why.spent, most, why.allowed,
    { left: plural(why.spent, "question"), right: `budget ${count(why.allowed)}` },
  );
  $("#why-picture").replaceChildren(...entropy, ...margin, budget);
  $("#why-text").textContent = why.text;
  $("#why-more").textContent = alikeOf(prediction.label, why);
}

function alikeOf(label, why) {
  if (!why.alike) return `No image predicted as “${label}” has a label yet.`;
  const right = why.alike === why.alike_right ? "all" : why.alike_right ? count(why.alike_right) : "none";
  return `It predicted “${label}” for ${plural(why.alike, "labelled image")} before, and was right about ${right} of them.`;
}

const WORDS = { open: "asked", answered: "labelled", corrected: "labelled", skipped: "skipped", expired: "expired" };

// One of the last predictions, as a button that opens its correction.
export function tile(stream, prediction, now, open) {
  const said = prediction.said || now || prediction.label;
  const state = prediction.answer === null && now ? `was ${prediction.label}` : (WORDS[prediction.state] ?? "");
  const image = prediction.has_image
    ? element("img", { src: pictureOf(stream, prediction, 200), alt: "", loading: "lazy" })
    : element("span", { class: "gone" }, "no longer kept");
  return element(
    "li",
    { "data-id": prediction.id, "data-said": `${said} ${state}`, class: prediction.answer === null && now ? "changed" : prediction.state },
    element(
      "button",
      { type: "button", onclick: () => open(prediction), title: prediction.name },
      image,
      element("span", { class: "label" }, said),
      element("span", { class: "state" }, state || share(prediction.top[0]?.probability ?? 0)),
    ),
  );
}
