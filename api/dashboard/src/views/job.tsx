// One job's story: its attempts on a line of time, its steps, what it wrote, what it cost and what came out.
import { useEffect, useState } from "preact/hooks";
import { ask, type Schemas } from "../api";
import { useAsked } from "../live";
import { Bar, Confirm, Problem, State, Table, Tile } from "../parts";
import { go } from "../route";
import { instant, span, usd } from "../words";
import { Trace } from "./trace";

const LOG_LINES_MAX = 2000;
const PARTS = [["queue", "queued_ms"], ["env", "env_ms"], ["weights", "weights_ms"], ["boot", "boot_ms"], ["load", "load_ms"], ["warmup", "warmup_ms"], ["run", "run_ms"], ["upload", "upload_ms"]] as const;

/** What the job's stream tells, from its beginning; the browser resumes it where it broke off. */
function useStory(id: string, changed: () => void): string[] {
  const [lines, setLines] = useState<string[]>([]);
  useEffect(() => {
    setLines([]);
    const stream = new EventSource(`/v1/jobs/${encodeURIComponent(id)}/events`);
    const add = (line: string) => setLines((before) => [...before.slice(1 - LOG_LINES_MAX), line]);
    const on = (name: string, tell: (data: Record<string, unknown>) => string) => stream.addEventListener(name, (event) => add(tell(JSON.parse((event as MessageEvent<string>).data))));
    on("state", (data) => `— ${data["state"]}, attempt ${data["attempt"]}`);
    on("log", (data) => `${data["stream"]}  ${String(data["text"]).trimEnd()}`);
    on("progress", (data) => `${Math.round(Number(data["fraction"]) * 100)} %  ${data["message"]}`);
    on("output", (data) => `output ${data["index"]}  ${JSON.stringify(data["value"])}`);
    stream.addEventListener("state", changed);
    stream.addEventListener("done", () => { stream.close(); changed(); });
    return () => stream.close();
  }, [id]);
  return lines;
}

export function Job({ id }: { id: string }) {
  const path = `/v1/jobs/${encodeURIComponent(id)}`;
  const { data: job, problem, again } = useAsked<Schemas["Job"]>(path, "jobs");
  const story = useStory(id, again);
  if (!job) return <><h1><a href="/dashboard/jobs">Jobs</a> / <span class="mono">{id}</span></h1><Problem text={problem} /></>;
  const isOver = ["succeeded", "failed", "cancelled", "expired"].includes(job.state);
  const retry = () => ask<Schemas["Job"]>(`${path}/retry`, { method: "POST" }).then((next) => go(`/dashboard/jobs/${next.id}`));
  return (
    <>
      <h1><a href="/dashboard/jobs">Jobs</a> / <span class="mono">{id}</span></h1>
      <Problem text={problem} />
      <div class="row"><State of={job.state} /><a href={`/dashboard/endpoints/${job.endpoint}`}>{job.endpoint}@{job.version}</a><span class="quiet">{job.priority}</span>
        {!isOver && <Confirm label="Cancel job" text="It stops, and what it has not finished is lost. It can be sent again later, as a new job." act={() => ask(`${path}/cancel`, { method: "POST" }).then(again)} />}
        {isOver && job.state !== "succeeded" && <Confirm label="Retry job" text="A new job runs the same input again. This one stays as it is." act={retry} />}
      </div>
      {job.waiting && <p><State of={job.waiting.reason} /> {job.waiting.message}</p>}
      {job.error && <div class="problem"><b>{job.error.code}</b> <span class="quiet">{job.error.class}</span><br />{job.error.message}{job.error.traceback && <pre>{job.error.traceback}</pre>}</div>}
      <div class="tiles"><Tile label="cost">{usd(job.cost_usd_micros)}{job.cost?.is_estimate ? " ~" : ""}</Tile><Tile label="run">{usd(job.cost?.run_usd_micros)}</Tile><Tile label="load">{usd(job.cost?.load_usd_micros)}</Tile><Tile label="attempts">{job.attempts.length}</Tile></div>
      <p class="quiet">Created {instant(job.created_at)}{job.ended_at ? `, ended ${instant(job.ended_at)}` : ""}{Object.entries(job.metadata).map(([key, value]) => ` · ${key} = ${value}`)}</p>
      <h2>Attempts</h2>
      {job.attempts.length === 0 && <p class="quiet">None yet.</p>}
      {job.attempts.map((attempt) => {
        const parts = PARTS.map(([name, key]): [string, number] => [name, attempt.timing[key]]);
        const whole = parts.reduce((sum, [, ms]) => sum + ms, 0);
        return (
          <div key={attempt.attempt}>
            <p>{attempt.attempt} <State of={attempt.state} /> <span class="mono quiet">{attempt.worker_id}</span> {usd(attempt.cost_usd_micros)}</p>
            <Bar label={`Attempt ${attempt.attempt}, milliseconds`} whole={whole} parts={parts} />
            <p class="quiet">{parts.filter(([, ms]) => ms > 0).map(([name, ms]) => `${name} ${span(ms)}`).join(" · ")}</p>
            {attempt.error && <p class="bad">{attempt.error.code}: {attempt.error.message}</p>}
          </div>
        );
      })}
      <Trace id={id} of={`${job.state} ${job.attempts.length}`} />
      {job.steps.length > 0 && <><h2>Steps</h2><Table label="Steps" heads={["stage", "step", "state", "decision", "why", "cost"]} n={[5]} rows={job.steps.map((step) => [step.stage, step.job_id ? <a href={`/dashboard/jobs/${step.job_id}`}>{step.name}</a> : step.name, step.state ? <State of={step.state} /> : "–", step.decision ?? "–", step.reason ?? "–", usd(step.cost_usd_micros)])} /></>}
      <h2>What it wrote</h2>
      <pre tabIndex={0} aria-label="Events and logs">{story.join("\n") || "Nothing yet."}</pre>
      <h2>Result</h2>
      {job.result !== undefined && job.result !== null ? <pre tabIndex={0}>{JSON.stringify(job.result, null, 2)}</pre> : job.result_url ? <p><a href={job.result_url} target="_blank" rel="noreferrer">Open the result</a></p> : <p class="quiet">None.</p>}
      <h2>Input</h2>
      <pre tabIndex={0}>{JSON.stringify(job.input, null, 2)}</pre>
    </>
  );
}
