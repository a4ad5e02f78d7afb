// The review page: the current label of every image, the least sure first; corrections and accepted predictions.

import { Refused, get, post, signOut, signedIn } from "/web/api.js";
import { $, count, element, plural, share } from "/web/draw.js";
import { Finder } from "/web/finder.js";
import { pictureOf } from "/web/view.js";

const SHOWN = 60; // images at first, and with every press of the button
const WATCH = 2_000; // milliseconds between two requests for the folder's status
const stream = decodeURIComponent(location.pathname.split("/")[2]);
const base = `/v1/streams/${encodeURIComponent(stream)}`;
const chosen = new Set();
let group = null; // where images alike are shown alone: their ids, the nearest first
let classes = [];
let images = [];
let before = new Map(); // labels before the last correction
let most = SHOWN;
let last = null; // the image that was chosen last
let saved = []; // images of the last correction

const say = (text) => ($("#last").textContent = text);
const complain = (text) => ($("#alert").textContent = text);

async function trying(act) {
  try {
    complain("");
    await act();
  } catch (error) {
    if (error instanceof Refused && error.status === 401) return signedIn($("#sign-in"));
    complain(error instanceof Refused ? error.message : "The service does not answer; try again.");
  }
}

// What is shown

const tiles = () => [...document.querySelectorAll("#images button")];
const free = (image) => image.by !== "person";
const expected = (some) => some.reduce((sum, { probability }) => sum + 1 - probability, 0);

function filtered() {
  if (group) return group.map((id) => images.find((image) => image.id === id)).filter(Boolean);
  const wanted = $("#class").value;
  const text = $("#search").value.trim().toLowerCase();
  const unseen = $("#open").checked;
  return images
    .filter(
      (image) =>
        (!wanted || image.label === wanted) &&
        (!text || image.name.toLowerCase().includes(text)) &&
        (!unseen || (free(image) && image.accepted_by === null)),
    )
    .sort((one, other) => hasChanged(other) - hasChanged(one)); // stable: then the least sure
}

// Whether the last correction, of other images, changed its label.
const hasChanged = ({ id, label, by }) => by !== "person" && before.has(id) && before.get(id) !== label;

const acceptable = () =>
  images.filter((image) => free(image) && image.label === $("#class").value && image.probability >= above());
const above = () => Number($("#above").value) / 100;

function filter() {
  group = null;
  draw();
}

function draw() {
  const found = filtered();
  const focused = document.activeElement?.dataset?.id;
  const place = tiles().indexOf(document.activeElement);
  $("#images").replaceChildren(...found.slice(0, most).map(tile));
  if (focused) ($(`#images [data-id="${focused}"]`) ?? tiles()[Math.min(place, tiles().length - 1)])?.focus();
  $("#further").hidden = found.length <= most;
  $("#undo").hidden = !saved.length;
  drawAccept();
  drawChosen();
  const people = images.filter((image) => !free(image)).length;
  const left = images.filter(free);
  $("#counts").textContent =
    `${count(people)} labelled · ${plural(images.length, "image")} · about ${count(expected(left))} wrong`;
}

function tile(image) {
  const state = !free(image)
    ? "labelled"
    : hasChanged(image)
      ? `was ${before.get(image.id)}`
      : image.accepted_by !== null
        ? "accepted"
        : share(image.probability);
  const picture = image.has_image
    ? element("img", { src: pictureOf(stream, image, 200), alt: "", loading: "lazy" })
    : element("span", { class: "gone" }, "no longer kept");
  const button = element(
    "button",
    { type: "button", "aria-pressed": String(chosen.has(image.id)), "data-id": image.id, title: image.name, onclick: (event) => toggle(image, event.shiftKey) },
    picture,
    element("span", { class: "label" }, image.label || "none of the classes"),
    element("span", { class: "state" }, state),
  );
  return element("li", { class: hasChanged(image) ? "changed" : free(image) ? "open" : "answered" }, button);
}

function drawAccept() {
  $("#accept-part").hidden = !$("#class").value;
  const some = acceptable();
  $("#above-said").textContent = share(above());
  $("#accept").disabled = !some.length;
  $("#accept").textContent =
    `Accept all above ${share(above())}: ${plural(some.length, "image")}, about ${count(expected(some))} wrong`;
}

