// The pictures of an endpoint's recent results. Pictures are loaded when they scroll into view, and older results when they are wanted.
import { useEffect, useRef, useState } from "preact/hooks";
import { ask, type Schemas, sentence } from "../api";
import { useWake } from "../live";
import { Problem } from "../parts";
import { useMay } from "../session";
import { since } from "../words";
import { type Get, newer, older, type Shots } from "./shots";

const PAGE = 24;
const JOBS_PER_PAGE = 20;
/** Shortest time between two requests for new results. */
const ASK_EVERY_MS = 15_000;

/** The results so far. New ones are asked for when a job has changed, at most every 15 seconds and only while the page is visible. */
function useShots(name: string, count: number, turn: number): { all: Shots | null; problem: string | null } {
  const mayRead = useMay("jobs:read");
  const [all, setAll] = useState<Shots | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const known = useRef<Shots | null>(null);
  const wanted = useRef({ count, isMore: true, isStale: false });
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const busy = useRef<AbortController | null>(null);
  const askedAt = useRef(0);

  /** The next thing that is wanted; null if there is none. */
  const step = (get: Get): Promise<Shots> | null => {
    const { count, isMore, isStale } = wanted.current;
    const before = known.current;
    askedAt.current = Date.now();
    if (isStale && before !== null) { wanted.current.isStale = false; return newer(get, before); }
    if (isMore) { wanted.current = { count, isMore: false, isStale: false }; return older(get, before, count); }
    return null;
  };
  const work = async () => {
    if (!mayRead || busy.current) return;
    const controller = new AbortController();
    busy.current = controller;
    const { signal } = controller;
    const get: Get = (cursor) => ask<Schemas["JobList"]>(`/v1/jobs?endpoint=${encodeURIComponent(name)}&state=succeeded&limit=${JOBS_PER_PAGE}${cursor === null ? "" : `&cursor=${encodeURIComponent(cursor)}`}`, { signal });
    try {
      for (let next = step(get); next !== null; next = step(get)) {
        known.current = await next;
        if (signal.aborted) return;
        setAll(known.current);
        setProblem(null);
      }
    } catch (error) {
      if (signal.aborted) return;
      // The next change of a job, or the return of the stream, tries again.
      wanted.current = { ...wanted.current, isMore: true, isStale: true };
      setProblem(sentence(error));
    } finally {
      busy.current = null;
    }
  };
  const refresh = () => {
    timer.current = undefined;
    if (document.visibilityState === "visible") void work();
  };
  const changed = () => {
    wanted.current.isStale = true;
    timer.current ??= setTimeout(refresh, Math.max(0, askedAt.current + ASK_EVERY_MS - Date.now()));
  };
  useWake("jobs", changed);
  useEffect(() => {
    const shown = () => { if (document.visibilityState === "visible" && wanted.current.isStale) changed(); };
    document.addEventListener("visibilitychange", shown);
    return () => { document.removeEventListener("visibilitychange", shown); clearTimeout(timer.current); busy.current?.abort(); };
  }, []);
  useEffect(() => { wanted.current = { ...wanted.current, count, isMore: true }; void work(); }, [count]);
  // A run of this page is shown at once.
  useEffect(() => { if (turn > 0) { wanted.current.isStale = true; void work(); } }, [turn]);
  return { all, problem };
}

export function Gallery({ name, turn }: { name: string; turn: number }) {
  const [count, setCount] = useState(PAGE);
  const { all, problem } = useShots(name, count, turn);
  const found = (all?.shots ?? []).flatMap((shot) => shot.files.map((file) => ({ shot, file })));
  if (found.length === 0) return <Problem text={problem} />;
  return (
    <section id="gallery" aria-labelledby="gallery-title">
      <h2 id="gallery-title">Gallery</h2>
      <Problem text={problem} />
      <ul class="gallery">
        {found.slice(0, count).map(({ shot: { id, ended_at, words }, file }) => (
          <li key={`${id} ${file}`}><a href={`/dashboard/jobs/${id}`} title={words}>
            <img src={`/v1/jobs/${encodeURIComponent(id)}/files/${encodeURIComponent(file)}`} alt={words || `${file} of job ${id}`} loading="lazy" decoding="async" />
            <span class="quiet">{since(ended_at)} ago</span>
          </a></li>
        ))}
      </ul>
      {(found.length > count || all?.next != null) && <button type="button" onClick={() => setCount(count + PAGE)}>Show more</button>}
    </section>
  );
}
