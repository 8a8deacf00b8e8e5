// Jobs: submitting, seeing, awaiting, following, cancelling.

import { apiError, ConnectionFailed, jobError, PartlySubmitted, StokeholdError } from "../core/error.js";
import { untilEnd } from "../core/poll.js";
import { retryDelayMs } from "../core/retry.js";
import { uuid } from "../internal/crypto.js";
import { transportError, type Http } from "../internal/http.js";
import { pause, Silence } from "../internal/signal.js";
import { SseParser, type Message } from "../internal/sse.js";
import { hydrate, InputEncoder } from "./files.js";
import {
  acceptedRecord,
  type Attempt,
  type Failure,
  type JobRecord,
  type JobState,
  type Priority,
  type Progress,
  type Timing,
} from "./record.js";

/** What every call takes. An aborted signal ends it, retries and pauses included, and throws the signal's reason. */
export interface CallOptions {
  signal?: AbortSignal;
}

export interface SubmitManyOptions extends CallOptions {
  /** A version of the endpoint; the current one when not given. */
  version?: number;
  priority?: Priority;
  /** Longest one attempt may run, whole seconds; the endpoint's when not given. */
  timeoutS?: number;
  /** How many attempts may fail by the handler's fault; the endpoint's when not given. */
  maxAttempts?: number;
  /** Not before this time. */
  runAfter?: Date;
  /** Labels of your own, to list jobs by. */
  metadata?: Record<string, string>;
  /** Repeating a call with this key and the same arguments within 24 hours gives the same jobs. */
  idempotencyKey?: string;
}

export interface SubmitOptions extends SubmitManyOptions {
  /** Hold the answer up to this many seconds (at most 60) until the job has ended. */
  waitS?: number;
}

export interface WaitOptions extends CallOptions {
  /** Throw `WaitTimeout` after this many seconds; the job runs on. Not given: wait for ever. */
  timeoutS?: number;
}

export interface ListOptions extends CallOptions {
  state?: JobState;
  endpoint?: string;
  metadata?: Record<string, string>;
  /** Jobs fetched at once, 1 to 100. */
  pageSize?: number;
}

/** What a job tells. `done` is always the last. A retry begins its outputs again at index 0 with a higher attempt. */
export type JobEvent =
  | { type: "state"; state: JobState; attempt: number }
  | { type: "progress"; fraction: number; message: string }
  | { type: "log"; stream: "stdout" | "stderr"; text: string; attempt: number }
  | { type: "output"; index: number; value: unknown; attempt: number }
  | { type: "done"; job: JobRecord };

/** As many as the API takes at once, and a little less than its 8 MiB. */
const BULK_JOBS_MAX = 1_000;
const BULK_BYTES_MAX = 7 << 20;

/** The API holds a request for at most this long. */
const WAIT_MAX_S = 60;

/** The server sends a comment at least every 15 s, so four times that is silence. */
const SILENCE_MS = 60_000;

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

  /** What `JSON.stringify` shows. */
  toJSON(): JobRecord {
    return this.#record;
  }

  /** Looks again. */
  async refresh({ signal }: CallOptions = {}): Promise<this> {
    this.#record = await this.#http.get(path(this.id), { signal });
    return this;
  }

  /** Until it has ended, well or not. */
  async wait({ timeoutS, signal }: WaitOptions = {}): Promise<this> {
    const look = (holdS: number, deadlineMs: number): Promise<JobRecord> =>
      this.#http.get(`${path(this.id)}?wait_s=${holdS}`, { signal, holdS, deadlineMs });
    this.#record = await untilEnd(this.#record, look, timeoutS, signal);
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
      const bytes = await this.#http.bytes(`${path(this.id)}/result`, options.signal);
      value = JSON.parse(new TextDecoder().decode(bytes));
    }
    return hydrate(this.#http, value) as T;
  }

  /** Ends it without a result. Throws `Conflict` when it has already ended otherwise. */
  async cancel(options: CallOptions = {}): Promise<this> {
    this.#record = await cancelJob(this.#http, this.id, options);
    return this;
  }

  /** Everything it tells from its start, live, to its end. A lost connection is taken up again where it broke. */
  async *events(options: CallOptions = {}): AsyncGenerator<JobEvent, void, void> {
    for await (const event of follow(this.#http, this.id, options)) {
      if (event.type === "done") this.#record = event.job;
      yield event;
    }
  }
}

