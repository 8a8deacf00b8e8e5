// Endpoints as they were deployed.

import type { Http } from "../internal/http.js";

/** An endpoint that looks at each input before it runs, or at each output after. */
export interface EndpointStep {
  name: string | null;
  endpoint: string;
  version: number | null;
  /** It refuses what scores higher, 0 to 1. */
  thresholds: Record<string, number>;
  timeout_s: number | null;
}

/** When an attempt is followed by another. */
export interface EndpointRetry {
  backoff_s: number | null;
  backoff_max_s: number | null;
  /** 0 to 1. */
  jitter: number | null;
  /** Job error codes; null is those that are the handler's fault. */
  on: string[] | null;
}

/** What an endpoint asks of its workers beside memory. */
export interface EndpointDemands {
  /** Of one machine; several are had whole. */
  gpus?: number;
  gpu_models?: string[];
  min_compute_capability?: string;
  min_cuda?: string;
  regions?: string[];
  min_trust?: "community" | "datacenter" | "owned";
  min_sandbox?: "L0" | "L1" | "L2";
}

/** What a worker starts for an endpoint. Without one it is a Python handler. */
export interface EndpointRunner {
  kind: "cog" | "runpod" | "server" | "command";
  /** Of a server or a command. */
  command?: string[];
  /** Of a server. */
  ready_path?: string;
  path?: string;
  port?: number;
}

/** One file of an endpoint's weights. */
export interface EndpointWeight {
  path: string;
  source: string;
  /** Null where it was uploaded. */
  url: string | null;
  sha256: string;
  size_bytes: number;
}

/** One deployed version of an endpoint. Immutable. Members are named as the API names them. */
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
  /** Names of secrets that its runners see. */
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

/** Every endpoint's current version. */
export async function listEndpoints(http: Http, signal: AbortSignal | undefined): Promise<Endpoint[]> {
  return (await http.get<{ endpoints: Endpoint[] }>("/v1/endpoints", { signal })).endpoints;
}

/** The version that new jobs run on. */
export async function getEndpoint(http: Http, name: string, signal: AbortSignal | undefined): Promise<Endpoint> {
  return http.get<Endpoint>(`/v1/endpoints/${encodeURIComponent(name)}`, { signal });
}

/** Every version, newest first. */
export async function listVersions(http: Http, name: string, signal: AbortSignal | undefined): Promise<Endpoint[]> {
  const path = `/v1/endpoints/${encodeURIComponent(name)}/versions`;
  return (await http.get<{ versions: Endpoint[] }>(path, { signal })).versions;
}

/** The versions that new jobs run on, each with its part of them in percent. */
export type Traffic = Map<number, number>;

interface TrafficReply {
  versions: { version: number; percent: number }[];
}

/** See `Client.traffic`. */
export async function getTraffic(http: Http, name: string, signal: AbortSignal | undefined): Promise<Traffic> {
  return parts(await http.get<TrafficReply>(trafficPath(name), { signal }));
}

/** See `Client.setTraffic`. */
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
