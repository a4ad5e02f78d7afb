// Speaks to the service: requests, sign-in, events as they happen.

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const PATIENCE = 15_000; // milliseconds
let csrf = "";

// Throws Refused where the service says no, and TypeError where it cannot be reached.
export async function request(method, path, body, headers = {}) {
  const sent = { ...headers };
  if (body !== undefined) sent["Content-Type"] = "application/json";
  if (method !== "GET" && csrf) sent["X-CSRF-Token"] = csrf;
  const options = { method, headers: sent, credentials: "same-origin", keepalive: method !== "GET" };
  options.signal = AbortSignal.timeout(PATIENCE); // a connection that died may never say so
  if (body !== undefined) options.body = JSON.stringify(body);
  const response = await fetch(path, options);
  const data = await response.json().catch(() => null);
  if (!response.ok) throw new Refused(response.status, data?.detail ?? `The service answered ${response.status}.`);
  return data;
}

export const get = (path) => request("GET", path);
export const post = (path, body, headers) => request("POST", path, body, headers);

// The session this browser has, asking for a token where one is needed. All who wait for it wait for the same one.
let signing = null;
export const signedIn = (dialog) => (signing ??= signIn(dialog).finally(() => (signing = null)));

// The token of a link that several people share: behind the #, which browsers send to nobody.
const linked = () => new URLSearchParams(location.hash.slice(1)).get("token");

async function signIn(dialog) {
  for (;;) {
    try {
      const session = await get("/v1/session");
      csrf = session.csrf;
      if (linked()) history.replaceState(null, "", location.pathname + location.search); // nobody reads it over a shoulder
      document.querySelector("#sign-out").hidden = !csrf; // without tokens there is no session
      if (session.roles.some((role) => role === "label" || role === "admin")) return session;
      dialog.querySelector(".problem").textContent = "This token is not for labelling; ask for one with the role label.";
      await request("DELETE", "/v1/session");
    } catch (error) {
      if (!(error instanceof Refused) || error.status !== 401) throw error;
      await askForToken(dialog, linked());
    }
  }
}

// Ends the session, and loads the page anew, so that nothing it showed is left. Whether that went well.
export async function signOut(complain) {
  try {
    await request("DELETE", "/v1/session");
  } catch (error) {
    if (error.status !== 401) {
      complain(`Not signed out: ${error instanceof Refused ? error.message : "the service does not answer; try again."}`);
      return false;
    } // else it was over already
  }
  location.reload();
  return true;
}

// Asks for a token; where a link has brought one, for the name of whoever came.
function askForToken(dialog, link) {
  const form = dialog.querySelector("form");
  const problem = dialog.querySelector(".problem");
  const field = form.elements[0];
  if (link) {
    dialog.querySelector("h2").textContent = "Who are you?";
    dialog.querySelector("label").textContent = "Your name: it stands beside your answers";
    dialog.querySelector("button").textContent = "Begin";
    Object.assign(field, { type: "text", autocomplete: "name", maxLength: 100 });
  }
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve) => {
    form.onsubmit = async (event) => {
      event.preventDefault();
      const said = field.value.trim();
      if (!said) return;
      try {
        const body = link ? { name: said } : undefined;
        await request("POST", "/v1/session", body, { Authorization: `Bearer ${link ?? said}` });
        form.reset();
        problem.textContent = "";
        dialog.close();
        resolve();
      } catch (error) {
        problem.textContent = error instanceof Refused ? error.message : "The service does not answer; try again.";
      }
    };
  });
}

const KINDS = ["predicted", "answered", "repeated", "undone", "skipped", "expired", "classes_added", "asked", "accepted", "opinion"];

// Calls `on.event(kind, data)` for each event of a stream after number `after`, and `on.live(bool)` when the connection comes and goes.
// What happened while it was away is told when it is back. Questions that `holder` has are free soon after it ended.
export function follow(stream, after, on, holder = "") {
  let source = null;
  let last = after;
  let timer = 0;
  const open = () => {
    source = new EventSource(`/v1/streams/${encodeURIComponent(stream)}/events?after=${last}${holder && `&holder=${holder}`}`);
    source.onopen = () => on.live(true);
    source.onerror = () => {
      on.live(false);
      source.close();
      clearTimeout(timer);
      timer = setTimeout(open, 1000);
    };
    for (const kind of KINDS)
      source.addEventListener(kind, (event) => {
        const data = JSON.parse(event.data);
        last = data.seq;
        on.event(kind, data);
      });
  };
  open();
  return () => {
    clearTimeout(timer);
    source.close();
  };
}
