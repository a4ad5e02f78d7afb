// The labelling page: one question at a time, the next ones loaded ahead, answers kept until they are saved.

import { Refused, follow, get, post, request, signOut, signedIn } from "/web/api.js";
import { $, count, element, plural, standing } from "/web/draw.js";
import { Finder } from "/web/finder.js";
import { pictureOf, showGuesses, showQuestion, tile } from "/web/view.js";

const HELD = 3; // the question shown, and two that are loaded before they are needed
const RENEW = 30_000; // milliseconds between renewals of the leases,
const AWAKE = 90_000; // which end when nothing was pressed for so many
const AGAIN = 1_500; // milliseconds until an answer that could not be saved is sent again
const SHOWN = 24; // last predictions

const random = () => Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16)).join("");
const holder = random();

let stream = "";
let base = "";
let classes = [];
let stats = null;
let queue = []; // questions held; the first one is on the screen
const outbox = []; // answers and skips that are not saved yet, in order
let trying = null; // the first of these while it is being sent: it may be saved already
const saved = []; // answers and skips that are saved, for undo
const done = new Set(); // questions answered or skipped here
const recent = new Map(); // the last predictions by id
const changed = new Map(); // their predictions now, where these have changed
let live = null;
let turns = 0; // undone answers: a list of questions requested before one of them is out of date
let acted = Date.now();
let renewed = 0;
let leaving = false; // signing out, as soon as all is saved

const pause = (time) => new Promise((resolve) => setTimeout(resolve, time));
const say = (text) => ($("#last").textContent = text);
const complain = (text) => ($("#alert").textContent = text);

// Calls during a call are made into one more call afterwards.
function single(act) {
  let running = null;
  let wanted = null;
  return function run(...given) {
    if (running) {
      wanted = given;
      return running;
    }
    running = act(...given).finally(() => {
      const next = wanted;
      running = wanted = null;
      if (next) run(...next);
    });
    return running;
  };
}

// Whether to try again: the service could not be reached, asks to wait, or needed a sign-in.
async function isPassing(error) {
  if (!(error instanceof Refused)) return true;
  if (error.status !== 401) return error.status === 429 || error.status >= 500;
  await signedIn($("#sign-in"));
  return true;
}

// Questions

const refill = single(async () => {
  if (leaving) return;
  const began = turns;
  try {
    const first = queue[0]?.prediction.id ?? null; // also an undone one: its lease has ended
    const held = await post(`${base}/queries/lease`, { holder, count: Math.min(HELD + outbox.length, 20), first });
    renewed = Date.now();
    if (began === turns) arrange(held.filter(({ prediction }) => !done.has(prediction.id)));
  } catch (error) {
    if (!(await isPassing(error))) complain(error.message);
  }
});

function arrange(held) {
  const shown = queue[0]?.prediction.id;
  const same = held.find(({ prediction }) => prediction.id === shown);
  if (shown !== undefined && !same) say("That question was answered by somebody else, or another annotator has it.");
  queue = same ? [same, ...held.filter((question) => question !== same)] : held;
  for (const { prediction } of queue) new Image().src = pictureOf(stream, prediction, 1600);
  render();
}

let onScreen = null;

function render() {
  const question = queue[0];
  $("#question").hidden = !question;
  $("#empty").hidden = Boolean(question);
  if (question && onScreen !== question.prediction.id) {
    showQuestion(stream, question, classes, answer);
    finder.clear();
    $("#spoken").textContent = spokenOf(question.prediction);
  }
  if (!question) showEmpty();
  if (onScreen !== (question?.prediction.id ?? null)) {
    onScreen = question?.prediction.id ?? null;
    if (!document.querySelector("dialog[open]")) $(question ? "#question" : "#empty").focus({ preventScroll: true });
    if (question && window.scrollY > 200) window.scrollTo({ top: 0 });
  }
  document.body.dataset.unsaved = outbox.length;
  for (const button of document.querySelectorAll(".undo")) button.hidden = !saved.length && !outbox.length;
}

const spokenOf = ({ name, top }) =>
  `Next image: ${name}. ` + top.map(({ label }, index) => `${index + 1}: ${label}`).join(", ");

