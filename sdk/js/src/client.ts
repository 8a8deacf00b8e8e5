// The client: its settings, and a method for each call.

import type { Endpoint } from "./generated/endpoints.js";
import {
  Audit,
  CostsRoutes,
  FleetRoutes,
  QuarantineRoutes,
  RequirementSets,
  Secrets,
  Tenants,
  Tokens,
  WorkerRoutes,
} from "./generated/routes.js";
import { DEFAULT_RETRY, type RetryPolicy } from "./core/retry.js";
import { isSameOrigin, savedProfile } from "./internal/credentials.js";
import { env } from "./internal/env.js";
import { Http } from "./internal/http.js";
import type { CallOptions } from "./internal/options.js";
import {
  callableEndpoints,
  type CallableEndpoints,
  type DeployEndpointOptions,
  type Traffic,
} from "./resources/endpoints.js";
import { Files, upload, type FileRef, type UploadOptions } from "./resources/files.js";
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
  /** The URL of the API. Default: `STOKE_URL`, the profile of `stoke login`, then `http://127.0.0.1:7070`. */
  baseUrl?: string;
  /** The API token. Default: `STOKE_TOKEN`, then that of the profile, if it is for this URL. */
  token?: string;
  /**
   * Seconds without data from the API after which a request fails. For a request that the API holds open (e.g. with
   * `waitS`), the time that it is held is added. Default 30.
   */
  timeoutS?: number;
  /** The retry policy. Default: 5 retries, after at most 0.5, 1, 2, 4 and 8 s. */
  retry?: Partial<RetryPolicy>;
  /** Replaces the `fetch` of the platform, e.g. in a test or for a proxy of your own. */
  fetch?: typeof globalThis.fetch;
}

const DEFAULT_URL = "http://127.0.0.1:7070";

/** A client of the Stokehold API. It does not have to be closed. */
export class Stokehold {
  readonly jobs: Jobs;
  readonly batches: Batches;
  readonly schedules: Schedules;
  readonly webhooks: Webhooks;
  readonly feedback: FeedbackResource;
  readonly limits: LimitsResource;
  readonly files: Files;
  /** Endpoints and their versions; called, the current version of every endpoint. */
  readonly endpoints: CallableEndpoints;
  readonly workers: WorkerRoutes;
  readonly fleet: FleetRoutes;
  readonly costs: CostsRoutes;
  readonly secrets: Secrets;
  readonly tokens: Tokens;
  readonly tenants: Tenants;
  readonly audit: Audit;
  readonly quarantine: QuarantineRoutes;
  readonly requirementSets: RequirementSets;
  readonly #http: Http;

