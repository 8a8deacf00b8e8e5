// A job: its state, result, events, retry and rating.

import type { Feedback } from "../generated/feedback.js";
import type { Attempt, Failure, JobRecord, JobState, JobStep, Progress, Timing } from "../generated/jobs.js";
import type { Rating } from "../generated/options.js";
import { jobError } from "../core/error.js";
import { untilEnd } from "../core/poll.js";
import type { Http } from "../internal/http.js";
import { part, type CallOptions } from "../internal/options.js";
import { follow, type JobEvent } from "./events.js";
import { rateJob } from "./feedback.js";
import { hydrate } from "./files.js";
import { isTerminal } from "./record.js";

export interface WaitOptions extends CallOptions {
  /** Seconds after which the call throws `WaitTimeout`; the job or batch continues. Default: no limit. */
  timeoutS?: number;
}

/** A reference to the future result of a job, or to the part of it that `pointer` (a JSON pointer) selects. */
export interface ResultRef {
  $job: string;
  pointer?: string;
}

/** Returns a reference. The API replaces it once the job has succeeded. */
export function resultRef(job: string, pointer: string): ResultRef {
  if (pointer === "") return { $job: job };
  if (!pointer.startsWith("/")) {
    throw new TypeError(`${pointer} is not a JSON pointer; a pointer starts with a slash, e.g. /images/0`);
  }
  return { $job: job, pointer };
}

/** A job in the state that was last fetched. `refresh`, `wait`, `result` and `events` update it. */
export class Job {
  readonly #http: Http;
  #record: JobRecord;

  /** @internal */
  constructor(http: Http, record: JobRecord) {
    this.#http = http;
    this.#record = record;
  }

  /** The record of the job, as the API returned it. */
  get record(): JobRecord {
    return this.#record;
  }

  get id(): string {
    return this.#record.id;
  }

  get endpoint(): string {
    return this.#record.endpoint;
  }

  get state(): JobState {
    return this.#record.state;
  }

  get progress(): Progress | null {
    return this.#record.progress;
  }

  get attempts(): readonly Attempt[] {
    return this.#record.attempts;
  }

  get timing(): Timing | null {
    return this.#record.timing;
  }

  get error(): Failure | null {
    return this.#record.error;
  }

  /** The outcomes of the steps before and after the job. */
  get steps(): readonly JobStep[] {
    return this.#record.steps;
  }

  /** The cost of the job in micro-dollars (millionths of a US dollar); null if it is not known. */
  get costUsdMicros(): number | null {
    return this.#record.cost_usd_micros;
  }

  /**
   * Returns a reference to the future result of the job, or to the part of it that a JSON pointer selects.
   *
   * It can be used anywhere in the input of a job that depends on this one.
   */
  ref(pointer = ""): ResultRef {
    return resultRef(this.id, pointer);
  }

  /** The record of the job, for `JSON.stringify`. */
  toJSON(): JobRecord {
    return this.#record;
  }

  /** Fetches the current state; returns itself. */
  async refresh({ signal }: CallOptions = {}): Promise<this> {
    this.#record = await this.#http.get(jobPath(this.id), { signal });
    return this;
  }

  /**
   * Waits until the job has ended, with or without a result; returns itself.
   *
   * Throws `WaitTimeout` after `timeoutS` seconds; the job continues.
   */
  async wait({ timeoutS, signal }: WaitOptions = {}): Promise<this> {
    const look = (holdS: number, deadlineMs: number): Promise<JobRecord> =>
      this.#http.get(`${jobPath(this.id)}?wait_s=${holdS}`, { signal, holdS, deadlineMs });
    this.#record = await untilEnd(this.#record, { what: "job", ended: (job) => isTerminal(job.state) }, look, timeoutS, signal);
    return this;
  }

  /**
   * Waits like `wait`, then returns the result. Files in it are `FileRef`s.
   *
   * Throws `JobFailed`, `JobCancelled` or `JobExpired` if the job ended without a result.
   */
  async result<T = unknown>(options: WaitOptions = {}): Promise<T> {
    await this.wait(options);
    if (this.state !== "succeeded") throw jobError(this.#record);
    let value = this.#record.result;
    if (value === null || value === undefined) {
      // Too large for the record, or null: fetch it to find out.
      const bytes = await this.#http.bytes(`${jobPath(this.id)}/result`, options.signal);
      value = JSON.parse(new TextDecoder().decode(bytes));
    }
    return hydrate(this.#http, value) as T;
  }

  /** Cancels the job; returns itself. Throws `Conflict` if it has already ended in another state. */
  async cancel(options: CallOptions = {}): Promise<this> {
    this.#record = await cancelJob(this.#http, this.id, options);
    return this;
  }

  /**
   * Retries a job that failed, expired or was cancelled, as a new job whose `retry_of` is the id of this one.
   *
   * The new job runs on the current version of the endpoint, unless this job was submitted for a version or
   * `sameVersion` is set. Until it has ended, another call returns it again. Throws `NotRetryable` if this job is in
   * another state.
   */
  async retry(options: CallOptions & { sameVersion?: boolean } = {}): Promise<Job> {
    return retryJob(this.#http, this.id, options);
  }

  /** Rates the result of the job. A second rating replaces the first. */
  feedback(rating: Rating, options: CallOptions = {}): Promise<Feedback> {
    return rateJob(this.#http, this.id, rating, options);
  }

  /** Streams the events of the job from its start to its end. Resumes where it stopped after a lost connection. */
  async *events(options: CallOptions = {}): AsyncGenerator<JobEvent, void, void> {
    for await (const event of follow(this.#http, this.id, options)) {
      if (event.type === "done") this.#record = event.job;
      yield event;
    }
  }
}

export async function cancelJob(http: Http, id: string, { signal }: CallOptions): Promise<JobRecord> {
  return http.post<JobRecord>(`${jobPath(id)}/cancel`, "", { signal });
}

export async function retryJob(
  http: Http,
  id: string,
  { signal, sameVersion }: CallOptions & { sameVersion?: boolean },
): Promise<Job> {
  const path = `${jobPath(id)}/retry${sameVersion ? "?same_version=true" : ""}`;
  return new Job(http, await http.post<JobRecord>(path, "", { signal }));
}

export function jobPath(id: string): string {
  return `/v1/jobs/${part(id)}`;
}
