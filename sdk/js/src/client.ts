// The client: settings, and one method for each thing there is to do.

import { DEFAULT_RETRY, type RetryPolicy } from "./core/retry.js";
import { env } from "./internal/env.js";
import { Http } from "./internal/http.js";
import type { CallOptions } from "./internal/options.js";
import {
  getEndpoint,
  getTraffic,
  listEndpoints,
  listVersions,
  setTraffic,
  type Endpoint,
  type Traffic,
} from "./resources/endpoints.js";
import { upload, type FileRef, type UploadOptions } from "./resources/files.js";
import { Batches } from "./resources/batches.js";
import { FeedbackResource } from "./resources/feedback.js";
import type { JobEvent } from "./resources/events.js";
import { Job, type WaitOptions } from "./resources/job.js";
import { Jobs, type ListOptions } from "./resources/jobs.js";
import { LimitsResource } from "./resources/limits.js";
import { Pipeline } from "./resources/pipelines.js";
import type { SubmitManyOptions, SubmitOptions } from "./resources/submit.js";
import { Webhooks } from "./resources/webhooks.js";
import { Schedules } from "./resources/schedules.js";
import { acceptedRecord } from "./resources/record.js";

export interface StokeholdOptions {
  /** Where the API is. Default: `STOKE_URL`, then `http://127.0.0.1:7070`. */
  baseUrl?: string;
  /** Who asks. Default: `STOKE_TOKEN`. */
  token?: string;
  /** Longest silence while an answer is due, seconds; what the API is asked to hold comes on top. Default 30. */
  timeoutS?: number;
  /** When to try again. Default: 5 retries, up to 0.5, 1, 2, 4 and 8 s apart. */
  retry?: Partial<RetryPolicy>;
  /** In place of the platform's own `fetch`. */
  fetch?: typeof globalThis.fetch;
}

const DEFAULT_URL = "http://127.0.0.1:7070";

/** Speaks to one Stokehold API. Holds no connection that would have to be closed. */
export class Stokehold {
  readonly jobs: Jobs;
  readonly batches: Batches;
  readonly schedules: Schedules;
  readonly webhooks: Webhooks;
  readonly feedback: FeedbackResource;
  readonly limits: LimitsResource;
  readonly #http: Http;

  constructor(options: StokeholdOptions = {}) {
    const baseUrl = (options.baseUrl ?? env("STOKE_URL") ?? DEFAULT_URL).replace(/\/+$/, "");
    if (!/^https?:\/\/[^/]/.test(baseUrl)) {
      throw new TypeError(`${baseUrl} is not the URL of an API; it looks like ${DEFAULT_URL} (baseUrl or STOKE_URL)`);
    }
    const token = options.token ?? env("STOKE_TOKEN");
    if (token !== undefined && !/^[\x21-\x7e]+$/.test(token)) {
      throw new TypeError("the token has a space, a line break or another character that no token has (token or STOKE_TOKEN)");
    }
    this.#http = new Http({
      baseUrl,
      token,
      timeoutMs: (options.timeoutS ?? 30) * 1000,
      retry: { ...DEFAULT_RETRY, ...options.retry },
      fetch: options.fetch ?? globalThis.fetch,
    });
    this.jobs = new Jobs(this.#http);
    this.batches = new Batches(this.#http);
    this.schedules = new Schedules(this.#http);
    this.webhooks = new Webhooks(this.#http);
    this.feedback = new FeedbackResource(this.#http);
    this.limits = new LimitsResource(this.#http);
  }

  get baseUrl(): string {
    return this.#http.baseUrl;
  }

  /** Queues one job. A `Blob`, a `Uint8Array` or a file anywhere in `input` is uploaded first. */
  submit(endpoint: string, input?: unknown, options: SubmitOptions = {}): Promise<Job> {
    return this.jobs.submit(endpoint, input, options);
  }

  /**
   * Queues one job for each input, in order, 1,000 with each request.
   *
   * Each request is accepted whole or not at all; when a later one fails, `PartlySubmitted` holds the earlier jobs.
   */
  submitMany(endpoint: string, inputs: Iterable<unknown>, options: SubmitManyOptions = {}): Promise<Job[]> {
    return this.jobs.submitMany(endpoint, inputs, options);
  }

  /** A job by its id. */
  get(id: string, options: CallOptions = {}): Promise<Job> {
    return this.jobs.retrieve(id, options);
  }

  /** A job, once it has ended, well or not. */
  async wait(id: string, options: WaitOptions = {}): Promise<Job> {
    return (await this.get(id, options)).wait(options);
  }

  /** A job's result, once there is one. Throws `JobFailed`, `JobCancelled` or `JobExpired`. */
  async result<T = unknown>(id: string, options: WaitOptions = {}): Promise<T> {
    return (await this.get(id, options)).result<T>(options);
  }

  /** Everything a job tells from its start, live, to its end. A lost connection is taken up again where it broke. */
  events(id: string, options: CallOptions = {}): AsyncGenerator<JobEvent, void, void> {
    return new Job(this.#http, acceptedRecord(id, "")).events(options);
  }

  /** Ends a job without a result. Throws `Conflict` when it has already ended otherwise. */
  cancel(id: string, options: CallOptions = {}): Promise<Job> {
    return this.jobs.cancel(id, options);
  }

  /** Jobs, newest first, fetched page by page as they are looked at. */
  list(options: ListOptions = {}): AsyncGenerator<Job, void, void> {
    return this.jobs.list(options);
  }

  /** Jobs that wait for each other, to be queued together: `submit` each, then `run`. */
  pipeline(): Pipeline {
    return new Pipeline(this.#http);
  }

  /** Uploads bytes. What comes back may stand anywhere in an input. */
  upload(source: Blob | Uint8Array, options: UploadOptions = {}): Promise<FileRef> {
    return upload(this.#http, source, options);
  }

  /** Every endpoint's current version. */
  endpoints({ signal }: CallOptions = {}): Promise<Endpoint[]> {
    return listEndpoints(this.#http, signal);
  }

  /** The version of an endpoint that new jobs run on. */
  endpoint(name: string, { signal }: CallOptions = {}): Promise<Endpoint> {
    return getEndpoint(this.#http, name, signal);
  }

  /** Every version of an endpoint, newest first. */
  versions(name: string, { signal }: CallOptions = {}): Promise<Endpoint[]> {
    return listVersions(this.#http, name, signal);
  }

  /** The versions of an endpoint that new jobs run on, each with its part of them in percent. */
  traffic(name: string, { signal }: CallOptions = {}): Promise<Traffic> {
    return getTraffic(this.#http, name, signal);
  }

  /**
   * Gives a version this part of new jobs, and the current one the rest; with 100 it is the current one. Jobs that were
   * submitted before stay with their version.
   */
  setTraffic(name: string, version: number, percent = 100, { signal }: CallOptions = {}): Promise<Traffic> {
    return setTraffic(this.#http, name, version, percent, signal);
  }
}
