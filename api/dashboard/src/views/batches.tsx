// Batches: how far, how long yet, what they spend of what they may, and what failed in them.
import { ask, type Schemas } from "../api";
import { useAsked, useTopic } from "../live";
import { Bar, Confirm, Empty, Problem, State, Table } from "../parts";
import { instant, percent, usd } from "../words";

function Failures({ id }: { id: string }) {
  const failed = useAsked<Schemas["JobList"]>(`/v1/jobs?batch=${encodeURIComponent(id)}&state=failed&limit=100`, "jobs");
  const classes = new Map<string, number>();
  for (const job of failed.data?.jobs ?? []) { const name = job.error ? `${job.error.code} · ${job.error.class}` : "unknown"; classes.set(name, (classes.get(name) ?? 0) + 1); }
  if (failed.problem) return <Problem text={failed.problem} />;
  if (classes.size === 0) return <p class="quiet">None failed.</p>;
  return <><Table label="Failures by class" heads={["class", "jobs"]} n={[1]} rows={[...classes]} />{failed.data?.next_cursor && <p class="quiet">Of the newest 100 failed jobs.</p>}</>;
}

function One({ id }: { id: string }) {
  const { data: batch, problem, again } = useAsked<Schemas["Batch"]>(`/v1/batches/${encodeURIComponent(id)}`, "batches");
  if (!batch) return <Problem text={problem} />;
  const { counts } = batch;
  const post = (deed: string) => ask(`/v1/batches/${encodeURIComponent(id)}/${deed}`, { method: "POST" }).then(again);
  return (
    <>
      <h1><a href="/dashboard/batches">Batches</a> / <span class="mono">{id}</span></h1>
      <Problem text={problem} />
      <div class="row"><State of={batch.state} />
        {batch.ended_at == null && <Confirm label="Cancel batch" text="Its open jobs are cancelled; what has ended keeps its result. Cancelled jobs can be sent again." act={() => post("cancel")} />}
        {batch.ended_at != null && counts.failed > 0 && <Confirm label="Retry failed" text={`A new batch runs the ${counts.failed} failed lines again. This one stays as it is.`} act={() => post("retry-failed")} />}
      </div>
      <Bar label="Progress" whole={counts.total} parts={[["succeeded", counts.succeeded], ["failed", counts.failed], ["running", counts.running]]} />
      <Table label="Figures" heads={["what", "how many"]} n={[1]} rows={[
        ["lines", counts.total], ["succeeded", counts.succeeded], ["failed", counts.failed], ["running", counts.running], ["open", counts.open], ["invalid", counts.invalid],
        ["spent", usd(batch.spent_usd_micros)], ["budget", usd(batch.budget_usd_micros)], ["expected to end", instant(batch.eta_at)], ["ended", instant(batch.ended_at)],
      ]} />
      <h2>Failures by class</h2>
      <Failures id={id} />
      <p><a href={`/dashboard/jobs?batch=${encodeURIComponent(id)}`}>Its jobs</a></p>
    </>
  );
}

export function Batches({ id }: { id: string | undefined }) {
  const { data, problem } = useTopic<Schemas["BatchList"]>("batches", "/v1/batches");
  if (id) return <One id={id} />;
  return (
    <>
      <h1>Batches</h1>
      <Problem text={problem} />
      {data?.batches.length === 0 && <Empty>No batch yet. Send one: <code>stoke batch submit lines.jsonl</code></Empty>}
      {!!data?.batches.length && <Table label="Batches" heads={["state", "batch", "endpoint", "progress", "done", "expected to end", "spent", "budget", "failed"]} n={[4, 6, 7, 8]} rows={data.batches.map((batch) => [
        <State of={batch.state} />, <a class="mono" href={`/dashboard/batches/${batch.id}`}>{batch.id}</a>, batch.endpoint ?? "mixed",
        <Bar label="Progress" whole={batch.counts.total} parts={[["✓", batch.counts.succeeded], ["✕", batch.counts.failed]]} />,
        percent(batch.counts.total - batch.counts.open, batch.counts.total), instant(batch.eta_at), usd(batch.spent_usd_micros),
        <>{usd(batch.budget_usd_micros)} {batch.budget_state && <State of={batch.budget_state} />}</>, batch.counts.failed,
      ])} />}
    </>
  );
}