export async function submit(http: Http, endpoint: string, input: unknown, options: SubmitOptions): Promise<Job> {
  const { signal, idempotencyKey, waitS = 0 } = options;
  const body = await new InputEncoder(http, signal).encode(request(endpoint, input, options));
  const holdS = Math.min(WAIT_MAX_S, Math.ceil(waitS));
  const headers: Record<string, string> = holdS > 0 ? { prefer: `wait=${holdS}` } : {};
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
  const { signal, priority = "standard", runAfter } = options;
  const key = options.idempotencyKey ?? (await uuid());
  const encoder = new InputEncoder(http, signal);
  const bodies: string[] = [];
  for (const input of inputs) bodies.push(await encoder.encode(request(endpoint, input, options)));
  const jobs: Job[] = [];
  try {
    for (const [number, chunk] of chunks(bodies).entries()) {
      const body = `{"jobs":[${chunk.join(",")}]}`;
      const { ids } = await http.post<{ ids: string[] }>("/v1/jobs/bulk", body, { signal }, `${key}-${number}`);
      const startsAt = runAfter?.toISOString() ?? null;
      jobs.push(...ids.map((id) => new Job(http, acceptedRecord(id, endpoint, priority, startsAt))));
    }
  } catch (error) {
    throw jobs.length > 0 ? new PartlySubmitted(jobs, bodies.length, error) : error;
  }
  return jobs;
}

export async function getJob(http: Http, id: string, { signal }: CallOptions): Promise<Job> {
  return new Job(http, await http.get<JobRecord>(path(id), { signal }));
}

export async function cancelJob(http: Http, id: string, { signal }: CallOptions): Promise<JobRecord> {
  return http.post<JobRecord>(`${path(id)}/cancel`, "", { signal });
}

/** Newest first, fetched page by page as they are looked at. */
export async function* listJobs(http: Http, options: ListOptions): AsyncGenerator<Job, void, void> {
  const { state, endpoint, metadata = {}, pageSize = 100, signal } = options;
  const query = new URLSearchParams({ limit: String(pageSize) });
  if (state !== undefined) query.set("state", state);
  if (endpoint !== undefined) query.set("endpoint", endpoint);
  for (const [name, value] of Object.entries(metadata)) query.set(`metadata.${name}`, value);
  for (;;) {
    const page = await http.get<{ jobs: JobRecord[]; next_cursor: string | null }>(`/v1/jobs?${query}`, { signal });
    for (const record of page.jobs) yield new Job(http, record);
    if (page.next_cursor === null || page.next_cursor === query.get("cursor")) return;
    query.set("cursor", page.next_cursor);
  }
}

/** The events of a job over as many connections as it takes. */
async function* follow(http: Http, id: string, { signal }: CallOptions): AsyncGenerator<JobEvent, void, void> {
  let lastId = "";
  let lastState = "";
  let fruitless = 0;
  for (;;) {
    const resume: Record<string, string> = lastId === "" ? {} : { "last-event-id": lastId };
    const headers = { accept: "text/event-stream", ...resume };
    const call = { ...http.route("GET", `${path(id)}/events`, { signal, headers }), timeoutMs: SILENCE_MS };
    const silence = new Silence(SILENCE_MS, signal);
    const parser = new SseParser(lastId);
    let error: StokeholdError = new ConnectionFailed("the event stream ended before the job did, again and again");
    try {
      const response = await http.send(call, silence);
      if (response.ok && response.body !== null) {
        for await (const text of read(response.body, silence)) {
          fruitless = 0;
          for (const message of parser.feed(text)) {
            lastId = parser.lastId;
            const event = decode(http, message);
            // Every connection begins with the state; only a new one is news.
            if (event === undefined || (event.type === "state" && message.data === lastState)) continue;
            if (event.type === "state") lastState = message.data;
            yield event;
            if (event.type === "done") return;
          }
        }
      } else {
        error = apiError(response.status, response.headers, await response.text());
      }
    } catch (thrown) {
      if (thrown instanceof StokeholdError) throw thrown;
      error = transportError(call, silence, thrown);
    } finally {
      silence.close();
    }
    const delayMs = retryDelayMs(http.retry, fruitless, error, Math.random());
    if (delayMs === undefined) throw error;
    fruitless += 1;
    await pause(delayMs, signal);
  }
}

/** Text as it comes; whoever stops reading lets go of the connection. */
async function* read(body: ReadableStream<Uint8Array>, silence: Silence): AsyncGenerator<string, void, void> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      silence.heard();
      yield decoder.decode(value, { stream: true });
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

function decode(http: Http, { name, data }: Message): JobEvent | undefined {
  try {
    const raw = JSON.parse(data);
    switch (name) {
      case "state":
      case "progress":
      case "log":
        return { ...raw, type: name };
      case "output":
        return { ...raw, type: name, value: hydrate(http, raw.value) };
      case "done":
        return { type: name, job: raw };
      default:
        return undefined; // a kind that a newer server knows
    }
  } catch (cause) {
    throw new StokeholdError(`the event ${name} is not what this version of stokehold knows`, { cause });
  }
}

function request(endpoint: string, input: unknown, options: SubmitManyOptions): object {
  return {
    endpoint,
    input: input ?? null,
    version: options.version,
    priority: options.priority,
    timeout_s: options.timeoutS,
    max_attempts: options.maxAttempts,
    run_after: options.runAfter?.toISOString(),
    metadata: options.metadata,
  };
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

function path(id: string): string {
  return `/v1/jobs/${encodeURIComponent(id)}`;
}
