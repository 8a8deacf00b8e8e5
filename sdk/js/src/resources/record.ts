// A job, as the API returns it. Members have the names of the API.

export type JobState = "scheduled" | "blocked" | "queued" | "running" | "succeeded" | "failed" | "cancelled" | "expired";
export type Priority = "interactive" | "standard" | "batch";

/**
 * The duration of each phase of an attempt, in milliseconds.
 *
 * A phase that was not needed is 0, e.g. `boot_ms` on a warm runner.
 */
export interface Timing {
  queued_ms: number;
  env_ms: number;
  /** How much longer the weights took to fetch than the environment took to set up. */
  weights_ms: number;
  boot_ms: number;
  load_ms: number;
  warmup_ms: number;
  /** The wait in the worker: for a slot, or for the call of the handler that several jobs share. Absent if none. */
  worker_wait_ms?: number;
  /** The time to fetch the files of the input; absent if there are none. */
  inputs_ms?: number;
  /** The number of jobs that shared the call of the handler; absent if a call takes one job. */
  batch_size?: number;
  run_ms: number;
  upload_ms: number;
}

/** The latest progress that the handler reported. `fraction` is from 0 to 1. */
export interface Progress {
  fraction: number;
  message: string;
}

/** Why an attempt or a job failed. `code` is stable; `class` is the class of the exception or a signal name. */
export interface Failure {
  code: string;
  class: string;
  message: string;
  traceback: string | null;
  stderr: string | null;
}

/** An attempt at a job. */
export interface Attempt {
  attempt: number;
  worker_id: string;
  state: "running" | "succeeded" | "failed" | "released" | "lost" | "cancelled" | "expired";
  started_at: string;
  ended_at: string | null;
  timing: Timing;
  error: Failure | null;
}

/** A job that another job depends on: it must succeed, or with `completion` only end. */
export interface JobDependency {
  job: string;
  on: "success" | "completion";
}

/** The outcome of a step before or after a job. */
export interface JobStep {
  name: string;
  stage: "before" | "after";
  endpoint: string;
  job_id: string | null;
  state: JobState;
  /** Null until the step has decided. */
  decision: "allow" | "reject" | "rewrite" | null;
  reason: string | null;
  scores: Record<string, number> | null;
  timing: Timing | null;
  cost_usd_micros: number | null;
}

/** An event of a job that a webhook can receive. */
export type JobHookEvent = "job.started" | "job.output" | "job.progress" | "job.completed";

/** A job in the state that the API last returned. Times are RFC 3339 in UTC. */
export interface JobRecord {
  id: string;
  endpoint: string;
  /** The version of the endpoint that the job runs on; null until the first `refresh` after `submitMany`. */
  version: number | null;
  state: JobState;
  priority: Priority;
  created_at: string | null;
  run_after: string | null;
  /** The time at which the job expires if it has not ended. */
  deadline_at: string | null;
  ended_at: string | null;
  input: unknown;
  metadata: Record<string, string>;
  progress: Progress | null;
  attempts: Attempt[];
  /** The timing of the last attempt. `queued_ms` is the time from submit to its lease. */
  timing: Timing | null;
  /** The result. Also null if it is too large for the record; `job.result()` fetches it. */
  result: unknown;
  result_url: string | null;
  error: Failure | null;
  /** The id of the batch that the job belongs to. */
  batch_id: string | null;
  /** The number of its line in the batch, from 1. */
  line: number | null;
  /** The `custom_id` of its line in the batch. */
  custom_id: string | null;
  /** The id of the job that this job is a retry of. */
  retry_of: string | null;
  schedule_id: string | null;
  depends_on: JobDependency[];
  concurrency_key: string | null;
  webhook: string | null;
  webhook_events: JobHookEvent[];
  steps: JobStep[];
  /** The cost of the job in micro-dollars (millionths of a US dollar); null if it is not known. */
  cost_usd_micros: number | null;
  /** How often the job ran out of GPU or system memory. This does not count as an attempt. */
  oom_events: number;
}

/** Whether the job has ended. An ended job never changes its state. */
export function isTerminal(state: JobState): boolean {
  return state === "succeeded" || state === "failed" || state === "cancelled" || state === "expired";
}

/** The options of a bulk submit that determine the record of a job. */
export interface Told {
  priority?: Priority | undefined;
  runAfter?: string | null;
  dependsOn?: JobDependency[];
}

/** The record of a job from a bulk submit, which returns only ids. It is incomplete until `refresh`. */
export function acceptedRecord(id: string, endpoint: string, told: Told = {}): JobRecord {
  const { priority = "standard", runAfter = null, dependsOn = [] } = told;
  return {
    id,
    endpoint,
    version: null,
    state: runAfter !== null ? "scheduled" : dependsOn.length > 0 ? "blocked" : "queued",
    priority,
    created_at: null,
    run_after: runAfter,
    deadline_at: null,
    ended_at: null,
    input: null,
    metadata: {},
    progress: null,
    attempts: [],
    timing: null,
    result: null,
    result_url: null,
    error: null,
    batch_id: null,
    line: null,
    custom_id: null,
    retry_of: null,
    schedule_id: null,
    depends_on: dependsOn,
    concurrency_key: null,
    webhook: null,
    webhook_events: [],
    steps: [],
    cost_usd_micros: null,
    oom_events: 0,
  };
}
