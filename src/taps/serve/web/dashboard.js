// The dashboard of one stream: read once, then kept up to date by events.

import { Refused, follow, get, post, signOut, signedIn } from "/web/api.js";
import { band, bars, dot, frame, legend, line, nothing } from "/web/charts.js";
import { $, count, element, interval, plural, shape, share, standing } from "/web/draw.js";

const WINDOW = 500; // predictions drawn
const LOGGED = 50; // events shown
const ANYWAY = 1e6; // the score of an image that is asked about at random; a threshold that nothing passes
const ENOUGH = 20; // answers of an annotator before an error rate is shown
const CONFUSED = 6; // classes in the table

const stream = decodeURIComponent(location.pathname.split("/").at(-1));
const base = `/v1/streams/${encodeURIComponent(stream)}`;
const rows = new Map(); // the last predictions by id
const labelled = new Map(); // those with a label, by id
let stats = null;
let agreement = null;

const newest = (map, most) => {
  for (const id of [...map.keys()].sort((a, b) => b - a).slice(most)) map.delete(id);
};
const sorted = (map) => [...map.values()].sort((a, b) => a.id - b.id);

function take(prediction) {
  rows.set(prediction.id, prediction);
  if (prediction.answer !== null) labelled.set(prediction.id, prediction);
  else labelled.delete(prediction.id);
}

function draw() {
  newest(rows, WINDOW);
  newest(labelled, 1000);
  const answered = sorted(labelled).filter(({ asked }) => asked).sort((a, b) => a.ended_at - b.ended_at);
  drawTiles();
  $("#accuracy").replaceChildren(...accuracy(answered));
  $("#score").replaceChildren(...score(sorted(rows)));
  $("#budget").replaceChildren(...budget(sorted(rows)));
  $("#memory").replaceChildren(memory());
  $("#confusion").replaceChildren(confusion(sorted(labelled)));
  $("#latency").replaceChildren(...latency(sorted(rows)));
  $("#people").replaceChildren(people());
  $("#agreement").textContent = agreed();
  $("#disagreements").replaceChildren(...agreement.open.map(disagreement));
}

function drawTiles() {
  const { seen, asked, open, answered, agreed, corrected, asking } = stats;
  const [low, high] = interval(agreed, answered);
  const estimate = stats.accuracy?.estimate;
  const tiles = [
    ["Images", count(seen), ""],
    ["Questions", count(asked), seen ? `${(100 * asked / seen).toFixed(1)} % of the images` : ""],
    ["Waiting", count(open), open ? "for an annotator" : "none"],
    ["Answered", count(answered), corrected ? `and ${count(corrected)} corrected unasked` : ""],
    ["Right of all", estimate ? share(estimate.value) : "–",
      estimate ? `${share(estimate.low)} to ${share(estimate.high)} at 95 %` : "not known yet"],
    ["Right where asked", answered ? share(agreed / answered) : "–",
      answered ? `mostly the hardest; ${share(low)} to ${share(high)} at 95 %` : "no answer yet"],
    ["Budget", asking ? (asking.budget === null ? `${+(100 * asking.rate).toFixed(1)} %` : count(asking.budget)) : "–",
      asking ? (asking.budget === null ? "of the images" : "questions") : "this method never asks"],
  ];
  $("#tiles").replaceChildren(
    ...tiles.map(([name, value, more]) =>
      element("div", {}, element("dt", {}, name), element("dd", { class: "value" }, value), element("dd", {}, more))),
  );
  $("#notes").replaceChildren(...(stats.learner.notes ?? []).map((note) => element("li", {}, note)));
  $("#standing").textContent = standing(stats);
  $("#counts").textContent = `${plural(seen, "image")} · ${plural(stats.events, "event")}`;
}

function accuracy(answered) {
  if (answered.length < 2) return [nothing("Two answers are needed to draw this.")];
  const first = Math.max(0, stats.answered - answered.length);
  let right = 0;
  const seen = answered.map(({ answer, label }, index) => {
    right += answer === label;
    return [first + index + 1, right / (index + 1), ...interval(right, index + 1)];
  });
  const [, now, low, high] = seen.at(-1);
  const made = frame(
    `Accuracy on ${plural(answered.length, "answered question")}: ${share(now)}, between ${share(low)} and ${share(high)}`,
    { range: [first + 1, first + answered.length], label: "answer" },
    { range: [0, 1], format: share },
  );
  band(made, seen.map(([x, , below]) => [x, below]), seen.map(([x, , , above]) => [x, above]), { class: "band" });
  line(made, seen.map(([x, value]) => [x, value]), { class: "line" });
  return [made.svg, legend(["line", "share of right predictions"], ["band", "its interval, at 95 %"])];
}

