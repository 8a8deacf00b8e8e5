// Generated from api/openapi.json by `make models`; do not edit.
// The deletion of the API.

import type { EndpointRequirements } from "./endpoints.js";

/** Things of one kind that depend on what is deleted. */
export interface Dependent {
  /** The kind, e.g. `jobs` or `schedules`. */
  kind: string;
  /** How many there are. */
  count: number;
  /** The ids or names of some. */
  examples: string[];
}

/** What was deleted, or would be. */
export interface Deletion {
  /** Whether it was deleted; false for a dry run. */
  deleted: boolean;
  /** What depends on it. */
  dependents: Dependent[];
  /** The bytes that are freed in the object store. */
  freed_bytes: number;
}

/** Requirements for workers that endpoints share. */
export interface RequirementSet {
  /** The id. */
  id: number;
  /** The requirements. */
  requirements: EndpointRequirements;
}
