// Generated from api/openapi.json by `make models`; do not edit.
// The limits of the API.

import type { AtBudget, BudgetState } from "./batches.js";

/** A daily budget and its use. */
export interface BudgetUsage {
  limit_usd_micros: number;
  /** The cost of attempts that ended today, and of running ones as of a few seconds ago. */
  spent_today_usd_micros: number;
  /** The state of a budget: `warned` from 80 %. */
  state: BudgetState;
  /** When jobs start again, RFC 3339; null while they do, and if the budget is 0. */
  resumes_at: string | null;
}

/** The current usage. */
export interface Usage {
  /** Jobs that have not ended. */
  open: number;
  /** Jobs that are running. */
  running: number;
  /** Bytes of the queue's memory in use by jobs, including ended ones; tenants only. */
  memory_bytes?: number;
  /** Stored bytes, as of a minute ago; only for a tenant with a storage limit. */
  storage_bytes?: number;
}

/** Limits, with the state of the budget. */
export interface Limits {
  /** What happens when the budget is reached. */
  at_budget: AtBudget | null;
  /** The daily budget, if set. */
  budget?: BudgetUsage;
  /** The daily budget (UTC), micro-dollars. */
  budget_usd_micros_per_day: number | null;
  /** Jobs that have not ended. */
  max_open: number | null;
  /** Jobs that run concurrently. */
  max_running: number | null;
  /** Starts per minute. */
  starts_per_minute: number | null;
}

/** Limits, with the state of the budget. */
export interface TenantLimits {
  /** What happens when the budget is reached. */
  at_budget: AtBudget | null;
  /** The daily budget, if set. */
  budget?: BudgetUsage;
  /** The daily budget (UTC), micro-dollars. */
  budget_usd_micros_per_day: number | null;
  /** Bytes of the queue's memory; tenants only. */
  max_memory_bytes: number | null;
  /** Jobs that have not ended. */
  max_open: number | null;
  /** Jobs that run concurrently. */
  max_running: number | null;
  /** Bytes of files, packages and weights; tenants only. */
  max_storage_bytes: number | null;
  /** Requests per minute; tenants only. */
  requests_per_minute: number | null;
  /** Starts per minute. */
  starts_per_minute: number | null;
  /** The share of the machines relative to other tenants; tenants only. */
  weight: number;
}

/** Limits and their usage. */
export interface EndpointLimits {
  /** Limits. Absent or null: no limit. */
  limits: TenantLimits;
  /** The current usage. */
  usage: Usage;
  /** The daily budget, if set. */
  budget?: BudgetUsage;
}

/** The limits of a tenant and its endpoints. */
export interface OwnLimits {
  tenant: string;
  /** Limits. Absent or null: no limit. */
  limits: TenantLimits;
  /** The current usage. */
  usage: Usage;
  /** Deployed endpoints, by name. */
  endpoints: Record<string, EndpointLimits>;
  /** The daily budget, if set. */
  budget?: BudgetUsage;
}
