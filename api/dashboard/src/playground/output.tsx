// A run: its state and why it waits, its progress, logs and output, its result, its cost and its time by part.
import type { ComponentChildren } from "preact";
import type { Schemas } from "../api";
import { Bar, Legend, Problem, State, useTick } from "../parts";
import { useMay } from "../session";
import { PARTS } from "../timeline";
import { Result } from "../views/result";
import { waitingText } from "../views/waiting";
import { age, span, usd } from "../words";
import { isOver, type Run } from "./run";

type Job = Schemas["Job"];

function took(job: Job): number { return (job.ended_at ? Date.parse(job.ended_at) : Date.now()) - Date.parse(job.created_at); }

function Timings({ job }: { job: Job }) {
  const { timing } = job;
  if (!timing) return null;
  const parts = PARTS.map(([name, key]): [string, number, string] => [name, timing[key], name]).filter(([, ms]) => ms > 0);
  const cost = job.cost?.total_usd_micros ?? job.cost_usd_micros;
  return (
    <div class="timings">
      <Bar label="Time by part" whole={parts.reduce((sum, [, ms]) => sum + ms, 0)} say={span} parts={parts} />
      <Legend kinds={parts.map(([name, ms, kind]) => [`${name} ${span(ms)}`, kind])} />
      <p class="quiet">Took {span(took(job))}{cost != null && <> · cost <b>{usd(cost)}</b>{job.cost?.is_estimate ? " (estimate)" : ""}</>} · <a href={`/dashboard/jobs/${job.id}`}>open the job</a></p>
    </div>
  );
}

function Failure({ error }: { error: Schemas["JobError"] }) {
  return (
    <div class="problem" role="alert">
      <p><b>{error.code}</b> <span class="quiet">{error.class}</span></p>
      <p class="message">{error.message}</p>
      {error.traceback && <details><summary>Traceback</summary><pre tabIndex={0} aria-label="The traceback">{error.traceback}</pre></details>}
    </div>
  );
}

/** The state in words, on screen and for screen readers. */
function Now({ run }: { run: Run }) {
  const { job, written, isSubmitting } = run;
  useTick(job !== null && !isOver(job));
  const fraction = written.progress ?? job?.progress ?? null;
  // A job also waits after a worker has taken it, e.g. while its model loads.
  const waiting = job && !isOver(job) && job.waiting ? waitingText(job.waiting) : "";
  const isRunning = job?.state === "running" && waiting === "";
  let spoken = "";
  if (isSubmitting) spoken = "Submitting";
  else if (job) spoken = waiting ? `Job ${job.state}: ${waiting}` : `Job ${job.state}`;
  return (
    <>
      <p class="unseen" role="status" aria-live="polite">{spoken}</p>
      {isSubmitting && <p class="quiet">Submitting …</p>}
      {job && <div class="row now"><State of={job.state} /><span class="quiet">{isOver(job) ? span(took(job)) : age(took(job))}</span><a class="mono clip" href={`/dashboard/jobs/${job.id}`}>{job.id}</a></div>}
      {waiting && <p class="waiting">{waiting}</p>}
      {isRunning && <div class="row"><progress max={1} value={fraction?.fraction} aria-label="Progress" />{fraction && <span class="quiet">{Math.round(100 * fraction.fraction)} % {fraction.message}</span>}</div>}
    </>
  );
}

export function Output({ run, empty }: { run: Run; empty: ComponentChildren }) {
  const mayCancel = useMay("jobs:cancel");
  const { job, written, problem } = run;
  if (!job && !run.isSubmitting && !problem) return <div class="empty">{empty}</div>;
  return (
    <>
      <Now run={run} />
      <Problem text={problem} />
      {job && !isOver(job) && mayCancel && <div class="row"><button type="button" onClick={run.cancel}>Cancel</button></div>}
      {job?.error && <Failure error={job.error} />}
      {written.outputs > 0 && job?.state !== "succeeded" && (
        <>
          {written.cut > 0 && <p class="quiet">The first {written.cut} characters are not kept here; the result has them.</p>}
          <pre class="streamed" tabIndex={0} aria-label="Streamed output">{written.text}</pre>
        </>
      )}
      {job?.state === "succeeded" && <><Given run={run} job={job} /><p class="quiet"><a href={`/v1/jobs/${encodeURIComponent(job.id)}/result`} download={`${job.id}.json`}>Download the result as JSON</a></p></>}
      {job && <Timings job={job} />}
      {written.logs.length > 0 && <details class="logs" open={job?.state === "failed" || job?.state === "running"}><summary>Logs <span class="quiet">{written.logs.length}</span></summary><pre tabIndex={0} aria-label="Logs">{written.logs.join("\n")}</pre></details>}
    </>
  );
}

/** The result. A job that streamed text has a list of its pieces, which is shown as the text that it is. */
function Given({ run: { written }, job }: { run: Run; job: Job }) {
  const result: unknown = job.result;
  const pieces = Array.isArray(result) && result.length > 0 && result.every((piece) => typeof piece === "string") ? (result as string[]) : null;
  const streamed = written.outputs === 0 ? null : pieces ? pieces.join("") : result == null ? written.text : null;
  if (streamed === null) return <Result job={job} isFolded />;
  return (
    <>
      {pieces === null && written.cut > 0 && <p class="quiet">The first {written.cut} characters are not kept here; the result has them.</p>}
      <pre class="streamed" tabIndex={0} aria-label="Streamed output">{streamed}</pre>
      <details><summary>Result</summary><Result job={job} isFolded /></details>
    </>
  );
}