function drawChosen() {
  const some = chosen.size;
  $("#correct-part").hidden = !some && !group; // its button leaves the group
  $("#selected").textContent = some ? `${plural(some, "image")} chosen. What ${some === 1 ? "is it" : "are they"}?` : "";
  for (const button of tiles()) button.setAttribute("aria-pressed", String(chosen.has(Number(button.dataset.id))));
  $("#yes").hidden = !group || !some;
  if (group) $("#yes").replaceChildren(`Yes, “${predicted()}” `, element("kbd", { "aria-hidden": "true" }, "Y"));
  offer();
}

const predicted = () => images.find(({ id }) => id === group[0]).label;
const confirm = () => group && chosen.size && nameAs(predicted());

const alikeTo = (id) => get(`${base}/predictions/${id}/alike`);

// With one image chosen, those alike are offered where labelling them at once saves time.
async function offer() {
  const [id] = chosen;
  const alone = () => !group && chosen.size === 1 && chosen.has(id);
  $("#alike").hidden = true;
  if (!alone() || !images.some((image) => image.id === id && free(image))) return;
  const { ids } = await alikeTo(id).catch(() => ({ ids: [] })); // then it is not offered
  if (!alone() || ids.length < 2) return;
  $("#alike").replaceChildren(`Also ${count(ids.length - 1)} alike `, element("kbd", { "aria-hidden": "true" }, "A"));
  $("#alike").hidden = false;
}

// Show only an image and those alike, all of them chosen.
const showAlike = () =>
  trying(async () => {
    const id = [...chosen].at(-1) ?? Number(document.activeElement?.dataset?.id ?? -1);
    if (group || id < 0) return;
    const { ids, seconds, singly } = await alikeTo(id);
    if (ids.length < 2) return say("No other images are so similar that labelling them at once would save time.");
    group = ids;
    chosen.clear();
    for (const each of ids) chosen.add(each);
    draw();
    $(`#images [data-id="${id}"]`).focus();
    say(`${plural(ids.length, "image")} alike, all chosen: about ${count(seconds)} s instead of ${count(singly)} s. Take out what does not belong.`);
  });

// One image; with Shift, all from the last one on.
function toggle(image, range) {
  const ids = tiles().map((button) => Number(button.dataset.id));
  const [from, to] = [ids.indexOf(range ? last : image.id), ids.indexOf(image.id)].sort((a, b) => a - b);
  const on = !chosen.has(image.id);
  for (const id of ids.slice(Math.max(from, 0), to + 1)) on ? chosen.add(id) : chosen.delete(id);
  last = image.id;
  drawChosen();
}

// From one image to the next by arrows: up and down by as many as stand in a row.
function move(event) {
  const all = tiles();
  const place = all.indexOf(document.activeElement);
  const row = all.filter(({ offsetTop }) => offsetTop === all[0].offsetTop).length;
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -row, ArrowDown: row }[event.key];
  if (place < 0 || !all[place + step]) return;
  event.preventDefault();
  all[place + step].focus();
}

const listClasses = () =>
  $("#names").replaceChildren(
    ...classes.slice(0, 9).map((name, index) =>
      element(
        "button",
        { type: "button", onclick: () => nameAs(name) },
        `${name} `,
        element("kbd", { "aria-hidden": "true" }, String(index + 1)),
      ),
    ),
  );

function clear() {
  chosen.clear();
  group = null;
  draw();
}

async function read() {
  images = await get(`${base}/review`);
  const held = $("#class").value;
  const counts = new Map();
  for (const { label } of images) counts.set(label, (counts.get(label) ?? 0) + 1);
  $("#class").replaceChildren(
    element("option", { value: "" }, `all (${count(images.length)})`),
    ...classes.map((name) => element("option", { value: name }, `${name} (${count(counts.get(name) ?? 0)})`)),
  );
  $("#class").value = held;
  draw();
}

// What is done

