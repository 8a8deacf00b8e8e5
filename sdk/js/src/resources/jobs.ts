// Jobs: submit, find, retry and cancel, one or many at a time.

import type { Feedback } from "../generated/feedback.js";
import type { JobRecord, RetriedJob } from "../generated/jobs.js";
import type { JobFilter, Rating } from "../generated/options.js";
import { JOB_FILTER } from "../generated/values.js";
import { JobRoutes } from "../generated/routes.js";
import type { Http } from "../internal/http.js";
import { named, type CallOptions } from "../internal/options.js";
import { pages, query } from "../internal/page.js";
import { cancelJob, Job, jobPath, retryJob } from "./job.js";
import { rateJob } from "./feedback.js";
import { submit, submitMany, type SubmitManyOptions, type SubmitOptions } from "./submit.js";

export interface ListOptions extends JobFilter, CallOptions {
  /** The number of jobs in a page, 1 to 100. Default 100. */
  pageSize?: number;
}

export interface DeadLettersOptions extends CallOptions {
  endpoint?: string;
  errorCode?: string;
  /** The number of jobs in a page, 1 to 100. Default 100. */
  pageSize?: number;
}

export interface ManyOptions extends CallOptions {
  /** The most jobs to retry or cancel. Default: all. */
  limit?: number;
}

/** The most jobs that one request retries or cancels. */
const MANY_MAX = 1_000;

/** `client.jobs`: jobs, one or many at a time. */
export class Jobs extends JobRoutes {
  readonly #http: Http;

  /** @internal */
  constructor(http: Http) {
    super(http);
    this.#http = http;
  }

  /** Submits a job. A `Blob`, a `Uint8Array` or a file anywhere in `input` is uploaded first. */
  submit(endpoint: string, input?: unknown, options: SubmitOptions = {}): Promise<Job> {
    return submit(this.#http, endpoint, input, options);
  }

  /**
   * Submits one job for each input, in order.
   *
   * A request holds at most 1,000 jobs, and is accepted as a whole or not at all. If a later request fails, the call
   * throws `PartlySubmitted`, which has the jobs of the earlier ones.
   */
  submitMany(endpoint: string, inputs: Iterable<unknown>, options: SubmitManyOptions = {}): Promise<Job[]> {
    return submitMany(this.#http, endpoint, inputs, options);
  }

  /** Returns a job by its id. */
  async retrieve(id: string, { signal }: CallOptions = {}): Promise<Job> {
    return new Job(this.#http, await this.#http.get<JobRecord>(jobPath(id), { signal }));
  }

  /** Lists jobs, newest first, fetched page by page. */
  async *list(options: ListOptions = {}): AsyncGenerator<Job, void, void> {
    const { pageSize = 100, signal } = options;
    yield* this.#list("/v1/jobs", query({ limit: pageSize, ...named(JOB_FILTER, options) }), signal);
  }

  /** Lists jobs that failed or expired and have not been retried, newest first, fetched page by page. */
  async *deadLetters(options: DeadLettersOptions = {}): AsyncGenerator<Job, void, void> {
    const { endpoint, errorCode, pageSize = 100, signal } = options;
    yield* this.#list("/v1/dead-letters", query({ limit: pageSize, endpoint, error_code: errorCode }), signal);
  }

  /** Cancels a job. Throws `Conflict` if it has already ended in another state. */
  async cancel(id: string, options: CallOptions = {}): Promise<Job> {
    return new Job(this.#http, await cancelJob(this.#http, id, options));
  }

  /**
   * Retries a job that failed, expired or was cancelled, as a new job whose `retry_of` is the id of the old job.
   *
   * The new job runs on the current version of the endpoint, unless the old job was submitted for a version or
   * `sameVersion` is set. Until it has ended, another call returns it again. Throws `NotRetryable` if the old job is in
   * another state.
   */
  retry(id: string, options: CallOptions & { sameVersion?: boolean } = {}): Promise<Job> {
    return retryJob(this.#http, id, options);
  }

  /**
   * Retries the selected jobs that failed or expired and have not been retried yet.
   *
   * The filter has at least one member. Requests retry 1,000 jobs at a time until none is left or `limit` are retried.
   * The new jobs run on the version that `retry` would choose.
   */
  async retryMany(
    filter: JobFilter,
    { signal, sameVersion, limit = Infinity }: ManyOptions & { sameVersion?: boolean } = {},
  ): Promise<RetriedJob[]> {
    const all = new Map<string, RetriedJob>();
    const options = sameVersion ? { same_version: true } : {};
    for (let more = true; more && all.size < limit; ) {
      const body = { limit: Math.min(limit - all.size, MANY_MAX), ...options };
      const page = await this.#many<{ retried: RetriedJob[]; more: boolean }>("retry", filter, signal, body);
      const before = all.size;
      for (const pair of page.retried) all.set(pair.id, pair);
      // Stops at a page without a new job, even if it reports more: otherwise the loop might not end.
      more = page.more && all.size > before;
    }
    return [...all.values()];
  }

  /**
   * Cancels the selected jobs that have not ended, and returns how many it cancelled.
   *
   * The filter has at least one member. Requests cancel 1,000 jobs at a time until none is left or `limit` are
   * cancelled.
   */
  async cancelMany(filter: JobFilter, { signal, limit = Infinity }: ManyOptions = {}): Promise<number> {
    let cancelled = 0;
    for (let more = true; more && cancelled < limit; ) {
      const body = { limit: Math.min(limit - cancelled, MANY_MAX) };
      const page = await this.#many<{ cancelled: number; more: boolean }>("cancel", filter, signal, body);
      cancelled += page.cancelled;
      more = page.more && page.cancelled > 0;
    }
    return cancelled;
  }

  /** Rates the result of a job. A second rating replaces the first. */
  feedback(id: string, rating: Rating, options: CallOptions = {}): Promise<Feedback> {
    return rateJob(this.#http, id, rating, options);
  }

  async *#list(route: string, by: URLSearchParams, signal: AbortSignal | undefined): AsyncGenerator<Job, void, void> {
    for await (const record of pages<"jobs", JobRecord>(this.#http, route, "jobs", by, signal)) {
      yield new Job(this.#http, record);
    }
  }

  /** Sends one request. Each has its own idempotency key, because the same filter selects other jobs the next time. */
  #many<T>(verb: "retry" | "cancel", filter: JobFilter, signal: AbortSignal | undefined, more: object): Promise<T> {
    const body = { filter: named(JOB_FILTER, filter), ...more };
    return this.#http.post<T>(`/v1/jobs/${verb}`, JSON.stringify(body), { signal });
  }
}
