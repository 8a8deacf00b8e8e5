// Batches: millions of inputs as one thing, streamed in and out as JSON lines.

import { untilEnd } from "../core/poll.js";
import { Bar } from "../internal/bar.js";
import { uuid } from "../internal/crypto.js";
import { hasProcess } from "../internal/env.js";
import type { Http } from "../internal/http.js";
import { jsonl } from "../internal/jsonl.js";
import { LinesBody, type LineSource } from "../internal/lines.js";
import { part, type CallOptions, type Id } from "../internal/options.js";
import { pages, query } from "../internal/page.js";
import { FileRef, hydrate, InputEncoder } from "./files.js";
import type { WaitOptions } from "./job.js";
import type { Batch, BatchError, BatchLine, BatchResult, BatchState } from "./batch_record.js";
import type { Priority } from "./record.js";

/** Lines: objects, strings that are a line of JSON each, or bytes of JSON lines as they stand. */
export type BatchLines =
  | string
  | Blob
  | Uint8Array
  | ReadableStream<Uint8Array | string | BatchLine>
  | Iterable<BatchLine | string>
  | AsyncIterable<BatchLine | string | Uint8Array>;

/** Where its lines come from. */
export type BatchSource =
  | { lines: BatchLines; inputFile?: never; inputKey?: never }
  /** An uploaded file of JSON lines, or its id. */
  | { inputFile: string | FileRef; lines?: never; inputKey?: never }
  /** An object of this tenant's in the store. */
  | { inputKey: string; lines?: never; inputFile?: never };

export type CreateBatchOptions = BatchSource &
  CallOptions & {
    /** What the lines run on; left out when each names its own. */
    endpoint?: string;
    /** In which version of `endpoint` they run; default: the current one. */
    version?: number;
    /** Default `auto`: what the first line is. */
    format?: "auto" | "stokehold" | "openai";
    /** Default `batch`. */
    priority?: Priority;
    /** Whether a line that cannot be used fails the batch (the default) or is left out. */
    onInvalid?: "fail" | "skip";
    /** What has not ended so many seconds from now expires. */
    deadlineS?: number;
    /** Longest one attempt at a line may run, whole seconds; the endpoint's when not given. */
    timeoutS?: number;
    maxAttempts?: number;
    /** What its lines may cost together, micro-dollars (millionths of a dollar). */
    budgetUsdMicros?: number;
    /** What happens then: what has not started is cancelled (`drain`, the default), or what runs as well. */
    atBudget?: "drain" | "stop";
    metadata?: Record<string, string>;
    /** An https URL to tell; check what comes there with `verifyWebhook`. */
    webhook?: string;
    webhookEvents?: readonly "batch.completed"[];
    /** Repeating a call with this key and the same arguments within 24 hours gives the same batch. */
    idempotencyKey?: string;
  };

export interface ListBatchesOptions extends CallOptions {
  state?: BatchState;
  /** Batches fetched at once, 1 to 100. */
  pageSize?: number;
}

export interface BatchWaitOptions extends WaitOptions {
  /** Told how far it is, every other second. */
  onProgress?: (batch: Batch) => void;
  /** Show a bar on stderr, where that is a terminal. */
  progress?: boolean;
}

/** How often someone who watches is told. */
const WATCH_S = 2;

/** What the API may take to answer after the last line came, and what a slow uplink does in a second. */
const ACCEPT_S = 60;
const BLOB_BYTES_PER_S = 64 << 10;

/** `client.batches` */
export class Batches {
  readonly #http: Http;

  /** @internal */
  constructor(http: Http) {
    this.#http = http;
  }

