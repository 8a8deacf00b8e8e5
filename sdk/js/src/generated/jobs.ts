// Generated from api/openapi.json by `make models`; do not edit.
// The jobs of the API.

import type { TokenUsage } from "./costs.js";

/** The outcome of an attempt, or that it is still running. */
export type AttemptState = "running" | "succeeded" | "failed" | "released" | "lost" | "cancelled" | "expired";

/** The end of a job that another one waits for: `success`, or `completion` if any end will do. */
export type DependencyOn = "success" | "completion";

/** When a step decides: before or after the endpoint runs the job. */
export type StepStage = "before" | "after";

/** The state of a job. */
export type JobState = "scheduled" | "blocked" | "queued" | "running" | "succeeded" | "failed" | "cancelled" | "expired";

/** The decision of a step. */
export type StepDecision = "allow" | "reject" | "rewrite";

/** The reasons why a job waits. */
export type WaitingReason = "unschedulable" | "busy" | "budget" | "limit" | "concurrency_key" | "dependency" | "behind_others" | "renting" | "booting" | "environment" | "loading" | "soon";

/** The priority of a job. */
export type Priority = "interactive" | "standard" | "batch";

/** An event of a job that a webhook can receive. */
export type JobHookEvent = "job.started" | "job.output" | "job.progress" | "job.completed";

/** Where the milliseconds of an attempt went. */
export interface Timing {
  /** From ready to leased. */
  queued_ms: number;
  /** Building or fetching the environment. */
  env_ms: number;
  /** Fetching the weights, as far as it took longer than the environment. */
  weights_ms: number;
  /** Starting the runner. */
  boot_ms: number;
  /** Loading the model. */
  load_ms: number;
  /** Running its warm-up inputs. */
  warmup_ms: number;
  /** The handler itself. */
  run_ms: number;
  /** Uploading result and files to S3. */
  upload_ms: number;
  /**
   * How many jobs shared the call of the handler, including this one, as reported by the worker; at most what the
   * version allows. Absent if it takes one at a time.
   */
  batch_size?: number;
  /** Fetching the input's files; absent if there are none. */
  inputs_ms?: number;
  /** Waiting in the worker for a slot, or for the shared call of the handler; absent if it did not wait. */
  worker_wait_ms?: number;
}

/** The progress of a running job. */
export interface Progress {
  /** 0 to 1. */
  fraction: number;
  /** What the job is doing. */
  message: string;
}

/** Why an attempt or a job failed. */
export interface Failure {
  /** The kind of failure; stable. */
  code: string;
  /** The exception's class, the signal's name, or empty. */
  class: string;
  /** One sentence. */
  message: string;
  /** The last lines written to stderr. */
  stderr: string | null;
  /** The traceback, when there was an exception. */
  traceback: string | null;
}

/** One attempt at a job. */
export interface Attempt {
  /** 1, 2, 3, ... */
  attempt: number;
  /** The worker that ran it. */
  worker_id: string;
  /** The outcome of the attempt, or that it is still running. */
  state: AttemptState;
  /** When it started, RFC 3339. */
  started_at: string;
  /** When it ended, RFC 3339; null until then. */
  ended_at: string | null;
  /** Where its time went. */
  timing: Timing;
  /** Why it failed. */
  error: Failure | null;
  /** The cost; null if the worker's price is not known. */
  cost_usd_micros: number | null;
}

/** A job that this job waits for. */
export interface JobDependency {
  /** The job's id. */
  job: string;
  /** `success`, or `completion` if any end will do. */
  on: DependencyOn;
}

/** An endpoint that decides whether a job may run or its output may be returned. */
export interface JobStep {
  /** The step's name. */
  name: string;
  /** `before` or `after`. */
  stage: StepStage;
  /** The endpoint that decides. */
  endpoint: string;
  /** The job that runs the step; null before its turn. */
  job_id: string | null;
  /** The state of that job, as last seen. */
  state: JobState | null;
  /** `allow`, `reject` or `rewrite`; null until it has decided. */
  decision: StepDecision | null;
  /** Why it rejected. */
  reason: string | null;
  /** The score of each label, 0 to 1. */
  scores: Record<string, number>;
  /** Where its time went. */
  timing: Timing | null;
  /** The cost; null if the worker's price is not known. */
  cost_usd_micros: number | null;
}

