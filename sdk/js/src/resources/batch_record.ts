// A batch and its lines, as the API returns them. Members have the names of the API.

import type { Priority } from "./record.js";

export type BatchState = "validating" | "running" | "finalizing" | "completed" | "failed" | "cancelled" | "expired";

/** The number of lines by state: `total - invalid = accepted = succeeded + failed + cancelled + expired + open`. */
export interface BatchCounts {
  /** The number of lines read so far. It grows while the batch is `validating`. */
  total: number;
  invalid: number;
  accepted: number;
  succeeded: number;
  failed: number;
  cancelled: number;
  expired: number;
  open: number;
  running: number;
}

/** The estimated cost of the lines in micro-dollars, based on jobs of the last seven days. */
export interface BatchEstimate {
  usd_micros: number;
  low_usd_micros: number;
  high_usd_micros: number;
  per_line_usd_micros: number;
  basis_jobs: number;
}

/** A batch. Times are RFC 3339 in UTC. */
export interface Batch {
  id: string;
  endpoint: string;
  /** The version of the endpoint that the lines run on; null: the one that was current during validation. */
  version: number | null;
  state: BatchState;
  priority: Priority;
  on_invalid: "fail" | "skip";
  format: string;
  metadata: Record<string, string>;
  counts: BatchCounts;
  created_at: string;
  started_at: string | null;
  ended_at: string | null;
  deadline_at: string | null;
  eta_at: string | null;
  rate_per_s: number | null;
  budget_usd_micros: number | null;
  at_budget: "drain" | "stop" | null;
  /** The cost so far of running and loading, in micro-dollars. */
  spent_usd_micros: number;
  budget_state: "within" | "warned" | "reached" | null;
  /** The estimate made when the batch started. */
  estimate: BatchEstimate | null;
  estimate_unknown: "no_jobs" | "no_price" | "mixed" | null;
  /** By how many percent the lines that ran cost more, or less, than estimated. Set when the batch has ended. */
  estimate_error_pct: number | null;
  /** Why the batch stopped early; null while it runs and if it ran to its end. */
  stop_reason: "cancelled" | "expired" | "budget" | null;
  /** The first 20 invalid lines. Line numbers start at 1. */
  errors: { line: number; message: string }[];
  /** The id of the batch whose failed lines this batch retries. */
  retry_of: string | null;
  results_url: string | null;
  errors_url: string | null;
  webhook: string | null;
}

/** A line to run, in the format of this API or of OpenAI's batches (`method`, `url`, `body`). */
export type BatchLine =
  | { custom_id?: string; input: unknown; endpoint?: string; metadata?: Record<string, string> }
  | { custom_id: string; method: "POST"; url: string; body: unknown };

/** A line with its result. A line with a large result has `result_url` instead; `client.result(job_id)` fetches it. */
export interface BatchResult<T = unknown> {
  line: number;
  custom_id: string | null;
  job_id: string;
  result?: T;
  result_url?: string;
  /** The run time in milliseconds, without loading. */
  run_ms: number | null;
}

/** A line that has no result. */
export interface BatchError {
  line: number;
  custom_id: string | null;
  /** Null if the line did not become a job. */
  job_id: string | null;
  state: "failed" | "expired" | "cancelled" | "invalid";
  error: { code: string; message: string };
  /** The run time of the last attempt in milliseconds; absent if there was none. */
  run_ms?: number;
}
