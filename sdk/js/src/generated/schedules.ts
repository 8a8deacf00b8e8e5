// Generated from api/openapi.json by `make models`; do not edit.
// The schedules of the API.

/** What happens with ticks that were missed. */
export type Missed = "skip" | "run_once" | "run_all";

/** A schedule. */
export interface Schedule {
  /** `sch_` and 32 hex digits. */
  id: string;
  /** The cron expression. */
  cron: string;
  /** The IANA time zone. */
  time_zone: string;
  /** What happens with missed ticks. */
  missed: Missed;
  /** Seconds after which a tick counts as missed. */
  grace_s: number;
  /** Whether the schedule is paused. */
  paused: boolean;
  /** How many ticks have created a job. */
  ticks: number;
  /** When it was created, RFC 3339. */
  created_at: string;
  /** The job of each tick, as submitted. */
  job: unknown;
  /** The last tick that created a job, RFC 3339. */
  last_at: string | null;
  /**
   * Why the last tick created no job: the `code` that `POST /v1/jobs` would have returned, a colon, and what to change.
   * Null if it created one.
   */
  last_error: string | null;
  /** The job of that tick. */
  last_job_id: string | null;
  /** Your own name for the schedule. */
  name: string | null;
  /** The next tick, RFC 3339; null while paused. */
  next_at: string | null;
}