  /**
   * Accepts a batch. Lines are sent as they are made; in browsers, which stream no bodies over HTTP/1.1, as one `Blob`.
   *
   * A `Blob`, an array or a `Set` is sent again from its start when the connection is lost under way; a generator or a
   * stream, whose lines come but once, makes that a `ConnectionFailed`. Calling again with the same `idempotencyKey` and
   * the same lines is safe.
   */
  async create(options: CreateBatchOptions): Promise<Batch> {
    const { lines, inputFile, inputKey, metadata, signal, idempotencyKey } = options;
    const said = asked(options);
    if (lines === undefined) {
      const from = { input_file: fileId(inputFile), input_key: inputKey };
      const body = { ...said, ...from, metadata, webhook_events: options.webhookEvents };
      return this.#http.post("/v1/batches", JSON.stringify(body), { signal }, idempotencyKey);
    }
    const encoder = new InputEncoder(this.#http, signal);
    const source = new LinesBody(lines as LineSource, (line) => encoder.encode(line));
    const body = hasProcess() ? source : await source.blob();
    const holdS = ACCEPT_S + (body instanceof Blob ? Math.ceil(body.size / BLOB_BYTES_PER_S) : 0);
    const path = `/v1/batches?${query({ ...said, webhook_events: options.webhookEvents?.join(",") }, metadata)}`;
    const headers = { "content-type": "application/jsonl" };
    return this.#http.post(path, body, { signal, headers, holdS }, idempotencyKey ?? (await uuid()));
  }

  retrieve(id: Id, { signal }: CallOptions = {}): Promise<Batch> {
    return this.#http.get(`/v1/batches/${part(id)}`, { signal });
  }

  /** Newest first, fetched page by page as they are looked at. */
  list({ state, pageSize = 100, signal }: ListBatchesOptions = {}): AsyncGenerator<Batch, void, void> {
    return pages(this.#http, "/v1/batches", "batches", query({ limit: pageSize, state }), signal);
  }

  /** Ends what has not ended; results that are there stay. */
  cancel(id: Id, { signal }: CallOptions = {}): Promise<Batch> {
    return this.#http.post(`/v1/batches/${part(id)}/cancel`, "", { signal });
  }

  /** A new batch of the lines that failed or expired. Throws `NothingToRetry`, or `Conflict` while lines are open. */
  retryFailed(id: Id, { signal }: CallOptions = {}): Promise<Batch> {
    return this.#http.post(`/v1/batches/${part(id)}/retry-failed`, "", { signal });
  }

  /** Until it has ended, well or not; its `state` and `counts` tell how. Throws `WaitTimeout`. */
  async wait(id: Id, { timeoutS, signal, onProgress, progress = false }: BatchWaitOptions = {}): Promise<Batch> {
    const bar = progress ? new Bar() : undefined;
    const tell = (batch: Batch): Batch => {
      bar?.show(batch);
      onProgress?.(batch);
      return batch;
    };
    const look = async (holdS: number, deadlineMs: number): Promise<Batch> =>
      tell(await this.#http.get(`/v1/batches/${part(id)}?wait_s=${holdS}`, { signal, holdS, deadlineMs }));
    const watched = bar !== undefined || onProgress !== undefined;
    const ending = { what: "batch" as const, ended: hasEnded, ...(watched ? { pollS: WATCH_S } : {}) };
    try {
      const first: Batch = await this.#http.get(`/v1/batches/${part(id)}`, { signal });
      return await untilEnd(tell(first), ending, look, timeoutS, signal);
    } finally {
      bar?.close();
    }
  }

  /** What there is so far, each line once, in the order that they ended; files in a result are `FileRef`s. */
  async *results<R = BatchResult>(id: Id, { signal }: CallOptions = {}): AsyncGenerator<R, void, void> {
    for await (const line of this.#lines<BatchResult>(id, "results", signal)) {
      yield ("result" in line ? { ...line, result: hydrate(this.#http, line.result) } : line) as R;
    }
  }

  /** The lines without a result so far, and why. */
  errors<E extends object = BatchError>(id: Id, { signal }: CallOptions = {}): AsyncGenerator<E, void, void> {
    return this.#lines<E>(id, "errors", signal);
  }

  #lines<L extends object>(id: Id, what: string, signal: AbortSignal | undefined): AsyncGenerator<L, void, void> {
    // OpenAI's lines have no number, but each its own id.
    const key = (line: { line?: number; custom_id?: string }): number | string | undefined =>
      line.line ?? line.custom_id;
    return jsonl<L>(this.#http, `/v1/batches/${part(id)}/${what}`, { signal, key });
  }
}

/** Whether it has ended: nothing changes it again. */
function hasEnded({ state }: Batch): boolean {
  return state === "completed" || state === "failed" || state === "cancelled" || state === "expired";
}

function asked(options: CreateBatchOptions): Record<string, string | number | undefined> {
  return {
    endpoint: options.endpoint,
    version: options.version,
    format: options.format,
    priority: options.priority,
    on_invalid: options.onInvalid,
    deadline_s: options.deadlineS,
    timeout_s: options.timeoutS,
    max_attempts: options.maxAttempts,
    budget_usd_micros: options.budgetUsdMicros,
    at_budget: options.atBudget,
    webhook: options.webhook,
  };
}

function fileId(file: string | FileRef | undefined): string | undefined {
  if (!(file instanceof FileRef)) return file;
  if (file.id === undefined) throw new TypeError(`${file.name} is a result's file; upload it to make a batch of it`);
  return file.id;
}
