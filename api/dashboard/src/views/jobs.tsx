// The jobs: filters whose address can be shared, and a list of which only what is on screen is drawn.
import { useEffect, useRef, useState } from "preact/hooks";
import { ask, type Schemas, sentence } from "../api";
import { useWake } from "../live";
import { Empty, Problem, State, useTick } from "../parts";
import { go } from "../route";
import { since, usd } from "../words";

type Job = Schemas["Job"];
const ROW_PX = 34;
const PAGE = 100;
/** Beyond this many pages of news the list begins anew. */
const HEAD_PAGES_MAX = 5;
const STATES = ["scheduled", "blocked", "queued", "running", "succeeded", "failed", "cancelled", "expired"];
const PRIORITIES = ["interactive", "standard", "batch"];

/** What the address asks of the API: its own filters, and `metadata.<key>`. */
function asked(query: URLSearchParams): string {
  const filter = new URLSearchParams();
  for (const [key, value] of query) if (value && (["state", "endpoint", "batch", "priority", "error_code"].includes(key) || key.startsWith("metadata."))) filter.set(key, value);
  filter.set("limit", String(PAGE));
  return filter.toString();
}

interface Page { start: string | null; jobs: Job[]; next: string | null }

/** The pages scrolled to so far. Whenever a job changed, what came in at the top is fetched, and the pages on screen again. */
function useRows(filter: string): { rows: Job[]; problem: string | null; isFirst: boolean; show: (from: number, to: number) => void } {
  const [pages, setPages] = useState<Page[] | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const known = useRef<Page[]>([]);
  const shown = useRef<[number, number]>([0, 0]);
  const isAsking = useRef(false);
  const isStale = useRef(true);
  const page = async (start: string | null): Promise<Page> => {
    const answer = await ask<Schemas["JobList"]>(`/v1/jobs?${filter}${start === null ? "" : `&cursor=${encodeURIComponent(start)}`}`);
    return { start, jobs: answer.jobs, next: answer.next_cursor ?? null };
  };
  const refresh = async () => {
    const [, ...rest] = known.current;
    const older = new Set(rest.flatMap((each) => each.jobs.map((job) => job.id)));
    const head: Job[] = [];
    let next: string | null = null;
    let isMet = older.size === 0;
    for (let count = 0; count < HEAD_PAGES_MAX; count++) {
      const newest: Page = await page(next);
      head.push(...newest.jobs.filter((job) => !older.has(job.id)));
      next = newest.next;
      isMet ||= newest.jobs.some((job) => older.has(job.id));
      if (isMet || next === null) break;
    }
    // So much came in, or went, that nothing known is met: the list begins anew, and pages again as it is scrolled.
    if (!isMet || older.size === 0) { known.current = [{ start: null, jobs: head, next }]; return; }
    known.current = [{ start: null, jobs: head, next: rest[0]?.start ?? null }, ...rest];
    let row = 0;
    for (const [at, each] of known.current.entries()) {
      if (at > 0 && row < shown.current[1] && row + each.jobs.length > shown.current[0]) known.current[at] = { ...each, jobs: (await page(each.start)).jobs };
      row += each.jobs.length;
    }
  };
  const work = async () => {
    if (isAsking.current) return;
    isAsking.current = true;
    try {
      for (;;) {
        const count = known.current.reduce((sum, each) => sum + each.jobs.length, 0);
        const next = known.current[known.current.length - 1]?.next ?? null;
        if (isStale.current) { isStale.current = false; await refresh(); }
        else if (next !== null && shown.current[1] > count - PAGE / 2) known.current = [...known.current, await page(next)];
        else break;
        setPages([...known.current]);
        setProblem(null);
      }
    } catch (error) { setProblem(sentence(error)); } finally { isAsking.current = false; }
  };
  useWake("jobs", () => { isStale.current = true; void work(); });
  useEffect(() => { void work(); }, []);
  const met = new Set<string>();
  const rows = (pages ?? []).flatMap((each) => each.jobs).filter((job) => !met.has(job.id) && met.add(job.id));
  return { rows, problem, isFirst: pages === null, show: (from, to) => { if (shown.current[0] !== from || shown.current[1] !== to) { shown.current = [from, to]; if (pages !== null) void work(); } } };
}

