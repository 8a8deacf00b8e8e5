// A job as the API shows it. Members are named as the API names them.

export type JobState = "scheduled" | "blocked" | "queued" | "running" | "succeeded" | "failed" | "cancelled" | "expired";
export type Priority = "interactive" | "standard" | "batch";

/** Where the milliseconds went. Zero where a part was not needed: a warm runner has no boot. */
export interface Timing {
  queued_ms: number;
  env_ms: number;
  /** As far as fetching the weights took longer than the environment. */
  weights_ms: number;
  boot_ms: number;
  load_ms: number;
  warmup_ms: number;
  /** The wait in the worker, for a slot or for the call of the handler that it shares; absent where there was none. */
  worker_wait_ms?: number;
  /** Fetching the files of the input; absent where there are none. */
  inputs_ms?: number;
  /** How many jobs shared the call of the handler; absent where it takes one at a time. */
  batch_size?: number;
  run_ms: number;
  upload_ms: number;
}

/** The latest progress a handler told; `fraction` is from 0 to 1. */
export interface Progress {
  fraction: number;
  message: string;
}

/** Why an attempt or a job failed. `code` is stable; `class` is the exception's class or the signal's name. */
export interface Failure {
  code: string;
  class: string;
  message: string;
  traceback: string | null;
  stderr: string | null;
}

/** One try at a job. */
export interface Attempt {
  attempt: number;
  worker_id: string;
  state: "running" | "succeeded" | "failed" | "released" | "lost" | "cancelled" | "expired";
  started_at: string;
  ended_at: string | null;
  timing: Timing;
  error: Failure | null;
}

/** Another job that this one waits for: until it `succeeded`, or until it has ended at all. */
export interface JobDependency {
  job: string;
  on: "success" | "completion";
}

/** One look at a job's input or output by an endpoint that may refuse or rewrite it. */
export interface JobStep {
  name: string;
  stage: "before" | "after";
  endpoint: string;
  job_id: string | null;
  state: JobState;
  /** Null until it has decided. */
  decision: "allow" | "reject" | "rewrite" | null;
  reason: string | null;
  scores: Record<string, number> | null;
  timing: Timing | null;
  cost_usd_micros: number | null;
}

/** What of a job a webhook tells. */
export type JobHookEvent = "job.started" | "job.output" | "job.progress" | "job.completed";

/** The whole of it. Times are RFC 3339 in UTC. */
export interface JobRecord {
  id: string;
  endpoint: string;
  /** Null until the first `refresh` of a job from `submitMany`. */
  version: number | null;
  state: JobState;
  priority: Priority;
  created_at: string | null;
  run_after: string | null;
  /** It must have ended by then, or it is `expired`. */
  deadline_at: string | null;
  ended_at: string | null;
  input: unknown;
  metadata: Record<string, string>;
  progress: Progress | null;
  attempts: Attempt[];
  /** The last attempt's; `queued_ms` counts from submit to its lease. */
  timing: Timing | null;
  /** Null when it is too large to ride here, too; `job.result()` knows. */
  result: unknown;
  result_url: string | null;
  error: Failure | null;
  /** The batch that it is of, with its line (from 1) and that line's own id. */
  batch_id: string | null;
  line: number | null;
  custom_id: string | null;
  /** The job that it does again. */
  retry_of: string | null;
  schedule_id: string | null;
  depends_on: JobDependency[];
  concurrency_key: string | null;
  webhook: string | null;
  webhook_events: JobHookEvent[];
  steps: JobStep[];
  /** Micro-dollars; null when it is not known. */
  cost_usd_micros: number | null;
  /** How often it ran out of a card's memory or a machine's. It costs none of its attempts. */
  oom_events: number;
}

/** Whether it has ended: nothing changes it again. */
export function isTerminal(state: JobState): boolean {
  return state === "succeeded" || state === "failed" || state === "cancelled" || state === "expired";
}

/** What the caller of a bulk submit said of a job. */
export interface Told {
  priority?: Priority | undefined;
  runAfter?: string | null;
  dependsOn?: JobDependency[];
}

/** What is known of a job from a bulk submit, which answers ids alone. */
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
