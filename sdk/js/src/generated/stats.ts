// Generated from api/openapi.json by `make models`; do not edit.
// The stats of the API.

import type { BatchEstimate, EstimateUnknown } from "./batches.js";

/** The GPU memory that a version was seen to need on one GPU model. */
export interface Need {
  version: number;
  /** The memory, MiB. */
  need_mib: number;
  /**
   * The GPU model, as the driver reports it; absent for the minimum on any GPU, learned when the version ran out of
   * memory on a smaller one.
   */
  gpu?: string;
}

/** The median and the 95th percentile. Runs that did not need a part count as 0. */
export interface Quantiles {
  p50: number;
  p95: number;
}

/** Where the time of successful runs went, milliseconds; within 5 %. */
export interface TimingStats {
  /** The median and the 95th percentile. Runs that did not need a part count as 0. */
  boot_ms: Quantiles | null;
  /** The median and the 95th percentile. Runs that did not need a part count as 0. */
  env_ms: Quantiles | null;
  /** The median and the 95th percentile. Runs that did not need a part count as 0. */
  load_ms: Quantiles | null;
  /** From ready to leased. */
  queue_ms: Quantiles | null;
  /** The median and the 95th percentile. Runs that did not need a part count as 0. */
  run_ms: Quantiles | null;
  /** From ready to ended. */
  total_ms: Quantiles | null;
  /** The median and the 95th percentile. Runs that did not need a part count as 0. */
  upload_ms: Quantiles | null;
  /** The median and the 95th percentile. Runs that did not need a part count as 0. */
  warmup_ms: Quantiles | null;
  /** The median and the 95th percentile. Runs that did not need a part count as 0. */
  weights_ms: Quantiles | null;
}

/** The statistics of a version. Null where there is no data. */
export interface VersionStats {
  version: number;
  /** Attempts that ended by themselves. */
  runs: number;
  /** Attempts that produced a result. */
  succeeded: number;
  failed: number;
  /** Where the time of successful runs went, milliseconds; within 5 %. */
  timing: TimingStats;
  /** Results that were not accepted. */
  task_failed: number | null;
  /** Accepted results, by the feedback on this version since it was deployed. */
  task_succeeded: number | null;
  /** The cost of running and loading per 1,000 runs, at the instances' prices; `GET /v1/costs` has the other costs. */
  usd_micros_per_1000: number | null;
}

/** The estimated cost of the lines. */
export interface LinesEstimate {
  /** The number of lines. */
  lines: number;
  /** Null if no estimate is possible. */
  estimate?: BatchEstimate;
  /** Why no estimate is possible. */
  estimate_unknown?: EstimateUnknown;
}

/**
 * A trace as OTLP/JSON (<https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding>). Ids are hex digits;
 * times are nanoseconds since 1970, as text.
 */
export interface Trace {
  /** One entry, with the job's spans grouped by service. */
  resourceSpans: Record<string, unknown>[];
}
