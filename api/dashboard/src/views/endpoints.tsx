// Endpoints: their versions, who gets how much of the traffic, and how each has done.
import { useEffect } from "preact/hooks";
import type { Schemas } from "../api";
import { useAsked } from "../live";
import { Bar, Empty, Legend, Problem, Table } from "../parts";
import { count, instant, percent, span, usd } from "../words";

const PARTS = ["queue", "env", "weights", "boot", "load", "warmup", "run", "upload"] as const;
/** Figures of a day need not be of this second. */
const STATS_EVERY_MS = 10_000;
/** Endpoints whose figures are asked for in the list. */
const ASKED_MAX = 50;

function useStats(name: string, isOn = true): { data: Schemas["EndpointStats"] | null; problem: string | null } {
  const stats = useAsked<Schemas["EndpointStats"]>(isOn ? `/v1/endpoints/${encodeURIComponent(name)}/stats?hours=24` : null, null);
  useEffect(() => { if (!isOn) return; const timer = setInterval(stats.again, STATS_EVERY_MS); return () => clearInterval(timer); }, [isOn]);
  return stats;
}

/** How the traffic is split. */
function Split({ traffic }: { traffic: Schemas["Traffic"] | null }) {
  return <Bar label="Traffic" whole={100} say={(size) => `${size} %`} parts={(traffic?.versions ?? []).map((part, at) => [`v${part.version}`, part.percent, `of${at % 6}`])} />;
}

type Stats = Schemas["VersionStats"];

/** Where the time of a run goes, half of them at most and 95 of 100 at most, on one scale for all versions. */
function Times({ versions }: { versions: Stats[] }) {
  const of = (each: Stats, part: (typeof PARTS)[number], at: "p50" | "p95") => each.timing[`${part}_ms`]?.[at] ?? 0;
  const whole = (each: Stats, at: "p50" | "p95") => PARTS.reduce((sum, part) => sum + of(each, part, at), 0);
  const most = Math.max(1, ...versions.map((each) => whole(each, "p95")));
  const rows = versions.flatMap((each) => (["p50", "p95"] as const).map((at) => [
    at === "p50" ? `v${each.version}` : "", at, <Bar label={`Version ${each.version}, ${at}`} whole={most} say={span} parts={PARTS.map((part) => [part, of(each, part, at), part])} />,
    ...PARTS.map((part) => { const timing = each.timing[`${part}_ms`]; return timing ? span(timing[at]) : "–"; }), span(each.timing.total_ms?.[at]),
  ]));
  return <><Table label="Time by part" heads={["version", "quantile", "time by part", ...PARTS, "total"]} n={[...PARTS.map((_, at) => at + 3), PARTS.length + 3]} rows={rows} /><Legend kinds={PARTS.map((part) => [part, part])} /></>;
}

function One({ name }: { name: string }) {
  const base = `/v1/endpoints/${encodeURIComponent(name)}`;
  const versions = useAsked<Schemas["VersionList"]>(`${base}/versions`, "jobs");
  const traffic = useAsked<Schemas["Traffic"]>(`${base}/traffic`, "jobs");
  const stats = useStats(name);
  const share = (version: number) => traffic.data?.versions.find((part) => part.version === version)?.percent ?? 0;
  return (
    <>
      <h1><a href="/dashboard/endpoints">Endpoints</a> / {name}</h1>
      <Problem text={versions.problem} />
      <Split traffic={traffic.data} />
      {versions.data && <Table label="Versions" heads={["version", "traffic", "entry", "memory", "deployed"]} n={[1, 3]} rows={versions.data.versions.map((each) => [`v${each.version}`, `${share(each.version)} %`, <span class="mono">{each.entry}</span>, `${each.vram_gib} GiB`, instant(each.created_at)])} />}
      <h2>The last 24 hours</h2>
      <Problem text={stats.problem} />
      {stats.data?.versions.length === 0 && <Empty>This endpoint has not run yet: <code>stoke submit {name} --input '{"{}"}'</code></Empty>}
      {!!stats.data?.versions.length && <>
        <Table label="Outcomes" heads={["version", "runs", "succeeded", "failed", "success", "task success", "per 1,000"]} n={[1, 2, 3, 4, 5, 6]} rows={stats.data.versions.map((each) => [`v${each.version}`, count(each.runs), count(each.succeeded), count(each.failed), percent(each.succeeded, each.succeeded + each.failed), percent(each.task_succeeded ?? 0, (each.task_succeeded ?? 0) + (each.task_failed ?? 0)), usd(each.usd_micros_per_1000)])} />
        <h2>Time by part</h2>
        <Times versions={stats.data.versions} />
      </>}
      <p><a href={`/dashboard/jobs?endpoint=${encodeURIComponent(name)}`}>Jobs</a></p>
    </>
  );
}

/** An endpoint's day in one row: all of its versions together, and the time of the one that ran most. */
function Row({ endpoint, isAsked }: { endpoint: Schemas["EndpointVersion"]; isAsked: boolean }) {
  const traffic = useAsked<Schemas["Traffic"]>(isAsked ? `/v1/endpoints/${endpoint.name}/traffic` : null, null);
  const { data } = useStats(endpoint.name, isAsked);
  const sum = (of: (each: Stats) => number) => (data?.versions ?? []).reduce((all, each) => all + of(each), 0);
  const main = data?.versions.reduce<Stats | null>((most, each) => (most === null || each.runs > most.runs ? each : most), null);
  const [good, bad] = [sum((each) => each.task_succeeded ?? 0), sum((each) => each.task_failed ?? 0)];
  return (
    <tr>
      <td><a href={`/dashboard/endpoints/${endpoint.name}`}>{endpoint.name}</a></td><td><Split traffic={traffic.data} /></td><td>{endpoint.priority ?? "standard"}</td><td class="n">{endpoint.vram_gib > 0 ? `${endpoint.vram_gib} GiB` : "none"}</td>
      <td class="n">{data ? count(sum((each) => each.runs)) : "–"}</td><td class="n">{percent(sum((each) => each.succeeded), sum((each) => each.succeeded + each.failed))}</td><td class="n">{percent(good, good + bad)}</td>
      <td class="n">{span(main?.timing.run_ms?.p50)}</td><td class="n">{span(main?.timing.run_ms?.p95)}</td><td class="n">{span(main?.timing.total_ms?.p95)}</td><td class="n">{usd(main?.usd_micros_per_1000)}</td>
    </tr>
  );
}

export function Endpoints({ name }: { name: string | undefined }) {
  const { data, problem } = useAsked<Schemas["EndpointList"]>("/v1/endpoints", "jobs");
  if (name) return <One name={name} />;
  const heads = ["endpoint", "traffic", "priority", "memory", "runs", "success", "task success", "run p50", "run p95", "total p95", "per 1,000"];
  return (
    <>
      <h1>Endpoints</h1>
      <Problem text={problem} />
      {data?.endpoints.length === 0 && <Empty>No endpoints yet. Deploy one: <code>stoke deploy greet.py</code></Empty>}
      {!!data?.endpoints.length && <div class="scroll" tabIndex={0} role="region" aria-label="Endpoints">
        <table><thead><tr>{heads.map((head, at) => <th key={head} scope="col" class={at > 2 ? "n" : ""}>{head}</th>)}</tr></thead>
          <tbody>{data.endpoints.map((each, at) => <Row key={each.name} endpoint={each} isAsked={at < ASKED_MAX} />)}</tbody></table>
        <p class="quiet">The last 24 hours; times and cost are those of the version that ran most.</p>
      </div>}
    </>
  );
}
