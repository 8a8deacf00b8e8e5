// What a submit says, and sending it: one job, or many.

import { PartlySubmitted } from "../core/error.js";
import { uuid } from "../internal/crypto.js";
import type { Http } from "../internal/http.js";
import type { CallOptions, Id } from "../internal/options.js";
import { callHeaders } from "../internal/trace.js";
import { InputEncoder } from "./files.js";
import { Job } from "./job.js";
import { acceptedRecord, type JobDependency, type JobHookEvent, type JobRecord, type Priority } from "./record.js";

/** A job to wait for: until it succeeded, or with `on: "completion"` until it has ended, well or not. */
export type Dependency = Id | { job: Id; on?: JobDependency["on"] };

/** What may be said of a job beside its endpoint and its input. */
export interface JobOptions {
  /** A version of the endpoint; the current one when not given. */
  version?: number;
  priority?: Priority;
  /** Longest one attempt may run, whole seconds; the endpoint's when not given. */
  timeoutS?: number;
  /** It must have been started within so many seconds from now, or it expires. */
  queueTimeoutS?: number;
  /** It must have ended within so many seconds from now, or it expires. */
  deadlineS?: number;
  /** How long after its end it stays in the queue's memory, before it is history. */
  retentionS?: number;
  /** How many attempts may fail by the handler's fault; the endpoint's when not given. */
  maxAttempts?: number;
  /** At most `concurrencyMax` (default 1) jobs with this key run at once. */
  concurrencyKey?: string;
  concurrencyMax?: number;
  /** Labels of your own, to list jobs by. */
  metadata?: Record<string, string>;
  /** An https URL to tell; check what comes there with `verifyWebhook`. */
  webhook?: string;
  /** What to tell it. Default: `["job.completed"]`. */
  webhookEvents?: readonly JobHookEvent[];
}

export interface SubmitManyOptions extends JobOptions, CallOptions {
  /** Not before this time. */
  runAfter?: Date;
  /** Jobs to wait for, at most 100. `job.ref()` anywhere in the input stands for such a job's result. */
  dependsOn?: readonly Dependency[];
  /** Repeating a call with this key and the same arguments within 24 hours gives the same jobs. */
  idempotencyKey?: string;
}

export interface SubmitOptions extends SubmitManyOptions {
  /** Hold the answer up to this many seconds (at most 60) until the job has ended. */
  waitS?: number;
}

/** As many as the API takes at once, and a little less than its 8 MiB. */
export const BULK_JOBS_MAX = 1_000;
export const BULK_BYTES_MAX = 7 << 20;

/** The API holds a request for at most this long. */
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

/** In chunks, each all or nothing. */
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

/** All or nothing; `bodies` are JSON. */
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

/** A job of which the API told no more than its id. */
export function accepted(http: Http, id: string, endpoint: string, options: SubmitManyOptions): Job {
  const { priority, runAfter, dependsOn = [] } = options;
  const startsAt = runAfter?.toISOString() ?? null;
  return new Job(http, acceptedRecord(id, endpoint, { priority, runAfter: startsAt, dependsOn: dependsOn.map(named) }));
}

/** A job as the API takes it. */
export function request(endpoint: string, input: unknown, options: SubmitManyOptions): object {
  return {
    endpoint,
    input: input ?? null,
    version: options.version,
    priority: options.priority,
    timeout_s: options.timeoutS,
    queue_timeout_s: options.queueTimeoutS,
    deadline_s: options.deadlineS,
    retention_s: options.retentionS,
    max_attempts: options.maxAttempts,
    run_after: options.runAfter?.toISOString(),
    concurrency_key: options.concurrencyKey,
    concurrency_max: options.concurrencyMax,
    depends_on: options.dependsOn?.map(named),
    metadata: options.metadata,
    webhook: options.webhook,
    webhook_events: options.webhookEvents,
  };
}

function named(dependency: Dependency): JobDependency {
  if (typeof dependency === "string") return { job: dependency, on: "success" };
  if ("id" in dependency) return { job: dependency.id, on: "success" };
  const { job, on = "success" } = dependency;
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
