// Generated from api/openapi.json by `make models`; do not edit.
// The batches of the API.

import type { TokenUsage } from "./costs.js";
import type { Priority } from "./jobs.js";

/** The state of a batch. */
export type BatchState = "validating" | "running" | "finalizing" | "completed" | "failed" | "cancelled" | "expired";

/** What happens with invalid lines: none of the batch runs, or the others do. */
export type OnInvalid = "fail" | "skip";

/** The format of the lines of a batch; `auto` is detected per line. */
export type LineFormat = "auto" | "stokehold" | "openai";

/** What happens when a budget is reached. */
export type AtBudget = "drain" | "stop";

/** The state of a budget: `warned` from 80 %. */
export type BudgetState = "within" | "warned" | "reached";

/**
 * Why no estimate is possible: no job of the endpoint ended in the last seven days, its workers have no price, or the
 * lines are for several endpoints.
 */
export type EstimateUnknown = "no_jobs" | "no_price" | "mixed";

/** Why a batch stopped early. */
export type BatchStopReason = "cancelled" | "expired" | "budget";

/**
 * The number of lines in each state. At any moment: `accepted` = `total` - `invalid` = `succeeded` + `failed` +
 * `cancelled` + `expired` + `open`.
 */
export interface BatchCounts {
  /** Lines read so far; grows while the batch validates. */
  total: number;
  /** Invalid lines. */
  invalid: number;
  /** Valid lines. */
  accepted: number;
  /** Lines whose job succeeded. */
  succeeded: number;
  /** Lines whose job failed. */
  failed: number;
  /** Lines whose job was cancelled. */
  cancelled: number;
  /** Lines whose job expired. */
  expired: number;
  /** Valid lines that have not ended. */
  open: number;
  /** Open lines that are running now. */
  running: number;
}

/** An invalid line. */
export interface InvalidLine {
  /** From 1. */
  line: number;
  /** What is wrong with the line. */
  message: string;
}

/** The estimated cost of lines, based on running and loading of jobs in the last seven days. */
export interface BatchEstimate {
  /** The cost of all lines, micro-dollars. */
  usd_micros: number;
  /** The low end of the likely range. */
  low_usd_micros: number;
  /** The high end of the likely range. */
  high_usd_micros: number;
  /** The average cost of one line. */
  per_line_usd_micros: number;
  /** The number of jobs behind the estimate; below 50, the range is half the estimate to each side. */
  basis_jobs: number;
}

/** A batch. */
export interface Batch {
  /** `batch_` and 32 lower-case hex digits; ids sort by creation time. */
  id: string;
  /** The state of the batch. */
  state: BatchState;
  /** The priority of its jobs. */
  priority: Priority;
  /** What happens with invalid lines. */
  on_invalid: OnInvalid;
  /** The format of its lines. */
  format: LineFormat;
  /** The caller's own labels. */
  metadata: Record<string, string>;
  /** The number of lines in each state. */
  counts: BatchCounts;
  /** When it was created, RFC 3339. */
  created_at: string;
  /** The cost of running and loading of all ended attempts so far, micro-dollars. */
  spent_usd_micros: number;
  /** The first 20 invalid lines. */
  errors: InvalidLine[];
  /** The lines that have succeeded so far. Requires the same bearer token. */
  results_url: string;
  /** The lines that have ended without success so far. Requires the same bearer token. */
  errors_url: string;
  /** What happens when the budget is reached. */
  at_budget: AtBudget | null;
  /** The state of the budget; null without a budget. */
  budget_state: BudgetState | null;
  /** The budget of all lines together, micro-dollars. */
  budget_usd_micros: number | null;
  /** When lines that have not ended expire, RFC 3339. */
  deadline_at: string | null;
  /** When it ended, RFC 3339; null until then. */
  ended_at: string | null;
  /** The endpoint of lines that name none. */
  endpoint: string;
  /** The estimated cost at the start; null before the start and if no estimate was possible. */
  estimate: BatchEstimate | null;
  /** By how many percent the cost of the lines that ran differs from the estimate, once the batch has ended. */
  estimate_error_pct: number | null;
  /** Why there is no estimate. */
  estimate_unknown: EstimateUnknown | null;
  /** When the batch is expected to end at its current rate, RFC 3339; null if not known. */
  eta_at: string | null;
  /** Lines that ended per second over the last two minutes; null if not known. */
  rate_per_s: number | null;
  /** The batch whose failed lines this batch retries. */
  retry_of: string | null;
  /** When the first line could start, RFC 3339. */
  started_at: string | null;
  /** Why the batch stopped early: `cancelled`, `expired` or `budget`. */
  stop_reason: BatchStopReason | null;
  /** The tokens of all ended lines; absent without tokens. */
  usage?: TokenUsage;
  /** The version of that endpoint; null: the version that was current while the batch validated. */
  version: number | null;
  /** The URL that receives an event when the batch ends. */
  webhook: string | null;
}
