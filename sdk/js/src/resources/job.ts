// One job: seeing, awaiting, following, cancelling, doing again, rating.

import { jobError } from "../core/error.js";
import { untilEnd } from "../core/poll.js";
import type { Http } from "../internal/http.js";
import { part, type CallOptions } from "../internal/options.js";
import { follow, type JobEvent } from "./events.js";
import { rateJob, type Feedback, type Rating } from "./feedback.js";
import { hydrate } from "./files.js";
import {
  isTerminal,
  type Attempt,
  type Failure,
  type JobRecord,
  type JobState,
  type JobStep,
  type Progress,
  type Timing,
} from "./record.js";

export interface WaitOptions extends CallOptions {
  /** Throw `WaitTimeout` after this many seconds; it runs on. Not given: wait for ever. */
  timeoutS?: number;
}

/** Stands in an input for a job's result, or for the part of it that the JSON pointer names. */
export interface ResultRef {
  $job: string;
  pointer?: string;
}

/** What the API puts in place of a reference once the job has succeeded. */
export function resultRef(job: string, pointer: string): ResultRef {
  if (pointer === "") return { $job: job };
  if (!pointer.startsWith("/")) throw new TypeError(`${pointer} is not a JSON pointer; it looks like /images/0`);
  return { $job: job, pointer };
}

/** A job as it was when last looked at; `refresh`, `wait`, `result` and `events` look again. */
export class Job {
  readonly #http: Http;
  #record: JobRecord;

  /** @internal */
  constructor(http: Http, record: JobRecord) {
    this.#http = http;
    this.#record = record;
  }

  /** The whole of it, as the API shows it. */
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

  /** What endpoints before and after it decided of its input and its output. */
  get steps(): readonly JobStep[] {
    return this.#record.steps;
  }

  /** Micro-dollars; null when it is not known. */
  get costUsdMicros(): number | null {
    return this.#record.cost_usd_micros;
  }

  /** Its result, or the part that a JSON pointer names, to stand anywhere in the input of a job that depends on it. */
  ref(pointer = ""): ResultRef {
    return resultRef(this.id, pointer);
  }

  /** What `JSON.stringify` shows. */
  toJSON(): JobRecord {
    return this.#record;
  }

  /** Looks again. */
  async refresh({ signal }: CallOptions = {}): Promise<this> {
    this.#record = await this.#http.get(jobPath(this.id), { signal });
    return this;
  }

  /** Until it has ended, well or not. */
  async wait({ timeoutS, signal }: WaitOptions = {}): Promise<this> {
    const look = (holdS: number, deadlineMs: number): Promise<JobRecord> =>
      this.#http.get(`${jobPath(this.id)}?wait_s=${holdS}`, { signal, holdS, deadlineMs });
    this.#record = await untilEnd(this.#record, { what: "job", ended: (job) => isTerminal(job.state) }, look, timeoutS, signal);
    return this;
  }

  /**
   * Waits as `wait` does, then gives the result; files in it are `FileRef`s.
   *
   * Throws `JobFailed`, `JobCancelled` or `JobExpired`.
   */
  async result<T = unknown>(options: WaitOptions = {}): Promise<T> {
    await this.wait(options);
    if (this.state !== "succeeded") throw jobError(this.#record);
    let value = this.#record.result;
    if (value === null || value === undefined) {
      // Too large to ride in the record, or really null: the route tells.
      const bytes = await this.#http.bytes(`${jobPath(this.id)}/result`, options.signal);
      value = JSON.parse(new TextDecoder().decode(bytes));
    }
    return hydrate(this.#http, value) as T;
  }

  /** Ends it without a result. Throws `Conflict` when it has already ended otherwise. */
  async cancel(options: CallOptions = {}): Promise<this> {
    this.#record = await cancelJob(this.#http, this.id, options);
    return this;
  }

  /**
   * A new job that does the same again; its record's `retry_of` names this one. While that one is open, asking again
   * gives it again. Throws `NotRetryable` unless this one failed, expired or was cancelled.
   */
  async retry(options: CallOptions & { sameVersion?: boolean } = {}): Promise<Job> {
    return retryJob(this.#http, this.id, options);
  }

  /** Says how good its result is; saying it again replaces what was said. */
  feedback(rating: Rating, options: CallOptions = {}): Promise<Feedback> {
    return rateJob(this.#http, this.id, rating, options);
  }

  /** Everything it tells from its start, live, to its end. A lost connection is taken up again where it broke. */
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
