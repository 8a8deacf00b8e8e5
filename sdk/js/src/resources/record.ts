// A job, as the API returns it. Members have the names of the API.

import type { JobDependency, JobRecord, JobState, Priority } from "../generated/jobs.js";
import { emptyJob } from "../generated/values.js";

/** Whether the job has ended. An ended job never changes its state. */
export function isTerminal(state: JobState): boolean {
  return state === "succeeded" || state === "failed" || state === "cancelled" || state === "expired";
}

/** The options of a bulk submit that determine the record of a job. */
export interface KnownOptions {
  priority?: Priority | undefined;
  runAfter?: string | null;
  dependsOn?: JobDependency[];
}

/** The record of a job from a bulk submit, which returns only ids. It is incomplete until `refresh`. */
export function acceptedRecord(id: string, endpoint: string, known: KnownOptions = {}): JobRecord {
  const { priority = "standard", runAfter = null, dependsOn = [] } = known;
  return {
    ...emptyJob(),
    id,
    endpoint,
    state: runAfter !== null ? "scheduled" : dependsOn.length > 0 ? "blocked" : "queued",
    priority,
    run_after: runAfter,
    depends_on: dependsOn,
  };
}