function score(all) {
  const rule = stats.asking?.rule ?? "entropy";
  const atRandom = rule === "random";
  const entropic = atRandom || rule === "entropy";
  $("#score-title").textContent = `${entropic ? "Uncertainty" : `Score by ${rule}`}, and when it asks`;
  const [finite, above] = [all.filter(({ threshold }) => threshold !== null), ({ threshold }) => threshold >= ANYWAY];
  const without = !stats.asking || atRandom || !finite.length || finite.every(above);
  $("#score-note").textContent = `Each dot is an image. ${thresholdNote(atRandom, finite.length && finite.every(above))}`;
  const valueOf = (row) => (entropic ? row.entropy : row.score);
  const known = all.filter((row) => valueOf(row) !== null); // older versions kept no score
  if (!known.length) return [nothing("No image yet.")];
  const most = entropic
    ? Math.log(stats.learner.classes.length)
    : Math.max(0.01, ...known.map(valueOf).filter((value) => value < ANYWAY));
  const made = frame(
    `${entropic ? "Uncertainty" : "Score"} of the last ${plural(known.length, "image")}, ${count(known.filter(({ asked }) => asked).length)} of them asked about`,
    { range: [known[0].id, Math.max(known.at(-1).id, known[0].id + 1)], label: "image" },
    { range: [0, most], format: (value) => value.toFixed(most < 0.5 ? 2 : 1) },
  );
  const place = (row, size, kind) => dot(made, row.id, Math.min(valueOf(row), most), size, { class: kind });
  for (const row of known.filter(({ asked }) => !asked)) place(row, 2.5, "quiet");
  for (const row of known.filter(({ asked }) => asked)) place(row, 4, "asked");
  // Where the threshold is above the chart, the line has a gap.
  const compared = without ? [] : known.filter(({ threshold }) => threshold !== null);
  const limits = compared.map(({ id, threshold }) => (threshold > most ? null : [id, threshold]));
  for (const part of stretches(limits)) line(made, part, { class: "limit" });
  const keys = [["quiet", "not asked"], ["asked", "asked"], ...(without ? [] : [["limit", "threshold"]])];
  const drawn = !entropic && known.some((row) => row.score >= ANYWAY);
  return [made.svg, legend(...keys), ...(drawn ? [element("p", { class: "note" }, "Images that were drawn at random are at the top.")] : [])];
}

function thresholdNote(atRandom, pooled) {
  if (!stats.asking) return "This method never asks.";
  if (atRandom) return "This stream asks at random, so there is no threshold.";
  if (pooled) return "Questions are chosen among all images, so there is no threshold.";
  return "Those above the threshold are asked about while the budget lasts.";
}

// The parts of a list between nulls.
function stretches(list) {
  const parts = [[]];
  for (const each of list) each === null ? parts.push([]) : parts.at(-1).push(each);
  return parts.filter((part) => part.length);
}

function budget(all) {
  if (!stats.asking) return [nothing("This method never asks.")];
  if (all.length < 2) return [nothing("Two images are needed to draw this.")];
  const { spent, yes_no_share } = stats.learner;
  const costs = all.map(({ asked, question }) => (asked ? (question === "yes_no" ? yes_no_share : 1) : 0));
  let sum = Math.max(0, spent - costs.reduce((a, b) => a + b));
  const put = all.map(({ id }, index) => [id, (sum += costs[index])]);
  const allowed = all.map(({ id }) => [id, stats.asking.budget ?? stats.asking.rate * (id + 1)]);
  const most = Math.max(sum, allowed.at(-1)[1], 1);
  const made = frame(
    `${plural(stats.asked, "question")} for ${plural(stats.seen, "image")}; the budget allows ${count(allowed.at(-1)[1])}`,
    { range: [all[0].id, all.at(-1).id], label: "image" },
    { range: [0, most], format: (value) => (Number.isInteger(value) ? count(value) : "") },
  );
  line(made, allowed, { class: "limit" });
  line(made, put, { class: "line" });
  return [made.svg, legend(["line", "questions asked"], ["limit", "budget"])];
}

