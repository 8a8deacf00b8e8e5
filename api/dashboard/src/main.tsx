// The page: the session, the current view, and the keyboard shortcuts.
import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import "uplot/dist/uPlot.min.css";
import "./style.css";
import { ask, ApiError, sentence } from "./api";
import { start, stop, useLive } from "./live";
import { Problem } from "./parts";
import { go, useRoute, VIEWS } from "./route";
import { clearSession, type Session, SessionContext, takeLink } from "./session";
import { paint, toggle } from "./theme";
import { Batches } from "./views/batches";
import { Costs } from "./views/costs";
import { Endpoints } from "./views/endpoints";
import { Fleet } from "./views/fleet";
import { Job } from "./views/job";
import { Jobs } from "./views/jobs";
import { Queue } from "./views/queue";
import { Storage } from "./views/storage";

const RETRY_MS = 2000;
const KEY_PAUSE_MS = 1000;

/** The text about a link whose token the API does not know: its first use deletes it. */
const USED_LINK = "This link was used already, or it has expired: a link works once. Print a new one with `stoke dashboard`.";

/** The token of the address, which is no longer in it. */
let link = takeLink();

function logIn(token: string): Promise<Session> { return ask<Session>("/v1/session", { method: "POST", body: JSON.stringify({ token }) }); }

function Login({ entered, why }: { entered: (session: Session) => void; why: string | null }) {
  const [problem, setProblem] = useState(why);
  const enter = (token: string) => logIn(token).then(entered, (error) => setProblem(sentence(error)));
  return (
    <main class="login">
      <h1>Stokehold</h1>
      <form onSubmit={(event) => { event.preventDefault(); void enter((new FormData(event.currentTarget).get("token") as string).trim()); }}>
        <div class="row"><label for="token">API token</label><input id="token" name="token" type="password" autocomplete="current-password" required size={34} /></div>
        <Problem text={problem} />
        <button class="main">Log in</button>
      </form>
      <p class="quiet"><code>stoke dashboard</code> prints an address that logs in without a token; an administrator creates tokens with <code>stoke token create</code>. The page does not store the token.</p>
    </main>
  );
}

/** Keyboard shortcuts: `/` searches, `g` and a letter opens a view, `?` lists them. */
function useKeys(help: () => void): void {
  useEffect(() => {
    let wentAt = 0;
    const pressed = (event: KeyboardEvent) => {
      const at = event.target as HTMLElement;
      if (event.metaKey || event.ctrlKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(at.tagName) || document.querySelector("dialog[open]")) return;
      const view = Date.now() - wentAt < KEY_PAUSE_MS ? VIEWS.find(([, , key]) => key === event.key) : undefined;
      wentAt = event.key === "g" ? Date.now() : 0;
      if (view) go(`/dashboard/${view[0]}`);
      else if (event.key === "?") help();
      else if (event.key === "/") { event.preventDefault(); const find = document.getElementById("find"); if (find) find.focus(); else go("/dashboard/jobs#find"); }
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}

function View() {
  const { parts: [view, id], query } = useRoute();
  const of = id === undefined ? undefined : decodeURIComponent(id);
  switch (view) {
    case "jobs": return of ? <Job key={of} id={of} /> : <Jobs query={query} />;
    case "batches": return <Batches id={of} />;
    case "fleet": return <Fleet />;
    case "endpoints": return <Endpoints name={of} query={query} />;
    case "costs": return <Costs by={query.get("by")} />;
    case "storage": return <Storage />;
    default: return <Queue by={query.get("by")} />;
  }
}

function Frame({ session, left }: { session: Session; left: () => void }) {
  const { parts: [view = "queue"] } = useRoute();
  const isLive = useLive();
  const help = useRef<HTMLDialogElement>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useKeys(() => help.current?.showModal());
  useEffect(() => { start(); return stop; }, []);
  useEffect(() => { document.title = `${VIEWS.find(([name]) => name === view)?.[1] ?? "Queue"} · Stokehold`; }, [view]);
  // The stream of an ended session cannot be opened, so the session is checked while there is no stream.
  useEffect(() => {
    if (isLive) return;
    const timer = setInterval(() => ask("/v1/session").catch((error) => { if (error instanceof ApiError && error.status === 401) left(); }), RETRY_MS);
    return () => clearInterval(timer);
  }, [isLive]);
  const leave = () => ask("/v1/session", { method: "DELETE" }).then(left, (error) => setProblem(sentence(error)));
  return (
    <div class="frame">
      <a class="skip" href="#main">Skip to the content</a>
      <nav aria-label="Views">
        <strong><img src="/dashboard/icon.svg" alt="" width={18} height={18} /> Stokehold</strong>
        {VIEWS.map(([name, label]) => <a key={name} href={`/dashboard/${name}`} aria-current={view === name ? "page" : undefined}>{label}</a>)}
        <div class="foot">
          <span role="status" aria-live="polite" class={isLive ? "good" : "warn"}>{isLive ? "● live" : "○ reconnecting"}</span>
          <span class="tenant" title="The tenant whose jobs, endpoints and files are shown">{session.tenant}</span>
          <button onClick={toggle}>Light / dark</button>
          <button onClick={() => help.current?.showModal()}>Keys</button>
          <button onClick={() => void leave()}>Log out</button>
        </div>
      </nav>
      <main id="main" tabIndex={-1}><Problem text={problem} /><View /></main>
      <dialog ref={help} aria-label="Keys">
        <h2>Keys</h2>
        <p><kbd>/</kbd> find a job · <kbd>?</kbd> show this list</p>
        {VIEWS.map(([name, label, key]) => <p key={name}><kbd>g</kbd> <kbd>{key}</kbd> {label}</p>)}
        <form method="dialog"><button class="main">Close</button></form>
      </dialog>
    </div>
  );
}

function Page() {
  const [session, setSession] = useState<Session | null>(null);
  const [isOut, setOut] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    // An existing session stays: a link from elsewhere does not replace it.
    const look = () => { ask<Session>("/v1/session").catch((error: unknown) => {
      if (link === null || !(error instanceof ApiError && error.status === 401)) throw error;
      const once = link;
      link = null;
      return logIn(once).catch((refused: unknown) => { setProblem(refused instanceof ApiError && refused.status === 401 ? USED_LINK : sentence(refused)); throw refused; });
    }).then((who) => { setProblem(null); setSession(who); }, (error) => {
      if (error instanceof ApiError && error.status === 401) setOut(true);
      else { setProblem(sentence(error)); timer = setTimeout(look, RETRY_MS); }
    }); };
    look();
    return () => clearTimeout(timer);
  }, []);
  if (session) return <SessionContext.Provider value={session}><Frame session={session} left={() => { clearSession(); setProblem(null); setSession(null); setOut(true); }} /></SessionContext.Provider>;
  return isOut ? <Login entered={setSession} why={problem} /> : <Problem text={problem} />;
}

paint();
const place = document.getElementById("page");
if (place) render(<Page />, place);
