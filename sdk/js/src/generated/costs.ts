// Generated from api/openapi.json by `make models`; do not edit.
// The costs of the API.

/** What costs are grouped by. */
export type CostsBy = "endpoint" | "tenant" | "batch" | "machine" | "day" | "job";

/** What the same work would have cost at a service. */
export interface HostedCost {
  service: string;
  usd_micros: number;
  /** The cost here of the work for which the list has a price. */
  ours_usd_micros: number;
}

/** What the same work would have cost elsewhere. */
export interface Savings {
  /** The same instances for the same time without interruptible prices. */
  on_demand_usd_micros: number;
  /** The cost of running alone at hosted services, by the price list of this installation. */
  hosted: HostedCost[];
}

/** Tokens of language models, as the results of jobs report them. */
export interface TokenUsage {
  /** Tokens of the prompts, including the cached ones. */
  prompt_tokens: number;
  /** Tokens of the prompts that the engine had in its cache. */
  cached_tokens: number;
  /** Tokens that the model wrote. */
  completion_tokens: number;
}

/** The cost of a row and its parts. The parts add up to the total. */
export interface CostRow {
  /** The row's display name. */
  name: string;
  /** Instances while jobs ran. */
  run_usd_micros: number;
  /** Instances while models were loaded for jobs. */
  load_usd_micros: number;
  /** Everything except running and loading. */
  overhead_usd_micros: number;
  total_usd_micros: number;
  /** Ended attempts. */
  jobs: number;
  /** Total run time, seconds; a call shared by several jobs counts in equal parts. */
  run_s: number;
  /** Whether a provider has not yet billed the final amount. */
  is_estimate: boolean;
  batch_id?: string;
  /** Instances while they started; absent by job. */
  boot_usd_micros?: number;
  /** The UTC day, e.g. 2026-11-22. */
  day?: string;
  /** Disks of other instances; absent by job. */
  disk_usd_micros?: number;
  /** `*`: several endpoints, of which there were too many on a day to list them separately. */
  endpoint?: string;
  /** Instances while they were idle; absent by job. */
  idle_usd_micros?: number;
  job_id?: string;
  machine?: string;
  /** Null without jobs. */
  per_1000_jobs_usd_micros?: number;
  /** Null without jobs. */
  per_job_usd_micros?: number;
  /** Disks of stopped instances; absent by job. */
  stopped_usd_micros?: number;
  tenant?: string;
  /** Traffic in both directions; absent by job. */
  traffic_usd_micros?: number;
  /** The tokens of the jobs that ended with a result; absent without tokens. */
  usage?: TokenUsage;
  /**
   * The price of a million prompt and completion tokens: the cost of the endpoints with tokens, on the days on which
   * they have some, divided by the tokens. Null without tokens.
   */
  usd_micros_per_million_tokens?: number;
}

/** The costs of a range of days and their parts. */
export interface Costs {
  /** What costs are grouped by. */
  by: CostsBy;
  /** The first day, UTC. */
  from: string;
  /** The last day. */
  to: string;
  /** The most expensive row first; days and jobs by time. */
  rows: CostRow[];
  /** Rows beyond the limit; the total includes them. */
  left_off: number;
  /** The total of all rows. With `by=job`, the total of all jobs of those days, listed or not. */
  total: CostRow;
  /** The share of the total spent on idle instances, 0 to 1. */
  idle_share: number;
  /** What the same work would have cost elsewhere. */
  savings: Savings;
}