function showEmpty() {
  const waiting = (stats?.open ?? 0) - outbox.length;
  if (!stats) return;
  if (waiting > 0)
    tellEmpty("Others are on it", `${plural(waiting, "open question")} ${waiting === 1 ? "is" : "are"} with other annotators.`);
  else if (folder) tellEmpty(...FOLDER[stateOf(folder)](folder));
  else if (!stats.seen) tellEmpty("No image has come yet", "Questions appear here as images come.");
  else tellEmpty("Nothing to answer now", "The next question appears here.");
}

function tellEmpty(title, text) {
  $("#empty-title").textContent = title;
  $("#empty-text").textContent = text;
}

// Answers

// Answers, as the service takes them and in words.
const saying = {
  is: (label) => ({ kind: "answer", body: { label }, said: `“${label}”` }),
  isNot: (label) => ({ kind: "answer", body: { no: [label] }, said: `not “${label}”` }),
  none: () => ({ kind: "answer", body: { none: true }, said: "none of the classes" }),
  skip: () => ({ kind: "skip", said: "" }),
};
const answer = (label) => decide(saying.is(label));
const asksYesNo = () => queue[0]?.prediction.question === "yes_no";

function decide(act) {
  const question = queue.shift();
  if (!question) return;
  const id = question.prediction.id;
  done.add(id);
  outbox.push({ ...act, id, question, key: random() });
  say(act.kind === "skip" ? "Skipped." : `Saving ${act.said} …`);
  render();
  send();
}

const send = single(async () => {
  while (outbox.length) {
    const act = outbox[0];
    try {
      trying = { act, end: perform(act) };
      await trying.end;
      settle(act);
      saved.push(act);
      told(act);
    } catch (error) {
      if (await isPassing(error)) {
        complain("Not saved yet: the service does not answer. Your answers are kept here and sent when it is back.");
        await pause(AGAIN);
        continue;
      }
      settle(act);
      done.delete(act.id); // asked again, unless somebody else has answered it
      complain(`Not saved: ${error.message}${leaving ? " You are still signed in." : ""}`);
      leaving = false;
    } finally {
      trying = null;
    }
  }
  render();
  await refill();
});

function settle(act) {
  const place = outbox.indexOf(act);
  if (place >= 0) outbox.splice(place, 1);
  document.body.dataset.unsaved = outbox.length;
}

async function perform({ kind, id, body, key, question }) {
  if (question?.second) return kind === "skip" ? null : post(`${base}/predictions/${id}/opinion`, body);
  if (kind === "skip") return post(`${base}/queries/${id}/skip`);
  return post(`${base}/predictions/${id}/label`, body, { "Idempotency-Key": key });
}

function told(act) {
  complain("");
  const words = act.kind === "skip" ? "Skipped." : `Saved: ${act.said}.`;
  say(words);
  if (act.kind === "answer") look(words);
}

// After an answer: how many of the last predictions changed. Added to the message about the answer.
const look = single(async (words) => {
  try {
    const found = await get(`${base}/changes?last=20`);
    for (const { id, now } of found.changed) {
      if (recent.get(id)?.label === now) changed.delete(id);
      else changed.set(id, now);
    }
    if (found.looked && $("#last").textContent === words)
      say(`${words} ${count(found.changed.length)} of the last ${plural(found.looked, "prediction")} changed.`);
    if (found.changed.length) drawRecent();
  } catch (error) {
    await isPassing(error);
  }
});

async function undo() {
  const waiting = outbox.at(-1);
  if (waiting && waiting === trying?.act) await trying.end.catch(() => {});
  if (outbox.includes(waiting)) {
    settle(waiting);
    return bringBack(waiting);
  }
  const act = saved.pop();
  if (!act) return;
  try {
    if (!act.question?.second) await post(`${base}/queries/${act.id}/undo`);
    else if (act.kind === "answer") await request("DELETE", `${base}/predictions/${act.id}/opinion`);
    bringBack(act);
  } catch (error) {
    if (await isPassing(error)) saved.push(act);
    complain(`Not undone: ${error instanceof Refused ? error.message : "the service does not answer."}`);
    render();
  }
}

function bringBack(act) {
  complain("");
  say(act.kind === "skip" ? "No longer skipped." : `Undone: ${act.said}.`);
  if (!act.question) return;
  turns++;
  done.delete(act.id);
  queue.unshift(act.question);
  render();
  refill();
}

