// Endpoints and their versions, as the API returns them.

import type { Endpoint } from "../generated/endpoints.js";
import type { Http } from "../internal/http.js";

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
