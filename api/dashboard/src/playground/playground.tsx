// The playground: the inputs of a version as a form or as JSON, a run of it, and the same call in other languages.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Schemas } from "../api";
import { onLogOut, useMay } from "../session";
import { filesIn, hasFiles } from "../views/result";
import { CallFrom } from "./call";
import { Form, groupOf, idOf } from "./form";
import { Output } from "./output";
import { isOver, useRun } from "./run";
import { check, initial, type Json, type Misfit, type Schema } from "./schema";
import { knownFile } from "./upload";

/** Typed inputs by endpoint, kept until the page is reloaded or the session ends. */
const LEFT_MAX = 20;
const left = new Map<string, Json | undefined>();
onLogOut(() => left.clear());
function leave(name: string, value: Json | undefined): void {
  left.delete(name);
  left.set(name, value);
  for (const oldest of left.keys()) { if (left.size <= LEFT_MAX) break; left.delete(oldest); }
}

/** A missing input is shown as an error only after *Run*. */
const isMissing = (misfit: Misfit) => misfit.message === "is required" || misfit.message === "choose a file";

interface Props { name: string; endpoint: Schemas["EndpointVersion"]; pinned: number | null; filled: { input: unknown } | null; took: () => void; ended: () => void }

export function Playground({ name, endpoint, pinned, filled, took, ended }: Props) {
  const schema = (typeof endpoint.input_schema === "object" && endpoint.input_schema !== null ? endpoint.input_schema : {}) as Schema;
  const begin = () => initial(schema, schema);
  const [value, setValue] = useState<Json | undefined>(() => (left.has(name) ? left.get(name) : begin()));
  const [tab, setTab] = useState<"form" | "json">("form");
  const [typed, setTyped] = useState<string | null>(null);
  const [typo, setTypo] = useState<string | null>(null);
  const [isTried, setTried] = useState(false);
  const [isStale, setStale] = useState(false);
  const maySubmit = useMay("jobs:submit");
  const run = useRun();
  const form = useRef<HTMLFormElement>(null);
  const output = useRef<HTMLElement>(null);

  const own = useMemo(() => check(value ?? {}, schema, schema), [value, schema]);
  const fromApi = isStale ? [] : run.errors.flatMap(({ path, message }) => (path === "/input" || path.startsWith("/input/") ? [{ path: path.slice("/input".length), message }] : []));
  const shown = [...own.filter((misfit) => isTried || !isMissing(misfit)), ...fromApi.filter((misfit) => !own.some((each) => each.path === misfit.path))];
  // Errors of the input as a whole have no control.
  const whole = shown.filter((misfit) => misfit.path === "");

  const set = (next: Json | undefined) => { setValue(next); leave(name, next); setStale(true); };
  const fill = (next: Json | undefined) => { set(next); setTyped(null); setTypo(null); setTried(false); };
  useEffect(() => { if (filled) { fill(filled.input as Json); took(); run.clear(); document.getElementById("playground")?.scrollIntoView({ block: "start" }); } }, [filled]);
  useEffect(() => { if (isOver(run.job)) ended(); }, [run.job?.id, isOver(run.job)]);

  const type = (text: string) => {
    setTyped(text);
    if (text.trim() === "") { setTypo(null); set(undefined); return; }
    try { set(JSON.parse(text) as Json); setTypo(null); } catch (error) { setTypo(error instanceof Error ? error.message : "is not JSON"); }
  };
  const isBusy = run.isSubmitting || (run.job !== null && !isOver(run.job));
  const why = !maySubmit ? "This session lacks the permission jobs:submit, so it cannot run jobs. The snippets below work with a token that has it." : typo !== null ? "The JSON is not valid yet." : null;
  const start = () => {
    if (why !== null || isBusy) return;
    setTried(true);
    setStale(false);
    if (own.length > 0) {
      setTab("form");
      // The controls show their errors first.
      requestAnimationFrame(() => { const first = own.map(({ path }) => document.getElementById(idOf(path)) ?? document.getElementById(groupOf(idOf(path)))).find((each) => each !== null) ?? form.current?.querySelector<HTMLElement>("[aria-invalid=true]"); first?.focus(); first?.scrollIntoView({ block: "nearest" }); });
      return;
    }
    run.submit({ endpoint: name, input: value ?? {}, ...(pinned === null ? {} : { version: pinned }) });
    // Below the form on a phone.
    if (output.current && output.current.getBoundingClientRect().top > innerHeight * 0.8) output.current.scrollIntoView({ block: "start", behavior: "smooth" });
  };
  const latest = useRef(start);
  latest.current = start;
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !document.querySelector("dialog[open]")) { event.preventDefault(); latest.current(); } };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  }, []);

  return (
    <>
      <div class="playground" id="playground">
        <section class="card" aria-labelledby="inputs">
          <div class="bar-of-tabs">
            <h2 id="inputs">Inputs</h2>
            <div role="group" aria-label="Edit the inputs as" class="tabs">
              <button type="button" aria-pressed={tab === "form"} onClick={() => { setTab("form"); if (typo === null) setTyped(null); }}>Form</button>
              <button type="button" aria-pressed={tab === "json"} onClick={() => setTab("json")}>JSON</button>
            </div>
            <button type="button" class="small copy" onClick={() => { fill(begin()); run.clear(); }}>Reset</button>
          </div>
          <form ref={form} noValidate onSubmit={(event) => { event.preventDefault(); start(); }}>
            {tab === "form" && typo !== null && <p class="wrong" role="alert">The JSON tab contains text that is not JSON; the form shows the last valid inputs.</p>}
            {/* Hidden and not gone: an upload goes on while the JSON is looked at. */}
            <div hidden={tab !== "form"}><Form schema={schema} value={value} misfits={shown} isOff={false} change={set} /></div>
            {tab === "json" && (
              <div class="field"><textarea aria-label="Inputs as JSON" aria-invalid={typo !== null} aria-describedby={typo === null ? undefined : "typo"} class="mono grows whole" rows={10} spellcheck={false} value={typed ?? (value === undefined ? "" : JSON.stringify(value, null, 2))} onInput={(event) => type(event.currentTarget.value)} />{typo !== null && <p class="wrong" id="typo">{typo}</p>}</div>
            )}
            {whole.map((misfit) => <p key={misfit.message} class="wrong" role="alert">The input {misfit.message}</p>)}
            {tab === "json" && shown.length > whole.length && <ul class="wrong">{shown.filter((misfit) => misfit.path !== "").map((misfit) => <li key={misfit.path + misfit.message}><code>{misfit.path}</code> {misfit.message}</li>)}</ul>}
            {isTried && own.length > 0 && <p class="wrong" role="alert">{own.length === 1 ? "One input needs" : `${own.length} inputs need`} a change before this can run.</p>}
            <div class="row run">
              <button class="main" disabled={why !== null || isBusy} aria-describedby={why === null ? undefined : "why-not"}>{isBusy ? "Running …" : "Run"}</button>
              <span class="quiet keys" aria-hidden="true"><kbd>Ctrl</kbd> <kbd>Enter</kbd></span>
              {run.job && isBusy && <button type="button" class="small" onClick={run.clear}>Leave it running</button>}
            </div>
            {why !== null && <p class="quiet" id="why-not">{why}</p>}
          </form>
        </section>
        <section class="card output" aria-labelledby="output" ref={output}><div class="bar-of-tabs"><h2 id="output">Output</h2></div><Output run={run} empty={maySubmit ? "The result appears here." : "A result would appear here."} /></section>
      </div>
      <CallFrom call={{ url: location.origin, endpoint: name, version: pinned, input: value ?? {}, files: (id) => { const file = knownFile(id); return file && { id, name: file.name, type: file.type }; }, savesFiles: hasFiles(endpoint.output_schema) || filesIn(run.job?.result).length > 0 }} isValid={own.length === 0 && typo === null} />
    </>
  );
}
