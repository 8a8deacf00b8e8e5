// Limits: how much a tenant may have open, running and started, and what part is its when there is not enough for all.

import type { Http } from "../internal/http.js";
import type { CallOptions } from "../internal/options.js";

/** Null is none. Members are named as the API names them. */
export interface Limits {
  max_running: number | null;
  max_open: number | null;
  starts_per_minute: number | null;
  /** Of a day, UTC. */
  budget_usd_micros_per_day: number | null;
  at_budget: "drain" | "stop" | null;
}

export interface TenantLimits extends Limits {
  /** Its part beside others': 2 gets twice what 1 gets. */
  weight: number;
  /** To each replica of the API. */
  requests_per_minute?: number | null;
  /** Of uploaded files, packages and weights. */
  max_storage_bytes?: number | null;
  /** Of the queue's memory that its jobs take, ended ones too. */
  max_memory_bytes?: number | null;
}

/** The caller's own. */
export interface OwnLimits {
  tenant: string;
  limits: TenantLimits;
  endpoints: Record<string, Limits>;
  /** `storage_bytes` where there is a limit to them; `memory_bytes` of the queue's memory. */
  usage: { open: number; running: number; storage_bytes?: number; memory_bytes?: number };
}

/** What is not given, or null, is none. */
export interface LimitsOptions {
  maxRunning?: number | null;
  maxOpen?: number | null;
  startsPerMinute?: number | null;
  /** Of a day, UTC, micro-dollars (millionths of a dollar); then nothing more starts before midnight. */
  budgetUsdMicrosPerDay?: number | null;
  /** Whether what runs then ends (`drain`, the default) or goes back to the front of its queue. */
  atBudget?: "drain" | "stop" | null;
}

export interface TenantLimitsOptions extends LimitsOptions {
  /** 0.01 to 1000. Default 1. */
  weight?: number;
  /** Requests to each replica of the API; beyond is `RateLimited`. */
  requestsPerMinute?: number | null;
  /** Uploaded files, packages and weights; beyond is `Conflict`, with the code `storage_exceeded`. */
  maxStorageBytes?: number | null;
  /** What its jobs take of the queue's memory, ended ones too; beyond is `QuotaExceeded`. */
  maxMemoryBytes?: number | null;
}

/** `client.limits`. Others' limits are for operators: scopes `limits:read` and `limits:write`. */
export class LimitsResource {
  readonly #http: Http;

  /** @internal */
  constructor(http: Http) {
    this.#http = http;
  }

  /** The caller's own limits, and how much of them is used. */
  own({ signal }: CallOptions = {}): Promise<OwnLimits> {
    return this.#http.get("/v1/limits", { signal });
  }

  retrieve(tenant: string, { signal }: CallOptions = {}): Promise<TenantLimits> {
    return this.#http.get(path(tenant), { signal });
  }

  /** Replaces all of them. */
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

  retrieveForEndpoint(tenant: string, endpoint: string, { signal }: CallOptions = {}): Promise<Limits> {
    return this.#http.get(path(tenant, endpoint), { signal });
  }

  /** Replaces all that hold for the tenant on this endpoint, beside those that hold for it anywhere. */
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
