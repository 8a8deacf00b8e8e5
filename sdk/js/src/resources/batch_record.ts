// A batch and its lines as the API shows them. Members are named as the API names them.

import type { Priority } from "./record.js";

export type BatchState = "validating" | "running" | "finalizing" | "completed" | "failed" | "cancelled" | "expired";

/** At every look `accepted` = `total` - `invalid` = `succeeded` + `failed` + `cancelled` + `expired` + `open`. */
export interface BatchCounts {
  /** Lines seen; grows while it is `validating`. */
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

/** What lines are thought to cost, micro-dollars, by jobs of the last seven days. */
export interface BatchEstimate {
  usd_micros: number;
  low_usd_micros: number;
  high_usd_micros: number;
  per_line_usd_micros: number;
  basis_jobs: number;
}

/** The whole of it. Times are RFC 3339 in UTC. */
export interface Batch {
  id: string;
  endpoint: string;
  /** In which its lines run; null: the one that was current while it validated. */
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
  /** What it has cost so far: running and loading. */
  spent_usd_micros: number;
  budget_state: "within" | "warned" | "reached" | null;
  /** What it was thought to cost when it started. */
  estimate: BatchEstimate | null;
  estimate_unknown: "no_jobs" | "no_price" | "mixed" | null;
  /** By how many percent the lines that ran cost more, or less, once it has ended. */
  estimate_error_pct: number | null;
  /** Why it did not run to its end. */
  stop_reason: "cancelled" | "expired" | "budget" | null;
  /** The first 20 lines that could not be used. Lines count from 1. */
  errors: { line: number; message: string }[];
  /** The batch whose failed lines it does again. */
  retry_of: string | null;
  results_url: string | null;
  errors_url: string | null;
  webhook: string | null;
}

/** A line to run: this API's own, or OpenAI's (`method`, `url`, `body`). */
export type BatchLine =
  | { custom_id?: string; input: unknown; endpoint?: string; metadata?: Record<string, string> }
  | { custom_id: string; method: "POST"; url: string; body: unknown };

/** A line with its result. A large one is left out; `client.result(job_id)` has it. */
export interface BatchResult<T = unknown> {
  line: number;
  custom_id: string | null;
  job_id: string;
  result?: T;
  result_url?: string;
  /** How long it ran, loading not counted. */
  run_ms: number | null;
}

/** A line without one. */
export interface BatchError {
  line: number;
  custom_id: string | null;
  /** Null when it never was a job. */
  job_id: string | null;
  state: "failed" | "expired" | "cancelled" | "invalid";
  error: { code: string; message: string };
  /** How long its last attempt ran, if it did. */
  run_ms?: number;
}
