// Data that the API pushes, kept while the API is unreachable. A lost stream is opened again after growing pauses with jitter. Each attempt also
// requests the data on screen again, so that the page is up to date even where the stream is refused.
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

function setLive(now: boolean): void { live = now; states.forEach((each) => each(now)); }

/** Opens the stream and keeps it open until `stop`. */
export function start(): void {
  stop();
  // Without `topics`, the API sends everything that the token may read; it refuses a request for more.
  stream = new EventSource("/v1/live");
  stream.onopen = () => { tries = 0; setLive(true); wakes.forEach((wake) => wake(null)); };
  stream.onerror = () => {
    stream?.close();
    setLive(false);
    const most = Math.min(PAUSE_MAX_MS, PAUSE_MIN_MS * 2 ** tries++);
    timer = setTimeout(() => { wakes.forEach((wake) => wake(null)); start(); }, most / 2 + (Math.random() * most) / 2);
  };
  for (const topic of TOPICS) {
    stream.addEventListener(topic, (event) => { seen.set(topic, JSON.parse((event as MessageEvent<string>).data)); wakes.forEach((wake) => wake(topic)); });
  }
}
export function stop(): void { stream?.close(); clearTimeout(timer); }
onLogOut(() => { stop(); seen.clear(); });

/** Calls `then` after each change of `topic`, and when the stream is open again. */
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

/** A response of the API, requested again after each change of `topic` and when the stream is open again. The last one stays on screen. No
 * request is sent while `path` is null. */
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

/** The data of `topic`: from the stream, or from `path` before its first event and while it is closed. `path` is null if the token may not read it. */
export function useTopic<T>(topic: Topic, path: string | null): { data: T | null; problem: string | null } {
  const asked = useAsked<T>(path, null);
  const [pushed, setPushed] = useState<T | null>((seen.get(topic) as T | undefined) ?? null);
  useWake(topic, () => setPushed((seen.get(topic) as T | undefined) ?? null));
  const isLive = useLive();
  const data = isLive ? (pushed ?? asked.data) : (asked.data ?? pushed);
  return { data, problem: isLive && pushed !== null ? null : asked.problem };
}
