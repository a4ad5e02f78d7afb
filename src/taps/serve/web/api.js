// Requests to the service, sign-in, live events.

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const PATIENCE = 15_000; // milliseconds
let csrf = "";

// Throws Refused where the service refuses, and TypeError where it cannot be reached.
export async function request(method, path, body, headers = {}) {
  const sent = { ...headers };
  if (body !== undefined) sent["Content-Type"] = "application/json";
  if (method !== "GET" && csrf) sent["X-CSRF-Token"] = csrf;
  const options = { method, headers: sent, credentials: "same-origin", keepalive: method !== "GET" };
  options.signal = AbortSignal.timeout(PATIENCE); // a dead connection may never report it
  if (body !== undefined) options.body = JSON.stringify(body);
  const response = await fetch(path, options);
  const data = await response.json().catch(() => null);
  if (!response.ok) throw new Refused(response.status, data?.detail ?? `The service answered ${response.status}.`);
  return data;
}

export const get = (path) => request("GET", path);
export const post = (path, body, headers) => request("POST", path, body, headers);

// The session of this browser; asks for a token where one is needed. All callers wait for the same promise.
let signing = null;
export const signedIn = (dialog) => (signing ??= signIn(dialog).finally(() => (signing = null)));

// The token of a link that several people share: behind the #, which browsers do not send.
const linked = () => new URLSearchParams(location.hash.slice(1)).get("token");

async function signIn(dialog) {
  for (;;) {
    try {
      const session = await get("/v1/session");
      csrf = session.csrf;
      if (linked()) history.replaceState(null, "", location.pathname + location.search); // so that the token is not left in the address bar
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

// Ends the session and reloads the page, so that nothing stays on the screen. Returns whether it succeeded.
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

// Asks for a token; where the link has one, for a name.
function askForToken(dialog, link) {
  const form = dialog.querySelector("form");
  const problem = dialog.querySelector(".problem");
  const field = form.elements[0];
  if (link) {
    dialog.querySelector("h2").textContent = "Who are you?";
    dialog.querySelector("label").textContent = "Your name, recorded with your answers";
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
// Events missed while it was away follow when it is back. The leases of `holder` end soon after the connection.
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
