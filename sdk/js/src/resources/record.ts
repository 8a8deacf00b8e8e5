// A job as the API shows it. Members are named as the API names them.

export type JobState = "scheduled" | "blocked" | "queued" | "running" | "succeeded" | "failed" | "cancelled" | "expired";
export type Priority = "interactive" | "standard" | "batch";

/** Where the milliseconds went. Zero where a part was not needed: a warm runner has no boot. */
export interface Timing {
  queued_ms: number;
  env_ms: number;
  boot_ms: number;
  load_ms: number;
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
}

/** Whether it has ended: nothing changes it again. */
export function isTerminal(state: JobState): boolean {
  return state === "succeeded" || state === "failed" || state === "cancelled" || state === "expired";
}

/** What is known of a job from a bulk submit, which answers ids alone. */
export function acceptedRecord(id: string, endpoint: string, priority: Priority, runAfter: string | null): JobRecord {
  return {
    id,
    endpoint,
    version: null,
    state: runAfter === null ? "queued" : "scheduled",
    priority,
    created_at: null,
    run_after: runAfter,
    ended_at: null,
    input: null,
    metadata: {},
    progress: null,
    attempts: [],
    timing: null,
    result: null,
    result_url: null,
    error: null,
  };
}
