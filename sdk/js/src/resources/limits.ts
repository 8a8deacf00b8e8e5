// Limits of a tenant: jobs, requests, storage, memory and budget, and its share of the workers.

import type { Limits, OwnLimits, TenantLimits } from "../generated/limits.js";
import type { LimitsOptions, TenantLimitsOptions } from "../generated/options.js";
import { LIMITS_OPTIONS, TENANT_LIMITS_OPTIONS } from "../generated/values.js";
import type { Http } from "../internal/http.js";
import { named, type CallOptions } from "../internal/options.js";

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
    return this.#http.putJson(path(tenant), JSON.stringify(named(TENANT_LIMITS_OPTIONS, limits)), { signal });
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
    return this.#http.putJson(path(tenant, endpoint), JSON.stringify(named(LIMITS_OPTIONS, limits)), { signal });
  }
}

function path(tenant: string, endpoint?: string): string {
  const all = `/v1/limits/${encodeURIComponent(tenant)}`;
  return endpoint === undefined ? all : `${all}/endpoints/${encodeURIComponent(endpoint)}`;
}
