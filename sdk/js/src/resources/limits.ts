// Limits of a tenant: jobs, requests, storage, memory and budget, and its share of the workers.

import type { Http } from "../internal/http.js";
import type { CallOptions } from "../internal/options.js";

/** Limits. Null means no limit. Members have the names of the API. */
export interface Limits {
  max_running: number | null;
  max_open: number | null;
  starts_per_minute: number | null;
  /** The budget for a day (UTC). */
  budget_usd_micros_per_day: number | null;
  at_budget: "drain" | "stop" | null;
}

export interface TenantLimits extends Limits {
  /** The share relative to other tenants: a weight of 2 receives twice as much as 1. */
  weight: number;
  /** Requests to each replica of the API. */
  requests_per_minute?: number | null;
  /** Bytes of uploaded files, packages and weights. */
  max_storage_bytes?: number | null;
  /** Bytes of the memory of the queue that the jobs of the tenant use, including ended jobs. */
  max_memory_bytes?: number | null;
}

/** Your limits and how much of them is used. */
export interface OwnLimits {
  tenant: string;
  limits: TenantLimits;
  endpoints: Record<string, Limits>;
  /**
   * The number of `open` and `running` jobs, `storage_bytes` if they are limited, and `memory_bytes`: the memory of the
   * queue that the jobs of the tenant use.
   */
  usage: { open: number; running: number; storage_bytes?: number; memory_bytes?: number };
}

/** Limits to set. A member that is missing or null means no limit. */
export interface LimitsOptions {
  maxRunning?: number | null;
  maxOpen?: number | null;
  startsPerMinute?: number | null;
  /**
   * The budget for a day (UTC) in micro-dollars (millionths of a dollar). When it is used up, no job starts until
   * midnight.
   */
  budgetUsdMicrosPerDay?: number | null;
  /**
   * What to do with running jobs when the budget is used up: `drain` (default) lets them finish; `stop` returns them to
   * the front of their queue.
   */
  atBudget?: "drain" | "stop" | null;
}

export interface TenantLimitsOptions extends LimitsOptions {
  /** The share relative to other tenants, 0.01 to 1,000. Default 1. */
  weight?: number;
  /** Requests to each replica of the API. Further requests throw `RateLimited`. */
  requestsPerMinute?: number | null;
  /** Bytes of uploaded files, packages and weights. Further uploads throw `Conflict` (code `storage_exceeded`). */
  maxStorageBytes?: number | null;
  /** Bytes of the memory of the queue, including ended jobs. Further submits throw `QuotaExceeded`. */
  maxMemoryBytes?: number | null;
}

/** `client.limits`: limits. Those of other tenants require the scopes `limits:read` and `limits:write`. */
export class LimitsResource {
  readonly #http: Http;

  /** @internal */
  constructor(http: Http) {
    this.#http = http;
  }

  /** Returns your limits and how much of them is used. */
  own({ signal }: CallOptions = {}): Promise<OwnLimits> {
    return this.#http.get("/v1/limits", { signal });
  }

  /** Returns the limits of a tenant. */
  retrieve(tenant: string, { signal }: CallOptions = {}): Promise<TenantLimits> {
    return this.#http.get(path(tenant), { signal });
  }

  /** Replaces all limits of a tenant. */
  replace(tenant: string, limits: TenantLimitsOptions, { signal }: CallOptions = {}): Promise<TenantLimits> {
    const body = {
      weight: limits.weight,
      requests_per_minute: limits.requestsPerMinute,
      max_storage_bytes: limits.maxStorageBytes,
      max_memory_bytes: limits.maxMemoryBytes,
      ...shared(limits),
    };
    return this.#http.putJson(path(tenant), JSON.stringify(body), { signal });
  }

  /** Returns the limits of a tenant on an endpoint. */
  retrieveForEndpoint(tenant: string, endpoint: string, { signal }: CallOptions = {}): Promise<Limits> {
    return this.#http.get(path(tenant, endpoint), { signal });
  }

  /** Replaces all limits of a tenant on an endpoint. They apply in addition to those of the tenant. */
  replaceForEndpoint(
    tenant: string,
    endpoint: string,
    limits: LimitsOptions,
    { signal }: CallOptions = {},
  ): Promise<Limits> {
    return this.#http.putJson(path(tenant, endpoint), JSON.stringify(shared(limits)), { signal });
  }
}

function shared(limits: LimitsOptions): object {
  return {
    max_running: limits.maxRunning,
    max_open: limits.maxOpen,
    starts_per_minute: limits.startsPerMinute,
    budget_usd_micros_per_day: limits.budgetUsdMicrosPerDay,
    at_budget: limits.atBudget,
  };
}

function path(tenant: string, endpoint?: string): string {
  const all = `/v1/limits/${encodeURIComponent(tenant)}`;
  return endpoint === undefined ? all : `${all}/endpoints/${encodeURIComponent(endpoint)}`;
}
