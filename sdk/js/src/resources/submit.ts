// Submits one job or many.

import type { JobDependency, JobRecord } from "../generated/jobs.js";
import type { JobOptions } from "../generated/options.js";
import { JOB_OPTIONS } from "../generated/values.js";
import { PartlySubmitted } from "../core/error.js";
import { uuid } from "../internal/crypto.js";
import type { Http } from "../internal/http.js";
import { named, type CallOptions, type Id } from "../internal/options.js";
import { callHeaders } from "../internal/trace.js";
import { InputEncoder } from "./files.js";
import { Job } from "./job.js";
import { acceptedRecord } from "./record.js";

/** A job to depend on. It must succeed first, or with `on: "completion"` only end. */
export type Dependency = Id | { job: Id; on?: JobDependency["on"] };

export interface SubmitManyOptions extends JobOptions, CallOptions {
  /** The earliest time to start at. */
  runAfter?: Date;
  /** Up to 100 jobs, or their ids, to depend on. `job.ref()` in the input is replaced by the result of such a job. */
  dependsOn?: readonly Dependency[];
  /** A second call with the same key and the same arguments, within 24 hours, returns the same jobs. */
  idempotencyKey?: string;
}

export interface SubmitOptions extends SubmitManyOptions {
  /** Seconds, at most 60, to wait for the job to end before returning it. */
  waitS?: number;
}

/** The most jobs that the API accepts with one request, and a little less than its limit of 8 MiB. */
export const BULK_JOBS_MAX = 1_000;
export const BULK_BYTES_MAX = 7 << 20;

/** The longest time in seconds for which the API holds a request. */
const WAIT_MAX_S = 60;

export async function submit(http: Http, endpoint: string, input: unknown, options: SubmitOptions): Promise<Job> {
  const { signal, idempotencyKey, waitS = 0 } = options;
  const called = callHeaders();
  const body = await new InputEncoder(http, signal).encode(request(endpoint, input, options));
  const holdS = Math.min(WAIT_MAX_S, Math.ceil(waitS));
  const headers = holdS > 0 ? { ...called, prefer: `wait=${holdS}` } : called;
  const record = await http.post<JobRecord>("/v1/jobs", body, { signal, headers, holdS }, idempotencyKey);
  return new Job(http, record);
}

/** Submits in chunks, each all or nothing. */
export async function submitMany(
  http: Http,
  endpoint: string,
  inputs: Iterable<unknown>,
  options: SubmitManyOptions,
): Promise<Job[]> {
  const { signal } = options;
  const called = callHeaders();
  const key = options.idempotencyKey ?? (await uuid());
  const encoder = new InputEncoder(http, signal);
  const bodies: string[] = [];
  for (const input of inputs) bodies.push(await encoder.encode(request(endpoint, input, options)));
  const jobs: Job[] = [];
  try {
    for (const [number, chunk] of chunks(bodies).entries()) {
      const ids = await sendBulk(http, chunk, `${key}-${number}`, signal, called);
      jobs.push(...ids.map((id) => accepted(http, id, endpoint, options)));
    }
  } catch (error) {
    throw jobs.length > 0 ? new PartlySubmitted(jobs, bodies.length, error) : error;
  }
  return jobs;
}

/** Submits a chunk, all or nothing. `bodies` are JSON. */
export async function sendBulk(
  http: Http,
  bodies: readonly string[],
  key: string,
  signal: AbortSignal | undefined,
  headers: Record<string, string>,
): Promise<string[]> {
  const body = `{"jobs":[${bodies.join(",")}]}`;
  return (await http.post<{ ids: string[] }>("/v1/jobs/bulk", body, { signal, headers }, key)).ids;
}

/** A job that was accepted with others. It is incomplete until `refresh`. */
export function accepted(http: Http, id: string, endpoint: string, options: SubmitManyOptions): Job {
  const { priority, runAfter, dependsOn = [] } = options;
  const startsAt = runAfter?.toISOString() ?? null;
  return new Job(http, acceptedRecord(id, endpoint, { priority, runAfter: startsAt, dependsOn: dependsOn.map(dependency) }));
}

/** The body of a submit. */
export function request(endpoint: string, input: unknown, options: SubmitManyOptions): object {
  return {
    endpoint,
    input: input ?? null,
    ...named(JOB_OPTIONS, options),
    run_after: options.runAfter?.toISOString(),
    depends_on: options.dependsOn?.map(dependency),
  };
}

function dependency(given: Dependency): JobDependency {
  if (typeof given === "string") return { job: given, on: "success" };
  if ("id" in given) return { job: given.id, on: "success" };
  const { job, on = "success" } = given;
  return { job: typeof job === "string" ? job : job.id, on };
}

function chunks(bodies: readonly string[]): string[][] {
  const encoder = new TextEncoder();
  const all: string[][] = [];
  let bytes = 0;
  for (const body of bodies) {
    const size = encoder.encode(body).byteLength + 1;
    const last = all.at(-1);
    if (last === undefined || last.length >= BULK_JOBS_MAX || bytes + size > BULK_BYTES_MAX) {
      all.push([body]);
      bytes = size;
    } else {
      last.push(body);
      bytes += size;
    }
  }
  return all;
}