/** The cost of a job. Its steps are separate jobs. */
export interface JobCost {
  /** The cost of its runs, at the instances' prices. */
  run_usd_micros: number;
  /** The cost of loading its model. */
  load_usd_micros: number;
  /** Its part of the other costs of the instances: boot, idle, stopped, disk, traffic. */
  overhead_usd_micros: number;
  /** The sum of these costs. */
  total_usd_micros: number;
  /** Whether a provider has not yet billed the final amount. */
  is_estimate: boolean;
}

/** Why a job has not started. */
export interface Waiting {
  /** The reasons why a job waits. */
  reason: WaitingReason;
  /** The reason in words. */
  message: string;
  /** The number of jobs that are expected to start before it; absent if there are none, and in lists. */
  ahead?: number;
  /** Seconds until the job is expected to start; absent if unknown, or if a step takes longer than usual. */
  estimate_s?: number;
  /** Seconds since this phase began; absent if unknown, and in lists. */
  phase_s?: number;
}

/** A job. */
export interface JobRecord {
  /** 32 lower-case hex digits; ids sort by creation time. */
  id: string;
  /** The endpoint it runs on. */
  endpoint: string;
  /** The endpoint's version, fixed at submit. Null until the first `refresh` after `submitMany`. */
  version: number | null;
  /** The state of the job. */
  state: JobState;
  /** The job's priority. */
  priority: Priority;
  /** When it was submitted, RFC 3339. Null until the first `refresh` after `submitMany`. */
  created_at: string | null;
  /**
   * The input as submitted; an input over 64 KiB is `{"$file": "<id>", "as": "input"}`, and GET /v1/files/<id> returns
   * its address.
   */
  input: unknown;
  /** Your own labels. */
  metadata: Record<string, string>;
  /** The jobs that it waits for or has waited for. */
  depends_on: JobDependency[];
  /** The events to send. */
  webhook_events: JobHookEvent[];
  /** The steps before and after, so far. */
  steps: JobStep[];
  /** How often it ran out of GPU or host memory. This does not count towards `max_attempts`. */
  oom_events: number;
  /** Every attempt so far, oldest first. */
  attempts: Attempt[];
  /** The batch that it is a line of. */
  batch_id: string | null;
  /** The key that limits how many of your jobs run concurrently. */
  concurrency_key: string | null;
  /** The cost including its part of boot, idle and disk, for an ended job; only when a single job is requested. */
  cost?: JobCost;
  /** The cost so far, including its steps; null if the workers' prices are not known. */
  cost_usd_micros: number | null;
  /** The line's `custom_id`. */
  custom_id: string | null;
  /** When the job expires if it has not ended, RFC 3339. */
  deadline_at: string | null;
  /** When it ended, RFC 3339; null until then. */
  ended_at: string | null;
  /** Why it failed. */
  error: Failure | null;
  /** The line of that batch's input, from 1. */
  line: number | null;
  /** The latest progress of the running job. */
  progress: Progress | null;
  /** The result, if it is small; otherwise see `result_url`. */
  result: unknown;
  /** The address of the result, once succeeded. Requires the same bearer token. */
  result_url: string | null;
  /** The job that this job retries. */
  retry_of: string | null;
  /** When a scheduled job becomes ready, RFC 3339. */
  run_after: string | null;
  /** The schedule that created it. */
  schedule_id: string | null;
  /** The job that it is a step of. */
  step_of: string | null;
  /** The last attempt's timing, with `queued_ms` counted from submit to that lease. */
  timing: Timing | null;
  /** The tokens that its result reports; absent without tokens. */
  usage?: TokenUsage;
  /**
   * Why a queued or blocked job has not started, or why the handler of a running job has not; only when a single job is
   * requested.
   */
  waiting?: Waiting;
  /** The URL that receives its events. */
  webhook: string | null;
}

/** A retried job. */
export interface RetriedJob {
  /** The job that had ended. */
  id: string;
  /** The job that retries it. */
  new_id: string;
}
