// Endpoints: their versions, who gets how much of the traffic, and how each has done.
import type { Schemas } from "../api";
import { useAsked } from "../live";
import { Empty, Problem, Table } from "../parts";
import { instant, percent, span, usd } from "../words";

const PARTS = ["queue_ms", "env_ms", "weights_ms", "boot_ms", "load_ms", "warmup_ms", "run_ms", "upload_ms", "total_ms"] as const;

function One({ name }: { name: string }) {
  const base = `/v1/endpoints/${encodeURIComponent(name)}`;
  const versions = useAsked<Schemas["VersionList"]>(`${base}/versions`, "jobs");
  const traffic = useAsked<Schemas["Traffic"]>(`${base}/traffic`, "jobs");
  const stats = useAsked<Schemas["EndpointStats"]>(`${base}/stats?hours=24`, "jobs");
  const share = (version: number) => traffic.data?.versions.find((part) => part.version === version)?.percent ?? 0;
  return (
    <>
      <h1><a href="/dashboard/endpoints">Endpoints</a> / {name}</h1>
      <Problem text={versions.problem} />
      {versions.data && <Table label="Versions" heads={["version", "traffic", "entry", "memory", "deployed"]} n={[0, 1, 3]} rows={versions.data.versions.map((each) => [each.version, `${share(each.version)} %`, <span class="mono">{each.entry}</span>, `${each.vram_gib} GiB`, instant(each.created_at)])} />}
      <h2>The last 24 hours</h2>
      <Problem text={stats.problem} />
      {stats.data?.versions.length === 0 && <Empty>It has not run yet: <code>stoke submit {name} --input '{"{}"}'</code></Empty>}
      {!!stats.data?.versions.length && <>
        <Table label="Outcomes" heads={["version", "runs", "success", "task success", "per 1,000"]} n={[0, 1, 2, 3, 4]} rows={stats.data.versions.map((each) => [each.version, each.runs, percent(each.succeeded, each.succeeded + each.failed), percent(each.task_succeeded ?? 0, (each.task_succeeded ?? 0) + (each.task_failed ?? 0)), usd(each.usd_micros_per_1000)])} />
        <h2>Time by part, p50 / p95</h2>
        <Table label="Time by part" heads={["version", ...PARTS.map((part) => part.slice(0, -3))]} n={[0, ...PARTS.map((_, at) => at + 1)]} rows={stats.data.versions.map((each) => [each.version, ...PARTS.map((part) => { const timing = each.timing[part]; return timing ? `${span(timing.p50)} / ${span(timing.p95)}` : "–"; })])} />
      </>}
      <p><a href={`/dashboard/jobs?endpoint=${encodeURIComponent(name)}`}>Its jobs</a></p>
    </>
  );
}

export function Endpoints({ name }: { name: string | undefined }) {
  const { data, problem } = useAsked<Schemas["EndpointList"]>("/v1/endpoints", "jobs");
  if (name) return <One name={name} />;
  return (
    <>
      <h1>Endpoints</h1>
      <Problem text={problem} />
      {data?.endpoints.length === 0 && <Empty>No endpoint yet. Deploy one: <code>stoke deploy greet.py</code></Empty>}
      {!!data?.endpoints.length && <Table label="Endpoints" heads={["endpoint", "newest version", "priority", "memory", "deployed"]} n={[1, 3]} rows={data.endpoints.map((each) => [<a href={`/dashboard/endpoints/${each.name}`}>{each.name}</a>, each.version, each.priority ?? "standard", `${each.vram_gib} GiB`, instant(each.created_at)])} />}
    </>
  );
}