const correct = (body, words) =>
  trying(async () => {
    const ids = chosen.size ? [...chosen] : [Number(document.activeElement?.dataset?.id ?? -1)].filter((id) => id >= 0);
    if (!ids.length) return;
    const then = new Map(images.map(({ id, label }) => [id, label]));
    saved = [];
    for (const id of ids) {
      await post(`${base}/predictions/${id}/label`, body);
      chosen.delete(id); // it is saved, even if the next one is refused
      saved.push(id);
    }
    before = then;
    group = null;
    await read();
    const changed = images.filter(hasChanged).length;
    say(`Saved: ${words}, ${plural(ids.length, "image")}. ${plural(changed, "other prediction")} changed.`);
  });

const nameAs = (name) => correct({ label: name }, `“${name}”`);
const none = () => correct({ none: true }, "none of the classes");

// Undo the last correction, the last image first.
const undo = () =>
  trying(async () => {
    const some = plural(saved.length, "image");
    while (saved.length) await post(`${base}/queries/${saved.at(-1)}/undo`).then(() => saved.pop());
    before = new Map();
    await read();
    say(`Undone: ${some}.`);
  });

const acceptAll = () =>
  trying(async () => {
    const some = acceptable();
    const { accepted } = await post(`${base}/accept`, { label: $("#class").value, above: above(), ids: some.map(({ id }) => id) });
    await read();
    say(`Accepted: ${plural(accepted, "image")} as “${$("#class").value}”.`);
  });

const PHASES = { encoding: "Encoding", asking: "Asking", predicting: "Predicting again", done: "Done" };

async function watch() {
  try {
    const { phase, done, images: total, answered, wanted, learner } = await get(`${base}/folder`);
    $("#folder").hidden = false;
    $("#more").hidden = !wanted; // else the method asks as images come
    const left = Math.max(wanted - answered, 0);
    $("#progress").textContent =
      `${PHASES[phase]}: ${count(done)} of ${plural(total, "image")}; ${plural(answered, "answer")}, ` +
      (left ? `${plural(left, "question")} left.` : "no question left.");
    $("#command").textContent = `Other images: ${learner}`;
    setTimeout(watch, WATCH);
  } catch (error) {
    if (!(error instanceof Refused && error.status === 404)) setTimeout(watch, WATCH);
  }
}

const more = () =>
  trying(async () => {
    await post(`${base}/folder/questions`, { questions: 20 });
    location.assign(`/?stream=${encodeURIComponent(stream)}`);
  });

function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (event.target.matches("input, select, textarea") || document.querySelector("dialog[open]")) return;
  if (event.key.startsWith("Arrow")) return move(event);
  const name = /^[1-9]$/.test(event.key) && classes[Number(event.key) - 1];
  const acts = { 0: none, "/": () => chosen.size && finder.focus(), Escape: clear, a: showAlike, y: confirm, u: () => $("#undo").click() };
  const act = name ? () => nameAs(name) : acts[event.key.toLowerCase()] ?? acts[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

const finder = new Finder($("#finder"), {
  names: () => classes,
  choose: (name) => nameAs(name).then(() => finder.clear()),
});

async function begin() {
  const { roles } = await signedIn($("#sign-in"));
  $("#not-mine").hidden = roles.includes("admin");
  $("#downloads").hidden = !roles.includes("admin");
  $("#title").textContent = `Review ${stream}`;
  document.title = `Review ${stream} · TAPS`;
  $("#label").href = `/?stream=${encodeURIComponent(stream)}`;
  $("#dashboard").href = `/streams/${encodeURIComponent(stream)}`;
  for (const format of ["csv", "zip", "learner"]) $(`#${format}`).href = `${base}/result?format=${format}`;
  document.addEventListener("keydown", key);
  $("#class").onchange = filter;
  $("#search").oninput = filter;
  $("#open").onchange = filter;
  $("#above").oninput = drawAccept;
  $("#accept").onclick = acceptAll;
  $("#alike").onclick = showAlike;
  $("#yes").onclick = confirm;
  $("#none").onclick = none;
  $("#clear").onclick = clear;
  $("#undo").onclick = undo;
  $("#more").onclick = more;
  $("#sign-out").onclick = () => signOut(complain);
  $("#further").onclick = () => {
    most += SHOWN;
    draw();
  };
  classes = (await get(`${base}/stats`)).learner.classes;
  listClasses();
  await read();
  watch();
}

begin().catch((error) => complain(error instanceof Refused ? error.message : "The service does not answer; load the page again."));
