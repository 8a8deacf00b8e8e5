// What waits, why the head of each lane waits, what came and went, and what nothing moves.
import { useEffect } from "preact/hooks";
import type { Schemas } from "../api";
import { Chart } from "../chart";
import { useAsked, useTopic } from "../live";
import { Empty, Problem, State, Table, Tile, useTick } from "../parts";
import { go } from "../route";
import { useMay } from "../session";
import { since, span } from "../words";
import { Quarantine } from "./quarantine";

type Lane = Schemas["Lane"];
/** Time between two points of the chart, and between two looks at the quarantine, which the stream does not have. */
const STEP_MS = 10_000;
const PRIORITIES = ["interactive", "standard", "batch"] as const;
const BY = ["lane", "priority", "endpoint", "tenant"] as const;

/** Since when the first of these is ready. */
function oldest(lanes: Lane[]): string | null {
  return lanes.map((lane) => lane.oldest_at ?? null).reduce((first, at) => (first === null || (at !== null && at < first) ? at : first), null);
}
function depth(lanes: Lane[]): number { return lanes.reduce((sum, lane) => sum + lane.jobs, 0); }

/** Why the heads of these wait: each reason once. */
function Why({ lanes }: { lanes: Lane[] }) {
  const reasons = new Map(lanes.map((lane) => [lane.waiting.message, lane.waiting]));
  return <>{[...reasons.values()].map((waiting) => <div key={waiting.message}><State of={waiting.reason} /> <span class="quiet">{waiting.message}</span></div>)}</>;
}

function Lanes({ lanes, by }: { lanes: Lane[]; by: (typeof BY)[number] }) {
  if (by === "lane") {
    return <Table label="Lanes" heads={["priority", "endpoint", "tenant", "GPU", "jobs", "oldest", "done in", "reason"]} n={[3, 4, 5, 6]} wrap={[7]} rows={lanes.map((lane) => [
      lane.priority, <a href={`/dashboard/jobs?state=queued&endpoint=${encodeURIComponent(lane.endpoint)}`}>{lane.endpoint}</a>, lane.tenant, lane.vram_class_gib > 0 ? `${lane.vram_class_gib} GiB` : "none", lane.jobs,
      since(lane.oldest_at), lane.eta_s == null ? "–" : span(lane.eta_s * 1000), <Why lanes={[lane]} />,
    ])} />;
  }
  const groups = new Map<string, Lane[]>();
  for (const lane of lanes) groups.set(lane[by], [...(groups.get(lane[by]) ?? []), lane]);
  return <Table label={`Waiting jobs by ${by}`} heads={[by, "lanes", "jobs", "oldest", "reason"]} n={[1, 2, 3]} wrap={[4]} rows={[...groups].map(([name, those]) => [name, those.length, depth(those), since(oldest(those)), <Why lanes={those} />])} />;
}

export function Queue({ by }: { by: string | null }) {
  useTick();
  const mayOperate = useMay("workers:read");
  const { data, problem } = useTopic<Schemas["QueueView"]>("queue", mayOperate ? "/v1/queue" : null);
  const series = useAsked<Schemas["Series"]>("/v1/series?minutes=60", null);
  const quarantine = useAsked<Schemas["Quarantine"]>(useMay("tenants:read") ? "/v1/quarantine" : null, null);
  useEffect(() => { const timer = setInterval(() => { series.again(); quarantine.again(); }, STEP_MS); return () => clearInterval(timer); }, []);
  const chosen = BY.find((each) => each === by) ?? "lane";
  const lanes = data?.lanes ?? [];
  const of = (priority: string) => lanes.filter((lane) => lane.priority === priority);
  const tile = (name: string, those: Lane[]) => <Tile key={name} label={name}>{depth(those)} {those.length > 0 && <small class="quiet">oldest {since(oldest(those))}</small>}</Tile>;
  return (
    <>
      <h1>Queue</h1>
      <Problem text={problem ?? quarantine.problem} />
      {data && <div class="tiles">{tile("waiting", lanes)}{PRIORITIES.map((priority) => tile(priority, of(priority)))}</div>}
      <Quarantine found={quarantine.data} again={quarantine.again} />
      <h2>The last hour</h2>
      {series.data?.points.length ? <Chart series={series.data} /> : <p class="quiet">{series.problem ?? "No data yet."}</p>}
      {!mayOperate && <p class="quiet">The queue covers all tenants, so this list requires the scope <code>workers:read</code>. Your own waiting jobs are in <a href="/dashboard/jobs?state=queued">Jobs</a>.</p>}
      {data && <><h2>Waiting jobs</h2>
        <div class="row"><label for="by">by</label><select id="by" value={chosen} onChange={(event) => go(`/dashboard/queue?by=${event.currentTarget.value}`)}>{BY.map((each) => <option key={each}>{each}</option>)}</select></div></>}
      {data && lanes.length === 0 && <Empty>No jobs are waiting. Submit one: <code>stoke submit greet --input '{"{}"}'</code></Empty>}
      {lanes.length > 0 && <Lanes lanes={lanes} by={chosen} />}
    </>
  );
}
