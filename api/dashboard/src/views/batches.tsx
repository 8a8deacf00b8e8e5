// Batches: how far, how long yet, what they spend of what they may, and what failed in them.
import { ask, type Schemas } from "../api";
import { useAsked, useTopic } from "../live";
import { Bar, Confirm, Empty, Legend, Problem, State, Table, Tile, useTick } from "../parts";
import { count, instant, percent, perMillion, since, until, usd } from "../words";

function Failures({ id }: { id: string }) {
  const failed = useAsked<Schemas["JobList"]>(`/v1/jobs?batch=${encodeURIComponent(id)}&state=failed&limit=100`, "jobs");
  const classes = new Map<string, number>();
  for (const job of failed.data?.jobs ?? []) { const name = job.error ? `${job.error.code} · ${job.error.class}` : "unknown"; classes.set(name, (classes.get(name) ?? 0) + 1); }
  if (failed.problem) return <Problem text={failed.problem} />;
  if (classes.size === 0) return <p class="quiet">No line failed.</p>;
  return <><Table label="Failures by class" heads={["class", "jobs"]} n={[1]} rows={[...classes]} />{failed.data?.next_cursor && <p class="quiet">Covers the newest 100 failed jobs.</p>}</>;
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
      <div class="row"><State of={batch.state} />{batch.endpoint ? <a href={`/dashboard/endpoints/${encodeURIComponent(batch.endpoint)}`}>{batch.endpoint}</a> : <span class="quiet">mixed endpoints</span>}
        {batch.ended_at == null && <Confirm scope="jobs:cancel" label="Cancel batch" text="Its open jobs are cancelled; ended jobs keep their results. You can retry cancelled jobs." act={() => post("cancel")} />}
        {batch.ended_at != null && counts.failed > 0 && <Confirm scope="jobs:submit" label="Retry failed" text={`A new batch runs the ${counts.failed} failed lines. This batch does not change.`} act={() => post("retry-failed")} />}
      </div>
      <div class="tiles">
        <Tile label="done">{percent(counts.total - counts.open, counts.total)} <small class="quiet">{count(counts.total - counts.open)} of {count(counts.total)}</small></Tile>
        <Tile label={batch.ended_at ? "ended" : "expected to end"}>{batch.ended_at ? instant(batch.ended_at) : until(batch.eta_at)}</Tile>
        <Tile label="spent, of budget">{usd(batch.spent_usd_micros)} <small class="quiet">{batch.budget_usd_micros == null ? "no budget" : `of ${usd(batch.budget_usd_micros)}`}</small></Tile>
        <Tile label="lines per second">{batch.rate_per_s == null ? "–" : batch.rate_per_s.toFixed(1)}</Tile>
      </div>
      <h2>Progress</h2>
      <Progress counts={counts} />
      {batch.budget_usd_micros != null && <><h2>Budget</h2><Bar label="Budget" whole={batch.budget_usd_micros} say={usd} parts={[["spent", batch.spent_usd_micros, batch.budget_state === "reached" ? "failed" : "run"]]} /></>}
      <h2>Figures</h2>
      <Table label="Figures" heads={["figure", "value"]} n={[1]} rows={[
        ["lines", count(counts.total)], ["succeeded", count(counts.succeeded)], ["failed", count(counts.failed)], ["running", count(counts.running)], ["waiting", count(counts.open - counts.running)], ["invalid", count(counts.invalid)], ["cancelled", count(counts.cancelled)], ["expired", count(counts.expired)],
        ...(batch.usage ? [["tokens: prompt, cached, completion", `${count(batch.usage.prompt_tokens)} · ${count(batch.usage.cached_tokens)} · ${count(batch.usage.completion_tokens)}`], ["price", perMillion(batch.usage, batch.spent_usd_micros) || "–"]] : []),
        ["estimated cost", batch.estimate ? `${usd(batch.estimate.low_usd_micros)} to ${usd(batch.estimate.high_usd_micros)}` : "–"],
      ]} />
      <h2>Failures by class</h2>
      <Failures id={id} />
      <p><a href={`/dashboard/jobs?batch=${encodeURIComponent(id)}`}>Jobs</a></p>
    </>
  );
}

/** How far a batch is, by how its lines stand. */
function Progress({ counts }: { counts: Schemas["BatchCounts"] }) {
  const gone = counts.cancelled + counts.expired + counts.invalid;
  return <Bar label="Progress" whole={counts.total} say={count} parts={[["succeeded", counts.succeeded, "succeeded"], ["failed", counts.failed, "failed"], ["running", counts.running, "running"], ["cancelled, expired or invalid", gone, "others"]]} />;
}

export function Batches({ id }: { id: string | undefined }) {
  const { data, problem } = useTopic<Schemas["BatchList"]>("batches", "/v1/batches");
  useTick();
  if (id) return <One id={id} />;
  return (
    <>
      <h1>Batches</h1>
      <Problem text={problem} />
      {data?.batches.length === 0 && <Empty>No batches yet. Submit one: <code>stoke batch submit lines.jsonl</code></Empty>}
      {!!data?.batches.length && <Table label="Batches" heads={["state", "batch", "endpoint", "progress", "done", "lines", "failed", "ends", "spent", "budget"]} n={[4, 5, 6, 7, 8, 9]} rows={data.batches.map((batch) => [
        <State of={batch.state} />, <a class="mono" href={`/dashboard/batches/${batch.id}`}>{batch.id}</a>, batch.endpoint ?? "mixed",
        <Progress counts={batch.counts} />, percent(batch.counts.total - batch.counts.open, batch.counts.total), count(batch.counts.total),
        batch.counts.failed > 0 ? <span class="bad">{count(batch.counts.failed)}</span> : 0, batch.ended_at ? `${since(batch.ended_at)} ago` : until(batch.eta_at),
        usd(batch.spent_usd_micros), <>{usd(batch.budget_usd_micros)} {batch.budget_state && batch.budget_state !== "within" && <State of={batch.budget_state} />}</>,
      ])} />}
      {!!data?.batches.length && <Legend kinds={[["succeeded", "succeeded"], ["failed", "failed"], ["running", "running"], ["cancelled, expired or invalid", "others"]]} />}
    </>
  );
}
