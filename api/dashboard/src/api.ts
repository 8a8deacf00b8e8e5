// What the page asks the API. The types come from the OpenAPI document; those of the session and the live stream are below.
import type { components } from "./openapi";

export type Schemas = components["schemas"];

/** Who is logged in. */
export interface Session { tenant: string; scopes: string[]; expires_ms: number }
/** One step of the series behind the queue's chart. */
export interface SeriesPoint { at_ms: number; arrived: number; started: number; ended: number; failed: number; waiting: Record<Schemas["Priority"], number>; running: number; machines: number; usd_micros_per_hour: number }
export interface Series { step_s: number; points: SeriesPoint[] }
/** How one version of an endpoint has done; what has not been seen is null. */
export interface VersionStats { version: number; runs: number; succeeded: number; failed: number; task_succeeded: number | null; task_failed: number | null; usd_micros_per_1000: number | null; timing: Record<string, { p50: number | null; p95: number | null } | null> }
export interface Stats { versions: VersionStats[] }

/** An answer that is not the one asked for, in the API's own words. */
export class Refused extends Error {
  constructor(readonly status: number, detail: string) { super(detail); }
}

const PATIENCE_MS = 15_000;

/** Asks once, within a bound of time; whoever calls decides about asking again. */
export async function ask<T>(path: string, init: RequestInit = {}): Promise<T> {
  const headers = new Headers(init.headers);
  if (init.method) headers.set("Stokehold-Request", "dashboard");
  if (init.body) headers.set("Content-Type", "application/json");
  const answer = await fetch(path, { credentials: "same-origin", signal: AbortSignal.timeout(PATIENCE_MS), ...init, headers });
  if (!answer.ok) {
    const problem = (await answer.json().catch(() => null)) as { detail?: string } | null;
    throw new Refused(answer.status, problem?.detail ?? `The API answered ${answer.status}.`);
  }
  return (answer.status === 204 ? undefined : await answer.json()) as T;
}

/** What went wrong, as a sentence for whoever looks at the page. */
export function sentence(error: unknown): string {
  if (error instanceof Refused && error.status === 403) return `This token may not do that: ${error.message}`;
  return error instanceof Refused ? error.message : "The API cannot be reached; the page goes on trying.";
}