  constructor(options: StokeholdOptions = {}) {
    const saved = savedProfile();
    const baseUrl = (options.baseUrl ?? env("STOKE_URL") ?? saved?.url ?? DEFAULT_URL).replace(/\/+$/, "");
    if (!/^https?:\/\/[^/]/.test(baseUrl)) {
      throw new TypeError(`${baseUrl} is not a URL of an API, e.g. ${DEFAULT_URL}; check baseUrl or STOKE_URL`);
    }
    const savedToken = saved !== undefined && isSameOrigin(saved.url, baseUrl) ? saved.token : undefined;
    const token = options.token ?? env("STOKE_TOKEN") ?? savedToken;
    if (token !== undefined && !/^[\x21-\x7e]+$/.test(token)) {
      const why = "the token contains a space, a line break or another invalid character";
      throw new TypeError(`${why}; check token or STOKE_TOKEN`);
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
    this.files = new Files(this.#http);
    this.endpoints = callableEndpoints(this.#http);
    this.workers = new WorkerRoutes(this.#http);
    this.fleet = new FleetRoutes(this.#http);
    this.costs = new CostsRoutes(this.#http);
    this.secrets = new Secrets(this.#http);
    this.tokens = new Tokens(this.#http);
    this.tenants = new Tenants(this.#http);
    this.audit = new Audit(this.#http);
    this.quarantine = new QuarantineRoutes(this.#http);
    this.requirementSets = new RequirementSets(this.#http);
  }

  get baseUrl(): string {
    return this.#http.baseUrl;
  }

  /**
   * Submits a job. A `Blob`, a `Uint8Array` or a file anywhere in `input` is uploaded first.
   *
   * Throws `NotFound` if there is no such endpoint, `InvalidInput` if the input does not match its schema, and
   * `QuotaExceeded` if a limit is reached.
   *
   * ```js
   * const job = await client.submit("render", { prompt: "a stoker" }, { timeoutS: 600, priority: "batch" });
   * console.log(await job.result({ timeoutS: 900 }));
   * ```
   */
  submit(endpoint: string, input?: unknown, options: SubmitOptions = {}): Promise<Job> {
    return this.jobs.submit(endpoint, input, options);
  }

  /**
   * Submits one job for each input, in order.
   *
   * A request holds at most 1,000 jobs, and is accepted as a whole or not at all. If a later request fails, the call
   * throws `PartlySubmitted`, which has the jobs of the earlier ones.
   *
   * ```js
   * const jobs = await client.submitMany("embed", [{ text: "one" }, { text: "two" }], { idempotencyKey: "import-7" });
   * ```
   */
  submitMany(endpoint: string, inputs: Iterable<unknown>, options: SubmitManyOptions = {}): Promise<Job[]> {
    return this.jobs.submitMany(endpoint, inputs, options);
  }

  /** Returns a job by its id. */
  get(id: string, options: CallOptions = {}): Promise<Job> {
    return this.jobs.retrieve(id, options);
  }

  /** Waits until a job has ended, in any state. Throws `WaitTimeout` after `timeoutS`; the job continues. */
  async wait(id: string, options: WaitOptions = {}): Promise<Job> {
    return (await this.get(id, options)).wait(options);
  }

  /**
   * Waits like `wait`, then returns the result of the job.
   *
   * Throws `JobFailed`, `JobCancelled` or `JobExpired` if the job ended without a result, and `WaitTimeout` after
   * `timeoutS` seconds; the job continues. Default: waits without a limit.
   *
   * ```js
   * console.log(await client.result(jobId, { timeoutS: 60 }));
   * ```
   */
  async result<T = unknown>(id: string, options: WaitOptions = {}): Promise<T> {
    return (await this.get(id, options)).result<T>(options);
  }

  /**
   * Streams the events of a job from its start to its end. Resumes where it stopped after a lost connection.
   *
   * ```js
   * for await (const event of client.events(jobId)) {
   *   if (event.type === "output") console.log(event.value);
   * }
   * ```
   */
  events(id: string, options: CallOptions = {}): AsyncGenerator<JobEvent, void, void> {
    return new Job(this.#http, acceptedRecord(id, "")).events(options);
  }

  /** Cancels a job. Throws `Conflict` if it has already ended in another state. */
  cancel(id: string, options: CallOptions = {}): Promise<Job> {
    return this.jobs.cancel(id, options);
  }

  /**
   * Lists jobs, newest first, fetched page by page.
   *
   * ```js
   * for await (const job of client.list({ endpoint: "render", state: "failed" })) console.log(job.id, job.error);
   * ```
   */
  list(options: ListOptions = {}): AsyncGenerator<Job, void, void> {
    return this.jobs.list(options);
  }

  /** Returns a pipeline: jobs that use each other's results and are submitted together; see `Pipeline`. */
  pipeline(): Pipeline {
    return new Pipeline(this.#http);
  }

  /**
   * Uploads bytes. The returned file can be used anywhere in an input. Throws `Conflict` if the tenant's storage is full.
   *
   * ```js
   * const mask = await client.upload(new Blob([bytes], { type: "image/png" }), { name: "mask.png" });
   * const job = await client.submit("inpaint", { mask });
   * ```
   */
  upload(source: Blob | Uint8Array, options: UploadOptions = {}): Promise<FileRef> {
    return upload(this.#http, source, options);
  }

  /** Deploys the next version of an endpoint; see `client.endpoints.deploy`. */
  deploy(name: string, options: DeployEndpointOptions = {}): Promise<Endpoint> {
    return this.endpoints.deploy(name, options);
  }

  /** Returns the version of an endpoint that new jobs run on. */
  endpoint(name: string, options: CallOptions = {}): Promise<Endpoint> {
    return this.endpoints.retrieve(name, options);
  }

  /** Returns every version of an endpoint, newest first. */
  versions(name: string, options: CallOptions = {}): Promise<Endpoint[]> {
    return this.endpoints.versions(name, options);
  }

  /** Returns the versions of an endpoint that new jobs run on, each with its share of them in percent. */
  traffic(name: string, options: CallOptions = {}): Promise<Traffic> {
    return this.endpoints.traffic(name, options);
  }

  /**
   * Sends a share of new jobs to a version, and the rest to the current version. 100 makes it the current one.
   *
   * Jobs that were submitted before stay on their version. Returns the same as `traffic`.
   */
  setTraffic(name: string, version: number, percent = 100, options: CallOptions = {}): Promise<Traffic> {
    return this.endpoints.setTraffic(name, version, percent, options);
  }
}
