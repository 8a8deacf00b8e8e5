// Components that the views share.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { sentence } from "./api";
import { useMay, type Scope } from "./session";

const MARKS: Record<string, [string, string]> = {
  succeeded: ["✓", "good"], completed: ["✓", "good"], ready: ["●", "good"], healthy: ["●", "good"],
  failed: ["✕", "bad"], lost: ["✕", "bad"], faulty: ["✕", "bad"], expired: ["✕", "bad"], reached: ["✕", "bad"],
  running: ["▶", "busy"], loading: ["▶", "busy"], booting: ["▶", "busy"], resuming: ["▶", "busy"], renting: ["▶", "busy"], environment: ["▶", "busy"], busy: ["▶", "busy"], validating: ["▶", "busy"], finalizing: ["▶", "busy"],
  draining: ["▽", "warn"], hot: ["▲", "warn"], warned: ["▲", "warn"], blocked: ["◇", "warn"], ending: ["▽", "warn"],
};
/** A state: a shape and a word, so that it is legible without colour. */
export function State({ of }: { of: string }) {
  const [shape, colour] = MARKS[of] ?? ["○", "quiet"];
  return <span class={colour}><span aria-hidden="true">{shape}</span> {of}</span>;
}
export function Problem({ text }: { text: string | null }) { return text ? <p class="problem" role="alert">{text}</p> : null; }
export function Empty({ children }: { children: ComponentChildren }) { return <div class="empty">{children}</div>; }
export function Tile({ label, children }: { label: string; children: ComponentChildren }) { return <div><span class="quiet">{label}</span><b>{children}</b></div>; }

/** A table. `n` are the columns of figures, which are aligned to the right; `wrap` are those of sentences. Rows with actions need `keys`, so that an open
 * dialog stays with its row when others come or go. */
export function Table({ label, heads, n = [], wrap = [], keys = [], rows }: { label: string; heads: string[]; n?: number[]; wrap?: number[]; keys?: string[]; rows: ComponentChildren[][] }) {
  const kind = (at: number) => (n.includes(at) ? "n" : wrap.includes(at) ? "wrap" : "");
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={label}>
      <table>
        <thead><tr>{heads.map((head, at) => <th key={head} scope="col" class={kind(at)}>{head}</th>)}</tr></thead>
        <tbody>{rows.map((row, at) => <tr key={keys[at] ?? at}>{row.map((cell, column) => <td key={column} class={kind(column)}>{cell}</td>)}</tr>)}</tbody>
      </table>
    </div>
  );
}

/** A bar of the named parts of a whole. Each has a tooltip, all are in the accessible name, and wide ones are labelled. */
export function Bar({ label, whole, parts, say = String }: { label: string; whole: number; parts: [name: string, size: number, kind: string][]; say?: (size: number) => string }) {
  const wide = Math.max(1, whole);
  return (
    <div class="bar" role="img" aria-label={`${label}: ${parts.map(([name, size]) => `${name} ${say(size)}`).join(", ") || "empty"}, of ${say(whole)}`}>
      {parts.filter(([, size]) => size > 0).map(([name, size, kind]) => <span key={name} class={`kind-${kind}`} title={`${name}: ${say(size)}`} style={{ width: `${Math.min(100, (100 * size) / wide)}%` }}>{size > wide / 5 ? name : ""}</span>)}
    </div>
  );
}

/** The legend of a bar. */
export function Legend({ kinds }: { kinds: [name: string, kind: string][] }) {
  return <p class="legend">{kinds.map(([name, kind]) => <span key={name}><i class={`kind-${kind}`} aria-hidden="true" /> {name}</span>)}</p>;
}

/** A button whose dialog describes the action before it is taken. Shown to tokens with `scope`. `of`, e.g. the id of a row, makes its accessible
 * name unique on the page. */
export function Confirm({ label, of, text, scope, act }: { label: string; of?: string; text: string; scope: Scope; act: () => Promise<unknown> }) {
  const may = useMay(scope);
  const box = useRef<HTMLDialogElement>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  const go = () => { setBusy(true); act().then(() => box.current?.close(), (error) => setProblem(sentence(error))).finally(() => setBusy(false)); };
  if (!may) return null;
  const called = of === undefined ? label : `${label} ${of}`;
  return (
    <>
      <button aria-label={called} onClick={() => { setProblem(null); box.current?.showModal(); }}>{label}</button>
      <dialog ref={box} aria-label={called}>
        <p>{text}</p>
        <Problem text={problem} />
        <div class="row"><button class="main" aria-label={called} disabled={isBusy} onClick={go}>{label}</button><button onClick={() => box.current?.close()}>Go back</button></div>
      </dialog>
    </>
  );
}

/** Renders the component again every second, for ages that grow on screen. */
export function useTick(isOn = true): void {
  const [, set] = useState(0);
  useEffect(() => { if (!isOn) return; const timer = setInterval(() => set((before) => before + 1), 1000); return () => clearInterval(timer); }, [isOn]);
}
