// Endpoints: deployed models, their versions, and the shares of new jobs.

import type { Endpoint } from "../generated/endpoints.js";
import type { DeployOptions } from "../generated/options.js";
import { EndpointRoutes } from "../generated/routes.js";
import { DEPLOY_OPTIONS } from "../generated/values.js";
import { sha256 } from "../internal/crypto.js";
import type { Http } from "../internal/http.js";
import { named, part, type CallOptions } from "../internal/options.js";

/** The versions that new jobs run on, each with its share of them in percent. */
export type Traffic = Map<number, number>;

export interface DeployEndpointOptions extends DeployOptions, CallOptions {
  /**
   * The bytes of the package, a `.tar.gz`. `entry`, `python` and `requirementsLock` are those of this package. Default:
   * the package of the current version, with its options.
   */
  package?: Blob | Uint8Array;
}

interface TrafficReply {
  versions: { version: number; percent: number }[];
}

interface PackagePlace {
  exists: boolean;
  upload_url: string;
  headers: Record<string, string>;
}

/** `client.endpoints`: endpoints and their versions. `client.endpoints()` is short for `client.endpoints.list()`. */
export class Endpoints extends EndpointRoutes {
  /**
   * Deploys the next version of an endpoint, and returns it. A folder is packaged by `stoke deploy` and by the Python
   * client; here, the package is given as bytes, or that of the current version is used again with other options.
   *
   * Throws `NotFound` if there is neither a `package` nor a version, and `BadRequest` for a value that is not allowed.
   *
   * ```js
   * await client.endpoints.deploy("render", { timeoutS: 600, maxAttempts: 5 });
   * ```
   */
  async deploy(name: string, options: DeployEndpointOptions = {}): Promise<Endpoint> {
    const { package: source, signal } = options;
    const before = source === undefined ? await this.#current(name, options) : await this.#upload(source, signal);
    const body = JSON.stringify({ ...before, ...named(DEPLOY_OPTIONS, options), name });
    return this.http.post<Endpoint>("/v1/endpoints", body, { signal });
  }

  /** Returns the versions of an endpoint that new jobs run on, each with its share of them in percent. */
  async traffic(name: string, { signal }: CallOptions = {}): Promise<Traffic> {
    return parts(await this.http.get<TrafficReply>(trafficPath(name), { signal }));
  }

  /**
   * Sends a share of new jobs to a version, and the rest to the current version. 100 makes it the current one.
   *
   * Jobs that were submitted before stay on their version. Returns the same as `traffic`.
   */
  async setTraffic(name: string, version: number, percent = 100, { signal }: CallOptions = {}): Promise<Traffic> {
    const body = JSON.stringify({ version, percent });
    return parts(await this.http.putJson<TrafficReply>(trafficPath(name), body, { signal }));
  }

  /** The options of the current version. */
  async #current(name: string, options: CallOptions): Promise<object> {
    const { version, created_at, ...rest } = await this.retrieve(name, options);
    return rest;
  }

  /** Uploads a package unless the API has it. */
  async #upload(source: Blob | Uint8Array, signal: AbortSignal | undefined): Promise<object> {
    // The copy converts a view of a larger or shared buffer to a plain one.
    const blob = source instanceof Blob ? source : new Blob([new Uint8Array(source)]);
    const hash = await sha256(await blob.arrayBuffer());
    const asked = JSON.stringify({ sha256: hash, size_bytes: blob.size });
    const place = await this.http.post<PackagePlace>("/v1/packages", asked, { signal });
    if (!place.exists) {
      const url = new URL(place.upload_url, `${this.http.baseUrl}/`).href;
      await this.http.put(url, place.headers, blob.slice(0, blob.size, ""), signal);
    }
    return { package_sha256: hash, package_size_bytes: blob.size };
  }
}

/** The client's `endpoints`: a resource that is also a function. */
export type CallableEndpoints = Endpoints & ((options?: CallOptions) => Promise<Endpoint[]>);

/** Makes a resource that lists when it is called, as the client's `endpoints` did before it was one. */
export function callableEndpoints(http: Http): CallableEndpoints {
  const resource = new Endpoints(http);
  const list = (options: CallOptions = {}): Promise<Endpoint[]> => resource.list(options);
  return new Proxy(list, {
    get: (_, name) => {
      const member: unknown = Reflect.get(resource, name);
      return typeof member === "function" ? member.bind(resource) : member;
    },
  }) as CallableEndpoints;
}

function trafficPath(name: string): string {
  return `/v1/endpoints/${part(name)}/traffic`;
}

function parts({ versions }: TrafficReply): Traffic {
  return new Map(versions.map(({ version, percent }) => [version, percent]));
}
