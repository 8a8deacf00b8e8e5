// Generated from api/openapi.json by `make models`; do not edit.
// The deletion of the API.

import type { EndpointRequirements } from "./endpoints.js";

/** A kind of dependents. */
export type DependentKind = "job" | "step" | "schedule" | "batch" | "endpoint" | "version" | "traffic" | "rollback";

/** What depends on a resource, of one kind. */
export interface Dependent {
  /** The kind. */
  kind: DependentKind;
  /** How many there are. */
  count: number;
  /** Up to five of them: ids, or names. */
  examples: string[];
}

/** The outcome of a deletion. */
export interface Deletion {
  /** Whether it was deleted; false after a dry run. */
  deleted: boolean;
  /** What depended on it. Open jobs and batches were cancelled and schedules paused. */
  dependents: Dependent[];
  /** The size of the stored files that were deleted with it, or that would be. */
  freed_bytes: number;
}

/** A requirement set: all that endpoints require of workers besides memory. */
export interface RequirementSet {
  /** The id. It follows from the requirements: the same set always has the same id. */
  id: string;
  /** An endpoint's requirements for workers besides memory. Absent members require nothing. */
  demands: EndpointRequirements;
  /** The versions with these requirements, as `name@version`. */
  versions: string[];
}
