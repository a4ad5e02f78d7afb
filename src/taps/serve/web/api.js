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

async function signIn(dialog) {
  for (;;) {
    try {
      const session = await get("/v1/session");
      csrf = session.csrf;
      document.querySelector("#sign-out").hidden = !csrf; // without tokens there is no session
      if (session.roles.some((role) => role === "label" || role === "admin")) return session;
      dialog.querySelector(".problem").textContent = "This token is not for labelling; ask for one with the role label.";
      await request("DELETE", "/v1/session");
    } catch (error) {
      if (!(error instanceof Refused) || error.status !== 401) throw error;
      await askForToken(dialog);
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

function askForToken(dialog) {
  const form = dialog.querySelector("form");
  const problem = dialog.querySelector(".problem");
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve) => {
    form.onsubmit = async (event) => {
      event.preventDefault();
      const token = form.elements[0].value.trim();
      try {
        await request("POST", "/v1/session", undefined, { Authorization: `Bearer ${token}` });
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

const KINDS = ["predict", "label", "undo", "skip", "reopen", "expire", "classes"];

// Calls `on.event(kind, data)` for each event of a stream after number `after`, and `on.live(bool)` when the connection comes and goes.
// What happened while it was away is told when it is back.
export function follow(stream, after, on) {
  let source = null;
  let last = after;
  let timer = 0;
  const open = () => {
    source = new EventSource(`/v1/streams/${encodeURIComponent(stream)}/events?after=${last}`);
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