function memory() {
  const held = stats.learner.buffer_classes;
  $("#memory-note").textContent = held
    ? "Labelled images in the memory the model learns from."
    : "Labels given so far.";
  const counts = held ? Object.entries(held) : [...tally(sorted(labelled).map(({ answer }) => answer))];
  const all = counts.filter(([, number]) => number > 0).sort((a, b) => b[1] - a[1]);
  if (!all.length) return nothing("No label yet.");
  const shown = all.slice(0, 15).map(([name, number]) => [name, number, count(number)]);
  if (all.length > 15) {
    const others = all.slice(15).reduce((sum, [, number]) => sum + number, 0);
    shown.push([`${count(all.length - 15)} other classes`, 0, count(others)]);
  }
  return bars(`Labels by class: ${shown.slice(0, 5).map(([name, number]) => `${name} ${number}`).join(", ")}`, shown, all[0][1]);
}

// The error rates are the model's estimates, which need several annotators, and some answers of each.
function people() {
  const all = Object.entries(stats.learner.head_annotators ?? {}).sort((a, b) => b[1].answers - a[1].answers);
  if (!all.length) return nothing("No answer yet, or a method that does not tell annotators apart.");
  const head = ["name", "answers", "wrong, about", "known answers right"].map((name) => element("th", { scope: "col" }, name));
  const lines = all.map(([name, { answers, noise }]) =>
    element("tr", {}, element("th", { scope: "row" }, name || "without a name"), element("td", {}, count(answers)), element("td", {}, all.length > 1 && answers >= ENOUGH ? share(noise) : "–"), element("td", {}, known(agreement.known[name]))));
  return element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...lines));
}

const known = (one) => (one ? `${count(one.right)} of ${count(one.asked)}` : "–");

// How far people agree, where a share of the questions is asked twice.
function agreed() {
  const { images, alpha, low, high, share: twice } = agreement;
  if (!images) return twice ? "No question was answered by two people yet." : "";
  const value = alpha === null ? "not known yet" : `${alpha.toFixed(2)} (${low.toFixed(2)} to ${high.toFixed(2)}, at 95 %)`;
  return `Agreement, Krippendorff's α: ${value}; ${plural(images, "image")} answered by two people.`;
}

// One button for each answer: pressing it settles the disagreement.
function disagreement({ prediction: { id, name }, said }) {
  const settle = (label) => async () => {
    const body = stats.learner.classes.includes(label) ? { label } : { none: true };
    await post(`${base}/predictions/${id}/label`, body);
    await refresh();
  };
  const people = new Map();
  for (const [who, label] of Object.entries(said)) people.set(label, [...(people.get(label) ?? []), who || "without a name"]);
  const buttons = [...people].map(([label, who]) =>
    element("button", { type: "button", onclick: settle(label) }, `${label} (${who.join(", ")})`));
  return element("li", {}, `${name}: `, ...buttons);
}

const tally = (names) => names.reduce((counts, name) => counts.set(name, (counts.get(name) ?? 0) + 1), new Map());

function confusion(all) {
  if (!all.length) return nothing("No label yet.");
  const wrong = tally(all.flatMap(({ answer, label }) => (answer === label ? [] : [answer, label])));
  const seen = tally(all.flatMap(({ answer, label }) => [answer, label]));
  const names = [...seen.keys()]
    .sort((a, b) => (wrong.get(b) ?? 0) - (wrong.get(a) ?? 0) || seen.get(b) - seen.get(a))
    .slice(0, CONFUSED);
  const cells = tally(all.map(({ answer, label }) => JSON.stringify([answer, label])));
  const most = Math.max(...cells.values());
  const cell = (answer, label) => {
    const number = cells.get(JSON.stringify([answer, label])) ?? 0;
    const made = element("td", { class: number ? (answer === label ? "right" : "wrong") : null }, number ? count(number) : "·");
    made.style.setProperty("--share", number / most);
    return made;
  };
  return element(
    "table",
    {},
    element("caption", { class: "unseen" }, "Answers against predictions"),
    element("thead", {}, element("tr", {}, element("td", {}), ...names.map((name) => element("th", { scope: "col" }, name)))),
    element("tbody", {}, ...names.map((answer) =>
      element("tr", {}, element("th", { scope: "row" }, answer), ...names.map((label) => cell(answer, label))))),
  );
}