/** What is worth knowing of a job beside its figures: why it failed, how far it is, or its labels. */
function About({ job }: { job: Job }) {
  if (job.error) return <span class="bad">{job.error.class || job.error.code}: {job.error.message}</span>;
  if (job.progress && job.state === "running") return <span class="busy">{Math.round(job.progress.fraction * 100)} % {job.progress.message}</span>;
  return <span class="quiet">{job.custom_id ?? Object.entries(job.metadata).map(([key, value]) => `${key} = ${value}`).join(", ")}</span>;
}

function Rows({ filter }: { filter: string }) {
  const { rows, problem, isFirst, show } = useRows(filter);
  useTick();
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const from = Math.max(0, Math.floor(top / ROW_PX) - 8);
  const to = Math.min(rows.length, from + Math.ceil((box.current?.clientHeight ?? 700) / ROW_PX) + 24);
  useEffect(() => show(from, to));
  if (!isFirst && rows.length === 0) return <><Problem text={problem} /><Empty>No matching jobs. Deploy an endpoint and submit one: <code>stoke deploy greet.py</code>, then <code>stoke submit greet --input '{"{}"}'</code></Empty></>;
  return (
    <>
      <Problem text={problem} />
      <div class="item heads" aria-hidden="true">{["state", "job", "endpoint", "about", "priority", "age", "cost"].map((head, at) => <span key={head} class={at > 4 ? "n" : ""}>{head}</span>)}</div>
      <div class="list" ref={box} tabIndex={0} role="list" aria-label="Jobs, newest first" onScroll={(event) => setTop(event.currentTarget.scrollTop)}>
        <div style={{ height: `${rows.length * ROW_PX}px` }} />
        {rows.slice(from, to).map((job, at) => (
          <div class="line" role="listitem" key={job.id} aria-setsize={rows.length} aria-posinset={from + at + 1} style={{ top: `${(from + at) * ROW_PX}px` }}>
            <a class="item" href={`/dashboard/jobs/${job.id}`}>
              <State of={job.state} /><span class="mono">{job.id}</span><span>{job.endpoint}@{job.version}</span><About job={job} /><span class="quiet">{job.priority}</span><span class="quiet n">{since(job.created_at)}</span><span class="n">{usd(job.cost_usd_micros)}</span>
            </a>
          </div>
        ))}
      </div>
    </>
  );
}

export function Jobs({ query }: { query: URLSearchParams }) {
  useEffect(() => { if (location.hash === "#find") document.getElementById("find")?.focus(); }, []);
  const set = (key: string, value: string) => { const next = new URLSearchParams(query); if (value) next.set(key, value); else next.delete(key); go(`/dashboard/jobs?${next}`); };
  const find = (text: string) => {
    const [key, value] = text.split("=", 2);
    if (key && value !== undefined) set(`metadata.${key.trim()}`, value.trim());
    else if (text) go(`/dashboard/jobs/${encodeURIComponent(text)}`);
  };
  const choice = (key: string, of: string[]) => (
    <select aria-label={key} value={query.get(key) ?? ""} onChange={(event) => set(key, event.currentTarget.value)}><option value="">any {key}</option>{of.map((each) => <option key={each}>{each}</option>)}</select>
  );
  const text = (key: string) => <input aria-label={key} placeholder={key} size={14} value={query.get(key) ?? ""} onChange={(event) => set(key, event.currentTarget.value.trim())} />;
  const metadata = [...query.keys()].filter((key) => key.startsWith("metadata."));
  return (
    <>
      <h1>Jobs</h1>
      <div class="row">
        <form onSubmit={(event) => { event.preventDefault(); find((new FormData(event.currentTarget).get("find") as string).trim()); }}><input id="find" name="find" type="search" size={30} placeholder="job id, or metadata key=value" aria-label="Find a job by its id, or jobs by metadata as key=value" /></form>
        {choice("state", STATES)}{choice("priority", PRIORITIES)}{text("endpoint")}{text("batch")}
        {metadata.map((key) => <button key={key} onClick={() => set(key, "")} aria-label={`Remove the filter ${key}`}>{key.slice(9)} = {query.get(key)} ✕</button>)}
      </div>
      <Rows key={asked(query)} filter={asked(query)} />
    </>
  );
}

