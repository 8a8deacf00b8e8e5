// All jobs: submitting, finding, and doing the same to many.

import type { Http } from "../internal/http.js";
import type { CallOptions } from "../internal/options.js";
import { pages, query } from "../internal/page.js";
import { cancelJob, Job, jobPath, retryJob } from "./job.js";
import { rateJob, type Feedback, type Rating } from "./feedback.js";
import type { JobRecord, JobState, Priority } from "./record.js";
import { submit, submitMany, type SubmitManyOptions, type SubmitOptions } from "./submit.js";

/** Which jobs; those that are all of it. */
export interface JobFilter {
  state?: JobState;
  endpoint?: string;
  /** Those of this batch. */
  batch?: string;
  /** Those that this schedule made. */
  schedule?: string;
  priority?: Priority;
  errorCode?: string;
  metadata?: Record<string, string>;
}

export interface ListOptions extends JobFilter, CallOptions {
  /** Jobs fetched at once, 1 to 100. */
  pageSize?: number;
}

export interface DeadLettersOptions extends CallOptions {
  endpoint?: string;
  errorCode?: string;
  /** Jobs fetched at once, 1 to 100. */
  pageSize?: number;
}

/** A job that was done again, and the new one. Members are named as the API names them. */
export interface RetriedJob {
  id: string;
  new_id: string;
}

/** As many as the API does with one request. */
const MANY_MAX = 1_000;

/** `client.jobs` */
export class Jobs {
  readonly #http: Http;

  /** @internal */
  constructor(http: Http) {
    this.#http = http;
  }

  /** Queues one job. A `Blob`, a `Uint8Array` or a file anywhere in `input` is uploaded first. */
  submit(endpoint: string, input?: unknown, options: SubmitOptions = {}): Promise<Job> {
    return submit(this.#http, endpoint, input, options);
  }

  /**
   * Queues one job for each input, in order, 1,000 with each request.
   *
   * Each request is accepted whole or not at all; when a later one fails, `PartlySubmitted` holds the earlier jobs.
   */
  submitMany(endpoint: string, inputs: Iterable<unknown>, options: SubmitManyOptions = {}): Promise<Job[]> {
    return submitMany(this.#http, endpoint, inputs, options);
  }

  /** A job by its id. */
  async retrieve(id: string, { signal }: CallOptions = {}): Promise<Job> {
    return new Job(this.#http, await this.#http.get<JobRecord>(jobPath(id), { signal }));
  }

  /** Jobs, newest first, fetched page by page as they are looked at. */
  async *list(options: ListOptions = {}): AsyncGenerator<Job, void, void> {
    const { metadata, pageSize = 100, signal, ...filter } = options;
    yield* this.#list("/v1/jobs", query({ limit: pageSize, ...asked(filter) }, metadata), signal);
  }

  /** Jobs that failed or expired and were not done again, newest first. */
  async *deadLetters(options: DeadLettersOptions = {}): AsyncGenerator<Job, void, void> {
    const { endpoint, errorCode, pageSize = 100, signal } = options;
    yield* this.#list("/v1/dead-letters", query({ limit: pageSize, endpoint, error_code: errorCode }), signal);
  }

  /** Ends a job without a result. Throws `Conflict` when it has already ended otherwise. */
  async cancel(id: string, options: CallOptions = {}): Promise<Job> {
    return new Job(this.#http, await cancelJob(this.#http, id, options));
  }

  /**
   * A new job that does the same again, on the endpoint's current version unless `sameVersion` is set or the job was submitted
   * for a version. Throws `NotRetryable` unless it failed, expired or was cancelled.
   */
  retry(id: string, options: CallOptions & { sameVersion?: boolean } = {}): Promise<Job> {
    return retryJob(this.#http, id, options);
  }

  /** Does all these jobs again, 1,000 with each request. The filter must say something. */
  async retryMany(
    filter: JobFilter,
    { signal, sameVersion }: CallOptions & { sameVersion?: boolean } = {},
  ): Promise<RetriedJob[]> {
    const all = new Map<string, RetriedJob>();
    const options = sameVersion ? { same_version: true } : {};
    for (let more = true; more; ) {
      const page = await this.#many<{ retried: RetriedJob[]; more: boolean }>("retry", filter, signal, options);
      const before = all.size;
      for (const pair of page.retried) all.set(pair.id, pair);
      // Pages that name no other job than those before would go on for ever.
      more = page.more && all.size > before;
    }
    return [...all.values()];
  }

  /** Cancels all these jobs, 1,000 with each request, and tells how many. The filter must say something. */
  async cancelMany(filter: JobFilter, { signal }: CallOptions = {}): Promise<number> {
    let cancelled = 0;
    for (let more = true; more; ) {
      const page = await this.#many<{ cancelled: number; more: boolean }>("cancel", filter, signal);
      cancelled += page.cancelled;
      more = page.more && page.cancelled > 0;
    }
    return cancelled;
  }

  /** Says how good a job's result is; saying it again replaces what was said. */
  feedback(id: string, rating: Rating, options: CallOptions = {}): Promise<Feedback> {
    return rateJob(this.#http, id, rating, options);
  }

  async *#list(route: string, by: URLSearchParams, signal: AbortSignal | undefined): AsyncGenerator<Job, void, void> {
    for await (const record of pages<"jobs", JobRecord>(this.#http, route, "jobs", by, signal)) {
      yield new Job(this.#http, record);
    }
  }

  /** Each request has its own key: the same filter asked again is another call. */
  #many<T>(verb: "retry" | "cancel", filter: JobFilter, signal: AbortSignal | undefined, options = {}): Promise<T> {
    const body = { filter: { ...asked(filter), metadata: filter.metadata }, limit: MANY_MAX, ...options };
    return this.#http.post<T>(`/v1/jobs/${verb}`, JSON.stringify(body), { signal });
  }
}

function asked(filter: JobFilter): Record<string, string | undefined> {
  const { state, endpoint, batch, schedule, priority, errorCode } = filter;
  return { state, endpoint, batch, schedule, priority, error_code: errorCode };
}
