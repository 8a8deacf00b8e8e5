// Endpoints and their versions, as the API returns them.

import type { Http } from "../internal/http.js";

/** An endpoint that checks each input before the job runs, or each output after. */
export interface EndpointStep {
  name: string | null;
  endpoint: string;
  version: number | null;
  /** For each label, the score from 0 to 1 above which the job is rejected. */
  thresholds: Record<string, number>;
  timeout_s: number | null;
}

/** The retry policy of an endpoint. */
export interface EndpointRetry {
  backoff_s: number | null;
  backoff_max_s: number | null;
  /** 0 to 1. */
  jitter: number | null;
  /** The error codes of a job that are retried; null: those that the handler causes. */
  on: string[] | null;
}

/** What an endpoint requires of a worker in addition to memory. */
export interface EndpointDemands {
  /** The number of GPUs of one machine. Several GPUs are reserved exclusively. */
  gpus?: number;
  gpu_models?: string[];
  min_compute_capability?: string;
  min_cuda?: string;
  regions?: string[];
  min_trust?: "community" | "datacenter" | "owned";
  min_sandbox?: "L0" | "L1" | "L2";
}

/** The kind of runner that a worker starts for an endpoint. Default: a Python handler. */
export interface EndpointRunner {
  kind: "cog" | "runpod" | "server" | "command";
  /** The command of the kinds `server` and `command`. */
  command?: string[];
  /** Only for the kind `server`. */
  ready_path?: string;
  path?: string;
  port?: number;
}

/** A file of the weights of an endpoint. */
export interface EndpointWeight {
  path: string;
  source: string;
  /** Null if the file was uploaded. */
  url: string | null;
  sha256: string;
  size_bytes: number;
}

/** A deployed version of an endpoint. Immutable. Members have the names of the API. */
export interface Endpoint {
  name: string;
  version: number;
  created_at: string;
  runner?: EndpointRunner;
  entry: string;
  requirements_lock: string;
  python: string;
  network: boolean;
  env?: Record<string, string>;
  /** The names of the secrets that its runners can read. */
  secrets?: string[];
  weights?: EndpointWeight[];
  allow_pickle?: boolean;
  package_sha256: string;
  package_size_bytes: number;
  input_schema: unknown;
  output_schema: unknown;
  vram_gib: number;
  max_concurrency: number;
  demands?: EndpointDemands;
  max_batch_size?: number;
  vram_fraction?: number;
  max_wait_ms?: number;
  keep_warm_s?: number;
  min_warm?: number;
  priority?: "interactive" | "standard" | "batch";
  timeout_s: number;
  max_attempts: number;
  retry?: EndpointRetry | null;
  warmup?: unknown[];
  before?: EndpointStep[];
  after?: EndpointStep[];
}

/** Returns the current version of every endpoint. */
export async function listEndpoints(http: Http, signal: AbortSignal | undefined): Promise<Endpoint[]> {
  return (await http.get<{ endpoints: Endpoint[] }>("/v1/endpoints", { signal })).endpoints;
}

/** Returns the version that new jobs run on. */
export async function getEndpoint(http: Http, name: string, signal: AbortSignal | undefined): Promise<Endpoint> {
  return http.get<Endpoint>(`/v1/endpoints/${encodeURIComponent(name)}`, { signal });
}

/** Returns every version, newest first. */
export async function listVersions(http: Http, name: string, signal: AbortSignal | undefined): Promise<Endpoint[]> {
  const path = `/v1/endpoints/${encodeURIComponent(name)}/versions`;
  return (await http.get<{ versions: Endpoint[] }>(path, { signal })).versions;
}

/** The versions that new jobs run on, each with its share of them in percent. */
export type Traffic = Map<number, number>;

interface TrafficReply {
  versions: { version: number; percent: number }[];
}

/** See `Stokehold.traffic`. */
export async function getTraffic(http: Http, name: string, signal: AbortSignal | undefined): Promise<Traffic> {
  return parts(await http.get<TrafficReply>(trafficPath(name), { signal }));
}

/** See `Stokehold.setTraffic`. */
export async function setTraffic(
  http: Http,
  name: string,
  version: number,
  percent: number,
  signal: AbortSignal | undefined,
): Promise<Traffic> {
  return parts(await http.putJson<TrafficReply>(trafficPath(name), JSON.stringify({ version, percent }), { signal }));
}

function trafficPath(name: string): string {
  return `/v1/endpoints/${encodeURIComponent(name)}/traffic`;
}

function parts({ versions }: TrafficReply): Traffic {
  return new Map(versions.map(({ version, percent }) => [version, percent]));
}
