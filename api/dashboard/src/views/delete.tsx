// Deletion of endpoints, versions, files and requirement sets: the dialog lists what depends on them first.
import { useRef, useState } from "preact/hooks";
import { ask, sentence, type Schemas } from "../api";
import { Problem } from "../parts";
import { type Scope, useMay } from "../session";
import { bytes, count } from "../words";

const WORDS: Record<Schemas["DependentKind"], [one: string, many: string]> = {
  job: ["open job is cancelled", "open jobs are cancelled"],
  step: ["job of another endpoint that has a step on it is cancelled", "jobs of other endpoints that have a step on it are cancelled"],
  schedule: ["schedule is paused", "schedules are paused"],
  batch: ["batch is cancelled", "batches are cancelled"],
  endpoint: ["other endpoint names it as a step, and refuses jobs until it is deployed again", "other endpoints name it as a step, and refuse jobs until they are deployed again"],
  version: ["version has it", "versions have it"],
  traffic: ["share of new jobs goes to it: route them to another version first", "shares of new jobs go to it: route them to another version first"],
  rollback: ["rollback to it is no longer possible", "rollbacks to it are no longer possible"],
};

interface DeleteProps { scope: Scope; label: string; called: string; what: string; stays: string; name?: string; path: string; onDeleted: () => void }

/** A button whose dialog lists what depends on `what` and deletes it, once `name` is typed if there is one. Shown to tokens with `scope`. `called` is
 * the accessible name of the button: it begins with `label`, which is on it, and includes what is deleted. */
function Delete({ scope, label, called, what, stays, name, path, onDeleted }: DeleteProps) {
  const may = useMay(scope);
  const box = useRef<HTMLDialogElement>(null);
  const [found, setFound] = useState<Schemas["Deletion"] | null>(null);
  const [typed, setTyped] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  if (!may) return null;
  const open = () => {
    setFound(null); setTyped(""); setProblem(null);
    box.current?.showModal();
    ask<Schemas["Deletion"]>(`${path}?dry_run=true`, { method: "DELETE" }).then(setFound, (error) => setProblem(sentence(error)));
  };
  const go = () => {
    setBusy(true); setProblem(null);
    ask<Schemas["Deletion"]>(`${path}?force=true`, { method: "DELETE" })
      .then(() => { box.current?.close(); onDeleted(); }, (error) => setProblem(sentence(error)))
      .finally(() => setBusy(false));
  };
  const isConfirmed = name === undefined || typed === name;
  const isRouted = found?.dependents.some((each) => each.kind === "traffic") ?? false;
  return (
    <>
      <button onClick={open} aria-label={called}>{label}</button>
      <dialog ref={box} aria-label={called}>
        <form onSubmit={(event) => { event.preventDefault(); if (found && !isRouted && !isBusy && isConfirmed) go(); }}>
          <p>Delete {what}. {stays} This cannot be undone.</p>
          {!found && !problem && <p class="quiet" role="status">Looking for what depends on it…</p>}
          {found && <>
            {found.dependents.length > 0
              ? <ul aria-label="Dependents">{found.dependents.map((each) => <li key={each.kind}>{count(each.count)} {WORDS[each.kind][each.count === 1 ? 0 : 1]} <span class="quiet mono">{each.examples.slice(0, 3).join(", ")}</span></li>)}</ul>
              : <p>Nothing depends on it.</p>}
            <p class="quiet">Frees {bytes(found.freed_bytes)} of storage.</p>
            {!isRouted && name !== undefined && <label>Type <b class="mono">{name}</b> to confirm <input value={typed} autocomplete="off" spellcheck={false} onInput={(event) => setTyped(event.currentTarget.value)} /></label>}
          </>}
          <Problem text={problem} />
          <div class="row"><button class="main" aria-label={called} disabled={!found || isRouted || isBusy || !isConfirmed}>{label}</button><button type="button" onClick={() => box.current?.close()}>Go back</button></div>
        </form>
      </dialog>
    </>
  );
}

const ENDED = "Ended jobs, their results and their costs stay.";

export function DeleteEndpoint({ name, onDeleted }: { name: string; onDeleted: () => void }) {
  return <Delete scope="endpoints:write" label="Delete endpoint" called={`Delete endpoint ${name}`} what={`the endpoint ${name} with all its versions`} stays={ENDED} name={name} path={`/v1/endpoints/${encodeURIComponent(name)}`} onDeleted={onDeleted} />;
}

export function DeleteVersion({ name, version, onDeleted }: { name: string; version: number; onDeleted: () => void }) {
  return <Delete scope="endpoints:write" label="Delete" called={`Delete version ${version} of ${name}`} what={`version ${version} of ${name}`} stays={ENDED} name={`${name}@${version}`} path={`/v1/endpoints/${encodeURIComponent(name)}/versions/${version}`} onDeleted={onDeleted} />;
}

export function DeleteFile({ id, name, onDeleted }: { id: string; name: string; onDeleted: () => void }) {
  return <Delete scope="files:write" label="Delete" called={`Delete file ${id}`} what={`the file ${name}`} stays="Ended jobs that named it stay, but cannot be retried." path={`/v1/files/${encodeURIComponent(id)}`} onDeleted={onDeleted} />;
}

export function DeleteRequirementSet({ id, onDeleted }: { id: string; onDeleted: () => void }) {
  return <Delete scope="endpoints:write" label="Delete" called={`Delete requirement set ${id}`} what={`the requirement set ${id}`} stays="Versions that have it stay: the next job of one of them makes it again." path={`/v1/requirement-sets/${encodeURIComponent(id)}`} onDeleted={onDeleted} />;
}