// Signs out after all answers are saved.
async function leave() {
  leaving = true;
  if (outbox.length)
    say(`You will be signed out when ${plural(outbox.length, "answer")} ${outbox.length === 1 ? "is" : "are"} saved.`);
  do await Promise.all([send(), refill()]);
  while (leaving && outbox.length);
  if (!leaving) return; // an answer was refused
  await giveBack();
  leaving = await signOut(complain);
  if (!leaving) refill();
}

const giveBack = async () => stream && post(`${base}/queries/lease`, { holder, count: 0 }).catch(() => {});

// A new class

const folded = (name) => name.replaceAll("_", " ").toLowerCase();

// The class of that name, added where there is none; somebody else may have added it just now.
async function classOf(name) {
  const there = () => classes.find((each) => folded(each) === folded(name));
  if (there()) return there();
  try {
    know((await post(`${base}/classes`, { names: [name] })).classes);
    return classes.at(-1);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    await readCounts();
    if (there()) return there();
    throw error;
  }
}

// Questions loaded before list classes that were added since.
function know(names) {
  const more = names.length !== classes.length;
  classes = names;
  if (!more) return;
  if (queue.length) showGuesses($("#guesses"), queue[0].prediction, classes, answer);
  if (correcting) showGuesses($("#correct-guesses"), correcting, classes, correct);
}

let named = answer; // called with the class of the dialog

function openAdd(name, then) {
  named = then;
  $("#add .problem").textContent = "";
  $("#add-name").value = name;
  $("#add").showModal();
}

const openNew = (name = "") => queue.length && openAdd(name, answer);
const openNewCorrection = (name = "") => openAdd(name, correct);

$("#add-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const name = $("#add-name").value.trim();
  if (!name) return;
  try {
    const label = await classOf(name);
    $("#add").close();
    named(label);
  } catch (error) {
    $("#add .problem").textContent = error instanceof Refused ? error.message : "The service does not answer; try again.";
  }
});

// The last predictions, and correcting one of them

let correcting = null;

function openCorrection(prediction) {
  correcting = prediction;
  const image = $("#correct-image");
  image.hidden = !prediction.has_image;
  if (prediction.has_image) image.src = pictureOf(stream, prediction, 800);
  image.alt = `The image to correct, ${prediction.name}`;
  $("#correct-name").textContent = prediction.name;
  $("#correct .problem").textContent = "";
  showGuesses($("#correct-guesses"), prediction, classes, correct);
  correctFinder.clear();
  $("#correct").showModal();
}

const correct = (label) => sayCorrection(saying.is(label));

async function sayCorrection(said) {
  const act = { ...said, id: correcting.id, key: random(), question: null };
  try {
    await perform(act);
    saved.push(act);
    $("#correct").close();
    told(act);
    render();
  } catch (error) {
    const passing = await isPassing(error);
    $("#correct .problem").textContent = passing ? "The service does not answer; try again." : error.message;
  }
}

function noteRecent(prediction) {
  if (prediction.state !== "unqueried") changed.delete(prediction.id);
  recent.set(prediction.id, prediction);
  for (const id of [...recent.keys()].sort((a, b) => b - a).slice(SHOWN)) recent.delete(id);
  drawRecentSoon();
}

let drawing = 0;
const drawRecentSoon = () => (drawing ||= setTimeout(drawRecent, 400));

// Nothing moves in the grid while somebody points at it or goes through it by keyboard.
function drawRecent() {
  clearTimeout(drawing);
  drawing = 0;
  const list = $("#recent");
  const rows = [...recent.values()].sort((a, b) => b.id - a.id);
  const tiles = rows.map((row) => tile(stream, row, changed.get(row.id), openCorrection));
  $("#recent-section").hidden = !rows.length;
  if (!list.matches(":hover, :focus-within")) return list.replaceChildren(...tiles);
  for (const made of tiles) {
    const old = list.querySelector(`[data-id="${made.dataset.id}"]`);
    if (!old || old.dataset.said === made.dataset.said) continue;
    const focused = old.contains(document.activeElement);
    old.replaceWith(made);
    if (focused) made.firstElementChild.focus();
  }
  if (Number(list.firstElementChild?.dataset.id) !== rows[0].id) drawRecentSoon();
}

// Events

