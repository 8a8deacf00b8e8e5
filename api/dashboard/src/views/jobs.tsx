// The jobs: filters whose address can be shared, and a list of which only what is on screen is drawn.
import { useEffect, useRef, useState } from "preact/hooks";
import { ask, type Schemas, sentence } from "../api";
import { useAsked } from "../live";
import { Empty, Problem, State } from "../parts";
import { go } from "../route";
import { since, usd } from "../words";

type Job = Schemas["Job"];
const ROW_PX = 34;
const PAGE = 100;
const STATES = ["scheduled", "blocked", "queued", "running", "succeeded", "failed", "cancelled", "expired"];
const PRIORITIES = ["interactive", "standard", "batch"];

/** What the address asks of the API: its own filters, and `metadata.<key>`. */
function asked(query: URLSearchParams): string {
  const filter = new URLSearchParams();
  for (const [key, value] of query) if (value && (["state", "endpoint", "batch", "priority", "error_code"].includes(key) || key.startsWith("metadata."))) filter.set(key, value);
  filter.set("limit", String(PAGE));
  return filter.toString();
}

/** The pages after the first, fetched as they are scrolled to; the first is looked at again whenever a job changed. */
function useRows(filter: string): { rows: Job[]; problem: string | null; isFirst: boolean; more: (bottom: number) => void } {
  const first = useAsked<Schemas["JobList"]>(`/v1/jobs?${filter}`, "jobs");
  const [rest, setRest] = useState<{ filter: string; jobs: Job[]; cursor: string | null | undefined }>({ filter, jobs: [], cursor: undefined });
  const [problem, setProblem] = useState<string | null>(null);
  const isAsking = useRef(false);
  const known = rest.filter === filter ? rest : { filter, jobs: [], cursor: undefined };
  const fresh = new Map((first.data?.jobs ?? []).map((job) => [job.id, job]));
  const rows = [...fresh.values(), ...known.jobs.filter((job) => !fresh.has(job.id))];
  // What came in since the first page was cut is known by its id; what it pushed out of that page is asked for again.
  const more = (bottom: number) => {
    const cursor = known.cursor === undefined ? first.data?.next_cursor : known.cursor;
    if (!cursor || isAsking.current || bottom < rows.length - PAGE / 2) return;
    isAsking.current = true;
    ask<Schemas["JobList"]>(`/v1/jobs?${filter}&cursor=${encodeURIComponent(cursor)}`)
      .then((page) => { setRest({ filter, jobs: [...(known.cursor === undefined ? rows : known.jobs), ...page.jobs], cursor: page.next_cursor ?? null }); setProblem(null); }, (error) => setProblem(sentence(error)))
      .finally(() => { isAsking.current = false; });
  };
  return { rows, problem: first.problem ?? problem, isFirst: first.data === null, more };
}

function Rows({ filter }: { filter: string }) {
  const { rows, problem, isFirst, more } = useRows(filter);
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const from = Math.max(0, Math.floor(top / ROW_PX) - 8);
  const to = Math.min(rows.length, from + Math.ceil((box.current?.clientHeight ?? 700) / ROW_PX) + 24);
  useEffect(() => more(to));
  if (!isFirst && rows.length === 0) return <><Problem text={problem} /><Empty>No job is like this. Deploy and send one: <code>stoke deploy greet.py</code>, then <code>stoke submit greet --input '{"{}"}'</code></Empty></>;
  return (
    <>
      <Problem text={problem} />
      <div class="list" ref={box} tabIndex={0} role="list" aria-label="Jobs, the newest first" onScroll={(event) => setTop(event.currentTarget.scrollTop)}>
        <div style={{ height: `${rows.length * ROW_PX}px` }} />
        {rows.slice(from, to).map((job, at) => (
          <div role="listitem" key={job.id} aria-setsize={rows.length} aria-posinset={from + at + 1}>
            <a class="item" href={`/dashboard/jobs/${job.id}`} style={{ top: `${(from + at) * ROW_PX}px` }}>
              <State of={job.state} /><span class="mono">{job.id}</span><span>{job.endpoint}@{job.version}</span><span class="quiet">{job.priority}</span><span class="quiet n">{since(job.created_at)}</span><span class="n">{usd(job.cost_usd_micros)}</span>
            </a>
          </div>
        ))}
      </div>
    </>
  );
}

export function Jobs({ query }: { query: URLSearchParams }) {
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
        {metadata.map((key) => <button key={key} onClick={() => set(key, "")} aria-label={`Drop the filter ${key}`}>{key.slice(9)} = {query.get(key)} ✕</button>)}
      </div>
      <Rows filter={asked(query)} />
    </>
  );
}

