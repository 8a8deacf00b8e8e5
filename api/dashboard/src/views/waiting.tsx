// Why a job has not started, when it is expected to, and the steps until it runs.
import { useEffect, useState } from "preact/hooks";
import type { Schemas } from "../api";
import { about, age } from "../words";

type Job = Schemas["Job"];

/** The waiting reason in one line: the API's message and, if there is one, the estimated time until the job starts. */
export function waitingText({ message, estimate_s }: Schemas["Waiting"]): string { return estimate_s == null ? message : `${message}, about ${about(estimate_s)}`; }

/** The steps of a job for which an instance is rented, in order. */
const STEPS = ["renting", "booting", "environment", "loading", "running"];
const ASK_EVERY_MS = 1000;
/** A lease is followed for this long at least: its worker reports the phase of the model a moment later. */
const LEASED_MS = 15_000;
/** Workers report the phase within this time of the lease, if the model is not loaded. */
const REPORTED_MS = 3000;

/** Whether the phase may change without an event of the job. */
function changes(job: Job): boolean {
  const last = job.attempts[job.attempts.length - 1];
  const isLeased = job.state === "running" && last !== undefined && Date.now() - Date.parse(last.started_at) < LEASED_MS;
  return job.waiting != null || job.state === "queued" || isLeased;
}

/** Asks for the job once a second while its phase may change. */
export function useWaiting(job: Job | null, again: () => void): void {
  const isOn = job !== null && changes(job);
  useEffect(() => {
    if (!isOn) return;
    const timer = setInterval(again, ASK_EVERY_MS);
    return () => clearInterval(timer);
  }, [isOn]);
}

/** Whether `now` has held for a while. */
function useSettled(now: boolean): boolean {
  const [settled, set] = useState(false);
  useEffect(() => {
    set(false);
    if (!now) return;
    const timer = setTimeout(() => set(true), REPORTED_MS);
    return () => clearTimeout(timer);
  }, [now]);
  return settled && now;
}

/** The reason, the estimate, and the steps that the job has to take. */
export function Waiting({ job }: { job: Job }) {
  const [first, setFirst] = useState<number | null>(null);
  const [last, setLast] = useState(-1);
  const { waiting } = job;
  const isRunning = job.state === "running" && !waiting;
  const isSettled = useSettled(isRunning);
  // Until a worker has reported, the step before it is the last that is known.
  const at = waiting ? STEPS.indexOf(waiting.reason) : isRunning ? (isSettled || last < 0 ? STEPS.length - 1 : last) : -1;
  useEffect(() => { setFirst(null); setLast(-1); }, [job.id]);
  useEffect(() => { if (waiting) setLast(at); }, [at]);
  // A job that was first seen as its model loads did not wait for an instance.
  useEffect(() => { if (waiting && at >= 0) setFirst((before) => Math.min(before ?? STEPS.length, at < 2 ? 0 : at)); }, [at]);
  const steps = first !== null && at >= 0 ? STEPS.slice(first) : [];
  return (
    <>
      {waiting && <p class="waiting" role="status"><b>Waiting:</b> {waitingText(waiting)} {waiting.phase_s != null && <span class="quiet">for {age(waiting.phase_s * 1000)}</span>}</p>}
      {steps.length > 0 && (
        <ol class="steps" aria-label="Steps until the job runs">
          {steps.map((step) => {
            const n = STEPS.indexOf(step);
            return <li key={step} class={n < at ? "good" : n === at ? "busy" : "quiet"} aria-current={n === at ? "step" : undefined}><span aria-hidden="true">{n < at ? "✓" : n === at ? "▶" : "○"}</span> {step}</li>;
          })}
        </ol>
      )}
    </>
  );
}