function heard(kind, { prediction }) {
  countSoon();
  if (kind === "classes_added") return;
  if (!prediction) return;
  noteRecent(prediction);
  if (kind === "undone") return; // the page that undid it leases it at once, others later
  const mine = queue.some((question) => question.prediction.id === prediction.id);
  if (queue.length < HELD || (mine && prediction.state !== "open")) refill();
}

function connected(now) {
  if (!now) countSoon(); // the session may have ended: this request finds out
  if (now === live) return;
  const before = live;
  live = now;
  document.body.classList.toggle("lost", !now);
  $("#connection").textContent = now ? "Live" : "Connection lost. Trying again …";
  if (now && before === false) {
    complain("");
    send();
    refill();
    countSoon();
  }
}

// Leases of other pages end without an event.
async function askAgain() {
  await readCounts();
  if (stats.open > outbox.length) refill();
}

let counting = 0;
const countSoon = () => (counting ||= setTimeout(readCounts, 500));

async function readCounts() {
  counting = 0;
  try {
    stats = await get(`${base}/stats`);
  } catch (error) {
    return void (await isPassing(error));
  }
  know(stats.learner.classes);
  $("#counts").textContent =
    `${count(stats.open)} waiting · ${count(stats.answered + stats.corrected)} labelled · ${plural(stats.seen, "image")}`;
  $("#standing").textContent = standing(stats);
  document.title = `${stats.open ? `(${stats.open}) ` : ""}Label ${stream} · TAPS`;
  if (!queue.length) showEmpty();
}

// A folder: how far it is, what is left to ask, and about how long that takes

// What the page says while there is no question.
const FOLDER = {
  encoding: () => ["Encoding the images", "The next question appears here."],
  rest: () => ["That was the last question", "The remaining images are being encoded. Then every image is predicted with all answers."],
  asking: () => ["Choosing the next question", "It appears here."],
  predicting: () => ["Predicting every image again", "All answers count. The result is ready in a moment."],
  done: ({ images, files }) => [`All ${plural(images, "image")} are done`, `labels.csv and predictions.csv are in ${files}.`],
};
const PHASES = { encoding: "encoded", predicting: "predicted again" };
const leftOf = ({ wanted, answered }) => Math.max(wanted - answered, 0);
const stateOf = (now) => (leftOf(now) || !now.wanted ? now.phase : { encoding: "rest", asking: "predicting" }[now.phase] ?? now.phase);
let began = null; // when this visit began, and the answers there were

let folder = null;

async function watchFolder() {
  try {
    showFolder(await get(`${base}/folder`));
  } catch (error) {
    if (error instanceof Refused && error.status === 404) return; // images come from elsewhere
  }
  setTimeout(watchFolder, queue.length ? 2_000 : 500);
}

function showFolder(found) {
  folder = found;
  const { phase, done, images, answered, wanted } = found;
  const left = leftOf(found);
  const parts = PHASES[phase] ? [`${count(done)} of ${count(images)} ${PHASES[phase]}`] : [];
  if (left) parts.push(`about ${plural(left, "question")} left${timeFor(left, answered)}`);
  $("#progress").textContent = parts.join(", ");
  $("#counts").hidden = parts.length > 0; // the progress says it already
  $("#after").hidden = $("#command").hidden = phase !== "done" || left > 0;
  $("#files-note").textContent = found.notes.join(" ");
  $("#files-note").hidden = !found.notes.length;
  $("#command").textContent = `Predict other images with what was learned: ${found.learner}`;
  $("#more").hidden = !wanted; // else the method asks as images come
  $("#busy").hidden = !PHASES[phase];
  Object.assign($("#busy"), { max: Math.max(images, 1), value: done });
  if (!queue.length) showEmpty();
}

function timeFor(left, answered) {
  began ??= { at: Date.now(), answered };
  const since = answered - began.answered;
  if (since < 3) return "";
  const minutes = (left * (Date.now() - began.at)) / since / 60_000;
  return `, ${minutes < 1 ? "less than a minute" : plural(Math.round(minutes), "minute")}`;
}

async function askMore() {
  try {
    showFolder(await post(`${base}/folder/questions`, { questions: 20 }));
  } catch (error) {
    complain(error instanceof Refused ? error.message : "The service does not answer; try again.");
  }
}

// Keys

const KEYS = {
  y: () => asksYesNo() && $("#yes").click(),
  n: () => (asksYesNo() ? $("#no").click() : openNew()),
  0: () => $("#none").click(),
  s: () => $("#skip").click(),
  u: () => undo(),
  "?": () => openHelp(),
  "/": () => finder.focus(),
};

