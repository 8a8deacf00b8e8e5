// Generated from api/openapi.json by `make models`; do not edit.
// The quarantine of the API.

import type { JobState } from "./jobs.js";

/** A job whose record cannot be read. */
export interface QuarantinedJob {
  id: string;
  /** Since when the job is quarantined, RFC 3339. */
  since: string;
  /** What could not be read. */
  why: string;
  /** The endpoint; null if the record does not name it. */
  endpoint: string | null;
  /** The state before the quarantine; null if the record does not name it. */
  state: JobState | null;
  /** The tenant; null if the record does not name it. */
  tenant: string | null;
}

/** The quarantined jobs, oldest first; at most 1,000 per shard. */
export interface Quarantine {
  jobs: QuarantinedJob[];
  /** The number of quarantined jobs. */
  total: number;
}

/** The outcome of one job. */
export interface QuarantineOutcome {
  id: string;
  /**
   * The new state, e.g. `queued` or `failed`; `deleted`; `unreadable`: the job stays quarantined; or `not_found`: it is
   * not quarantined.
   */
  outcome: string;
  /** Why the job stays quarantined; null if it does not. */
  why: string | null;
}
