// What the API pushes, kept while it is away. A lost stream is tried again with growing, jittered pauses; every try also asks anew
// for what is on screen, so that the page is true even where the stream is refused.
import { useEffect, useRef, useState } from "preact/hooks";
import { ask, sentence } from "./api";
import { onLogOut } from "./session";

export type Topic = "queue" | "jobs" | "fleet" | "batches" | "costs";
const TOPICS: Topic[] = ["queue", "jobs", "fleet", "batches", "costs"];
const PAUSE_MIN_MS = 500;
const PAUSE_MAX_MS = 15_000;

const seen = new Map<Topic, unknown>();
const wakes = new Set<(topic: Topic | null) => void>();
const states = new Set<(live: boolean) => void>();
let live = false;
let tries = 0;
let stream: EventSource | null = null;
let timer: ReturnType<typeof setTimeout> | undefined;

function told(now: boolean): void { live = now; states.forEach((each) => each(now)); }

/** Opens the stream, and again whenever it is lost, until `stop`. */
export function start(): void {
  stop();
  // All that the token may see: to name a topic that it may not would be refused.
  stream = new EventSource("/v1/live");
  stream.onopen = () => { tries = 0; told(true); wakes.forEach((wake) => wake(null)); };
  stream.onerror = () => {
    stream?.close();
    told(false);
    const most = Math.min(PAUSE_MAX_MS, PAUSE_MIN_MS * 2 ** tries++);
    timer = setTimeout(() => { wakes.forEach((wake) => wake(null)); start(); }, most / 2 + (Math.random() * most) / 2);
  };
  for (const topic of TOPICS) {
    stream.addEventListener(topic, (event) => { seen.set(topic, JSON.parse((event as MessageEvent<string>).data)); wakes.forEach((wake) => wake(topic)); });
  }
}
export function stop(): void { stream?.close(); clearTimeout(timer); }
onLogOut(() => { stop(); seen.clear(); });

/** Calls `then` whenever `topic` changed or the stream came back. */
export function useWake(topic: Topic | null, then: () => void): void {
  const latest = useRef(then);
  latest.current = then;
  useEffect(() => {
    const wake = (changed: Topic | null) => { if (changed === null || changed === topic) latest.current(); };
    wakes.add(wake);
    return () => { wakes.delete(wake); };
  }, [topic]);
}

/** Whether the stream is open. */
export function useLive(): boolean {
  const [now, set] = useState(live);
  useEffect(() => { states.add(set); set(live); return () => { states.delete(set); }; }, []);
  return now;
}

/** An answer of the API, asked for again whenever `topic` changed or the stream came back. What was known stays on screen. Nothing is
 * asked while `path` is null. */
export function useAsked<T>(path: string | null, topic: Topic | null): { data: T | null; problem: string | null; again: () => void } {
  const [data, setData] = useState<T | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [turn, setTurn] = useState(0);
  useEffect(() => { setData(null); setProblem(null); }, [path]);
  useEffect(() => {
    if (path === null) return;
    let wanted = true;
    ask<T>(path).then((answer) => { if (wanted) { setData(answer); setProblem(null); } }, (error) => { if (wanted) setProblem(sentence(error)); });
    return () => { wanted = false; };
  }, [path, turn]);
  const again = () => setTurn((before) => before + 1);
  useWake(topic, again);
  return { data, problem, again };
}

/** What the stream says of `topic`; `path` answers the same before it first does, and while it is away; null where it may not be asked. */
export function useTopic<T>(topic: Topic, path: string | null): { data: T | null; problem: string | null } {
  const asked = useAsked<T>(path, null);
  const [pushed, setPushed] = useState<T | null>((seen.get(topic) as T | undefined) ?? null);
  useWake(topic, () => setPushed((seen.get(topic) as T | undefined) ?? null));
  const isLive = useLive();
  const data = isLive ? (pushed ?? asked.data) : (asked.data ?? pushed);
  return { data, problem: isLive && pushed !== null ? null : asked.problem };
}
