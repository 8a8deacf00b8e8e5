// The few pieces every view is made of.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { sentence } from "./api";

const MARKS: Record<string, [string, string]> = {
  succeeded: ["✓", "good"], completed: ["✓", "good"], ready: ["●", "good"], well: ["●", "good"],
  failed: ["✕", "bad"], lost: ["✕", "bad"], fenced: ["✕", "bad"], expired: ["✕", "bad"], reached: ["✕", "bad"],
  running: ["▶", "busy"], loading: ["▶", "busy"], booting: ["▶", "busy"], resuming: ["▶", "busy"], busy: ["▶", "busy"], validating: ["▶", "busy"], finalizing: ["▶", "busy"],
  draining: ["▽", "warn"], hot: ["▲", "warn"], warned: ["▲", "warn"], blocked: ["◇", "warn"], ending: ["▽", "warn"],
};
/** A state: a shape and a word, so that no one needs the colour. */
export function State({ of }: { of: string }) {
  const [shape, colour] = MARKS[of] ?? ["○", "quiet"];
  return <span class={colour}><span aria-hidden="true">{shape}</span> {of}</span>;
}
export function Problem({ text }: { text: string | null }) { return text ? <p class="problem" role="alert">{text}</p> : null; }
export function Empty({ children }: { children: ComponentChildren }) { return <div class="empty">{children}</div>; }
export function Tile({ label, children }: { label: string; children: ComponentChildren }) { return <div><span class="quiet">{label}</span><b>{children}</b></div>; }

/** A table whose figures stand right; `n` names the columns of figures. */
export function Table({ label, heads, n = [], rows }: { label: string; heads: string[]; n?: number[]; rows: ComponentChildren[][] }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={label}>
      <table>
        <thead><tr>{heads.map((head, at) => <th key={head} scope="col" class={n.includes(at) ? "n" : ""}>{head}</th>)}</tr></thead>
        <tbody>{rows.map((row, at) => <tr key={at}>{row.map((cell, column) => <td key={column} class={n.includes(column) ? "n" : ""}>{cell}</td>)}</tr>)}</tbody>
      </table>
    </div>
  );
}

/** A bar of named parts of a whole. */
export function Bar({ label, whole, parts }: { label: string; whole: number; parts: [string, number][] }) {
  return (
    <div class="bar" role="img" aria-label={`${label}: ${parts.map(([name, size]) => `${name} ${size}`).join(", ") || "empty"}, of ${whole}`}>
      {parts.filter(([, size]) => size > 0).map(([name, size]) => <span key={name} title={`${name}: ${size}`} style={{ width: `${Math.min(100, (100 * size) / Math.max(1, whole))}%` }}>{name}</span>)}
    </div>
  );
}

/** A button whose deed is done only after its dialog says what it will do. */
export function Confirm({ label, text, act }: { label: string; text: string; act: () => Promise<unknown> }) {
  const box = useRef<HTMLDialogElement>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  const go = () => { setBusy(true); act().then(() => box.current?.close(), (error) => setProblem(sentence(error))).finally(() => setBusy(false)); };
  return (
    <>
      <button onClick={() => { setProblem(null); box.current?.showModal(); }}>{label}</button>
      <dialog ref={box} aria-label={label}>
        <p>{text}</p>
        <Problem text={problem} />
        <div class="row"><button class="main" disabled={isBusy} onClick={go}>{label}</button><button onClick={() => box.current?.close()}>Leave it</button></div>
      </dialog>
    </>
  );
}

/** Now, again every second, for ages that grow on screen. */
export function useTick(): void {
  const [, set] = useState(0);
  useEffect(() => { const timer = setInterval(() => set((before) => before + 1), 1000); return () => clearInterval(timer); }, []);
}
