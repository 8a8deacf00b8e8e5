// One job's story: its attempts on a line of time, its steps, what it wrote, what it cost and what came out.
import { useEffect, useState } from "preact/hooks";
import { ask, type Schemas } from "../api";
import { useAsked } from "../live";
import { Confirm, Problem, State, Table, Tile } from "../parts";
import { go } from "../route";
import { count, instant, perMillion, span, usd } from "../words";
import { Result } from "./result";
import { Story } from "./timeline";
import { Trace } from "./trace";
import { useWaiting, Waiting } from "./waiting";

const LOG_LINES_MAX = 2000;

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
    on("gap", (data) => `outputs ${data["from"]} to ${Number(data["to"]) - 1} are missing; the result has them`);
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
  useWaiting(job, again);
  if (!job) return <><h1><a href="/dashboard/jobs">Jobs</a> / <span class="mono">{id}</span></h1><Problem text={problem} /></>;
  const isOver = ["succeeded", "failed", "cancelled", "expired"].includes(job.state);
  const retry = () => ask<Schemas["Job"]>(`${path}/retry`, { method: "POST" }).then((next) => go(`/dashboard/jobs/${next.id}`));
  return (
    <>
      <h1><a href="/dashboard/jobs">Jobs</a> / <span class="mono">{id}</span></h1>
      <Problem text={problem} />
      <div class="row"><State of={job.state} />{job.progress && !isOver && <span class="quiet">{Math.round(job.progress.fraction * 100)} % {job.progress.message}</span>}<a href={`/dashboard/endpoints/${job.endpoint}`}>{job.endpoint}@{job.version}</a><span class="quiet">{job.priority}</span><a href={`/dashboard/endpoints/${encodeURIComponent(job.endpoint)}?from=${job.id}`}>Run again with these inputs</a>
        {!isOver && <Confirm scope="jobs:cancel" label="Cancel job" text="The job stops and its unfinished work is lost. You can retry it later as a new job." act={() => ask(`${path}/cancel`, { method: "POST" }).then(again)} />}
        {isOver && job.state !== "succeeded" && <Confirm scope="jobs:submit" label="Retry job" text="A new job runs the same input. This job does not change." act={retry} />}
      </div>
      <Waiting job={job} />
      {job.error && <div class="problem"><b>{job.error.code}</b> <span class="quiet">{job.error.class}</span><br />{job.error.message}{job.error.traceback && <pre tabIndex={0} aria-label="The traceback">{job.error.traceback}</pre>}</div>}
      <div class="tiles">
        <Tile label="submitted"><small>{instant(job.created_at)}</small></Tile>
        <Tile label={isOver ? "took" : "elapsed"}>{span((job.ended_at ? Date.parse(job.ended_at) : Date.now()) - Date.parse(job.created_at))}</Tile>
        <Tile label="attempts">{job.attempts.length}</Tile>
        <Tile label={job.cost?.is_estimate ? "cost, estimated" : "cost"}>{usd(job.cost?.total_usd_micros ?? job.cost_usd_micros)}</Tile>
        <Tile label="run, load, overhead"><small class="fine">{usd(job.cost?.run_usd_micros)} · {usd(job.cost?.load_usd_micros)} · {usd(job.cost?.overhead_usd_micros)}</small></Tile>
        {job.usage && <Tile label="tokens: prompt, cached, completion"><small>{count(job.usage.prompt_tokens)} · {count(job.usage.cached_tokens)} · {count(job.usage.completion_tokens)}</small> <small class="quiet">{perMillion(job.usage, job.cost?.total_usd_micros ?? job.cost_usd_micros)}</small></Tile>}
      </div>
      {Object.keys(job.metadata).length > 0 && <p class="chips">{Object.entries(job.metadata).map(([key, value]) => <a key={key} href={`/dashboard/jobs?metadata.${encodeURIComponent(key)}=${encodeURIComponent(value)}`}>{key} = {value}</a>)}</p>}
      <h2>Timeline</h2>
      <Story job={job} />
      <Trace id={id} of={`${job.state} ${job.attempts.length}`} />
      {job.steps.length > 0 && <><h2>Steps</h2><Table label="Steps" heads={["stage", "step", "state", "decision", "reason", "cost"]} n={[5]} rows={job.steps.map((step) => [step.stage, step.job_id ? <a href={`/dashboard/jobs/${step.job_id}`}>{step.name}</a> : step.name, step.state ? <State of={step.state} /> : "–", step.decision ?? "–", step.reason ?? "–", usd(step.cost_usd_micros)])} /></>}
      <h2>Result</h2>
      <Result job={job} />
      <h2>Events and logs</h2>
      <pre tabIndex={0} aria-label="Events and logs">{story.join("\n") || "No events yet."}</pre>
      <h2>Input</h2>
      <pre tabIndex={0} aria-label="The input">{JSON.stringify(job.input, null, 2)}</pre>
    </>
  );
}