const CORRECTION_KEYS = {
  n: () => openNewCorrection(),
  0: () => $("#correct-none").click(),
  "/": () => correctFinder.focus(),
};

function key(event) {
  acted = Date.now();
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || !$("#keys-on").checked) return;
  if (event.target.matches("input:not([type=checkbox]), select, textarea")) return;
  const dialog = document.querySelector("dialog[open]");
  if (dialog && dialog.id !== "correct") return;
  const guesses = $(dialog ? "#correct-guesses" : "#guesses");
  const act = /^[1-9]$/.test(event.key)
    ? () => (dialog || queue.length) && guesses.children[Number(event.key) - 1]?.firstElementChild.click()
    : (dialog ? CORRECTION_KEYS : KEYS)[event.key.toLowerCase()];
  if (!act) return;
  event.preventDefault();
  act();
}

function openHelp() {
  $("#help").showModal();
}

function remembered(name, otherwise) {
  try {
    return localStorage.getItem(name) ?? otherwise;
  } catch {
    return otherwise;
  }
}

const finder = new Finder($("#finder"), {
  names: () => classes,
  choose: answer,
  add: openNew,
  leave: () => $("#question").focus({ preventScroll: true }),
});
const correctFinder = new Finder($("#correct-finder"), { names: () => classes, choose: correct, add: openNewCorrection });

function listen() {
  document.addEventListener("keydown", key);
  document.addEventListener("pointerdown", () => {
    acted = Date.now();
    if (acted - renewed > AWAKE && stream) refill();
  });
  $("#new").onclick = () => openNew();
  $("#correct-new").onclick = () => openNewCorrection();
  $("#correct-none").onclick = () => sayCorrection(saying.none());
  $("#yes").onclick = () => answer(queue[0].prediction.label);
  $("#no").onclick = () => decide(saying.isNot(queue[0].prediction.label));
  $("#none").onclick = () => decide(saying.none());
  $("#skip").onclick = () => decide(saying.skip());
  $("#help-button").onclick = openHelp;
  $("#more").onclick = askMore;
  $("#sign-out").onclick = leave;
  for (const button of document.querySelectorAll(".undo")) button.onclick = undo;
  for (const button of document.querySelectorAll("dialog .close"))
    button.onclick = () => button.closest("dialog").close();
  $("#keys-on").checked = remembered("taps-keys", "on") === "on";
  $("#keys-on").onchange = (event) => localStorage.setItem("taps-keys", event.target.checked ? "on" : "off");
  $("#stream").onchange = (event) => location.assign(`/?stream=${encodeURIComponent(event.target.value)}`);
  addEventListener("beforeunload", (event) => outbox.length && event.preventDefault());
  addEventListener("pagehide", () => leaving || giveBack());
  setInterval(() => live && !queue.length && !document.hidden && askAgain(), 5_000);
  setInterval(() => queue.length && !document.hidden && Date.now() - acted < AWAKE && refill(), RENEW);
}

async function begin() {
  listen();
  await signedIn($("#sign-in"));
  const streams = await get("/v1/streams");
  const wanted = new URLSearchParams(location.search).get("stream");
  stream = (streams.find(({ name }) => name === wanted) ?? streams[0])?.name ?? "";
  $("#stream").replaceChildren(...streams.map(({ name }) => element("option", { value: name }, name)));
  if (!stream) {
    $("#empty").hidden = false;
    return tellEmpty("No stream yet", "Create one over HTTP, or with “taps label FOLDER”.");
  }
  $("#stream").value = stream;
  base = `/v1/streams/${encodeURIComponent(stream)}`;
  $("#dashboard").href = `/streams/${encodeURIComponent(stream)}`;
  for (const id of ["#review", "#look"]) $(id).href = `/streams/${encodeURIComponent(stream)}/review`;
  $("#take").href = `${$("#look").href}#home`;
  await readCounts();
  follow(stream, stats.events, { event: heard, live: connected }, holder);
  for (const row of await get(`${base}/predictions?newest=true&limit=${SHOWN}`)) noteRecent(row);
  watchFolder();
  await refill();
}

begin().catch(async (error) => {
  complain(error instanceof Refused ? error.message : "The service does not answer; load the page again.");
});