function latency(all) {
  const times = all.map(({ seconds }) => 1000 * seconds).sort((a, b) => a - b);
  if (!times.length) return [nothing("No image yet.")];
  const at = (part) => times[Math.min(times.length - 1, Math.floor(part * times.length))];
  const top = Math.max(at(0.99), 1);
  const bins = new Array(20).fill(0);
  for (const time of times) bins[Math.min(19, Math.floor((20 * time) / top))]++;
  const said = `Half take less than ${at(0.5).toFixed(0)} ms, 95 % less than ${at(0.95).toFixed(0)} ms`;
  const most = Math.max(...bins);
  const made = frame(said, { range: [0, top], label: "milliseconds" }, { range: [0, most], format: count });
  bins.forEach((number, index) => {
    const from = [made.atX((index * top) / 20) + 1, made.atY(number)];
    const size = { width: made.atX(top / 20) - made.atX(0) - 2, height: made.atY(0) - made.atY(number) };
    made.svg.append(shape("rect", { x: from[0], y: from[1], ...size, class: "fill" }));
  });
  return [made.svg, element("p", { class: "note" }, `${said}, over the last ${plural(times.length, "image")}.`)];
}

// Events

const TOLD = {
  predicted: ({ prediction: p }) => `${p.name}: ${p.label}${p.asked ? ", and asks" : ""}`,
  answered: ({ prediction: p }) =>
    `${p.name} is ${p.said}${p.answer === p.label ? ", as predicted" : p.answer ? `, not ${p.label}` : ""}`,
  repeated: ({ prediction: p }) => `The answer about ${p.name} was sent again`,
  undone: ({ prediction: p }) => `The answer about ${p.name} was undone`,
  skipped: ({ prediction: p }) => `${p.name} was skipped`,
  expired: ({ prediction: p }) => `The question about ${p.name} expired`,
  asked: ({ prediction: p }) => `${p.name} is asked about`,
  accepted: ({ value }) => `${plural(value.ids.length, "prediction")} of ${value.label} accepted`,
  opinion: ({ prediction: p }) => `A second opinion on ${p.name}`,
  classes_added: ({ value }) => `New classes: ${value.join(", ")}`,
};

function log(kind, data) {
  const at = new Date(1000 * data.at);
  const time = element("time", { datetime: at.toISOString() }, at.toLocaleTimeString());
  $("#events").prepend(element("li", { class: kind }, time, element("b", {}, kind), TOLD[kind](data)));
  while ($("#events").children.length > LOGGED) $("#events").lastElementChild.remove();
}

let waiting = 0;

function heard(kind, data) {
  if (data.prediction) take(data.prediction);
  log(kind, data);
  waiting ||= setTimeout(refresh, 1000);
}

async function read() {
  [stats, agreement] = await Promise.all([get(`${base}/stats`), get(`${base}/agreement`)]);
}

async function refresh() {
  waiting = 0;
  try {
    await read();
    draw();
  } catch (error) {
    if (error instanceof Refused && error.status === 401) return void (await signedIn($("#sign-in")));
    if (error instanceof Refused) $("#alert").textContent = error.message;
  }
}

function connected(now) {
  if (!now) waiting ||= setTimeout(refresh, 1000); // the session may have ended: this request finds out
  document.body.classList.toggle("lost", !now);
  $("#connection").textContent = now ? "Live" : "Connection lost. Trying again …";
}

async function begin() {
  $("#title").textContent = stream;
  document.title = `${stream} · TAPS`;
  $("#label").href = `/?stream=${encodeURIComponent(stream)}`;
  $("#sign-out").onclick = () => signOut((text) => ($("#alert").textContent = text));
  await signedIn($("#sign-in"));
  const streams = await get("/v1/streams");
  $("#stream").replaceChildren(...streams.map(({ name }) => element("option", { value: name }, name)));
  $("#stream").value = stream;
  $("#stream").onchange = (event) => location.assign(`/streams/${encodeURIComponent(event.target.value)}`);
  await read();
  for (const row of await get(`${base}/predictions?newest=true&labelled=true&limit=1000`))
    if (row.answer !== null) labelled.set(row.id, row);
  for (const row of await get(`${base}/predictions?newest=true&limit=${WINDOW}`)) rows.set(row.id, row);
  draw();
  follow(stream, Math.max(0, stats.events - 20), { event: heard, live: connected });
}

begin().catch((error) => {
  $("#alert").textContent = error instanceof Refused ? error.message : "The service does not answer; load the page again.";
});
