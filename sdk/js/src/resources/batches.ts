// Batches: many jobs from one file of lines.

import type { Batch, BatchState } from "../generated/batches.js";
import type { BatchOptions } from "../generated/options.js";
import { BATCH_OPTIONS } from "../generated/values.js";
import { untilEnd } from "../core/poll.js";
import { Bar } from "../internal/bar.js";
import { uuid } from "../internal/crypto.js";
import { hasProcess } from "../internal/env.js";
import { BatchRoutes } from "../generated/routes.js";
import type { Http } from "../internal/http.js";
import { jsonl } from "../internal/jsonl.js";
import { LinesBody, type LineSource } from "../internal/lines.js";
import { named, part, type CallOptions, type Id } from "../internal/options.js";
import { pages, query } from "../internal/page.js";
import { FileRef, hydrate, InputEncoder } from "./files.js";
import type { WaitOptions } from "./job.js";
import type { BatchError, BatchLine, BatchResult } from "./batch_record.js";

/** Lines: objects, strings of one line of JSON each, or bytes of JSON Lines. A single string contains all lines. */
export type BatchLines =
  | string
  | Blob
  | Uint8Array
  | ReadableStream<Uint8Array | string | BatchLine>
  | Iterable<BatchLine | string>
  | AsyncIterable<BatchLine | string | Uint8Array>;

/** The source of the lines. Exactly one of `lines`, `inputFile` and `inputKey` is required. */
export type BatchSource =
  | { lines: BatchLines; inputFile?: never; inputKey?: never }
  /** An uploaded file of JSON lines, or its id. */
  | { inputFile: string | FileRef; lines?: never; inputKey?: never }
  /** The key of a file in the object store. */
  | { inputKey: string; lines?: never; inputFile?: never };

export type CreateBatchOptions = BatchSource &
  BatchOptions &
  CallOptions & {
    /** A second call with the same key and the same arguments, within 24 hours, returns the same batch. */
    idempotencyKey?: string;
  };

export interface ListBatchesOptions extends CallOptions {
  state?: BatchState;
  /** The number of batches in a page, 1 to 100. Default 100. */
  pageSize?: number;
}

export interface BatchWaitOptions extends WaitOptions {
  /** Called with the batch every two seconds. */
  onProgress?: (batch: Batch) => void;
  /** Whether to show a progress bar in a terminal. Shows nothing elsewhere. */
  progress?: boolean;
}

/** Seconds between updates of the progress. */
const WATCH_S = 2;

/** The time that the API may take to respond after the last line, and the speed of a slow uplink. */
const ACCEPT_S = 60;
const BLOB_BYTES_PER_S = 64 << 10;

/** `client.batches`: many jobs from one file of lines. */
export class Batches extends BatchRoutes {
  readonly #http: Http;

  /** @internal */
  constructor(http: Http) {
    super(http);
    this.#http = http;
  }

  /**
   * Creates a batch, with a job for each line. Lines are streamed and never held in memory as a whole, except in
   * browsers, which cannot stream a body over HTTP/1.1: they send one `Blob`.
   *
   * After a lost connection, a `Blob`, an array or a `Set` is sent again from its start. A generator or a stream can be
   * read only once, so the call throws `ConnectionFailed`. It is safe to repeat the call with the same `idempotencyKey`
   * and the same lines.
   *
   * ```js
   * const batch = await client.batches.create({ endpoint: "embed", lines: [{ input: { text: "one" } }] });
   * await client.batches.wait(batch, { progress: true });
   * ```
   */
  async create(options: CreateBatchOptions): Promise<Batch> {
    const { lines, inputFile, inputKey, signal, idempotencyKey } = options;
    const given = named(BATCH_OPTIONS, options);
    if (lines === undefined) {
      const body = { ...given, input_file: fileId(inputFile), input_key: inputKey };
      return this.#http.post("/v1/batches", JSON.stringify(body), { signal }, idempotencyKey);
    }
    const encoder = new InputEncoder(this.#http, signal);
    const source = new LinesBody(lines as LineSource, (line) => encoder.encode(line));
    const body = hasProcess() ? source : await source.blob();
    const holdS = ACCEPT_S + (body instanceof Blob ? Math.ceil(body.size / BLOB_BYTES_PER_S) : 0);
    const path = `/v1/batches?${query(given)}`;
    const headers = { "content-type": "application/jsonl" };
    return this.#http.post(path, body, { signal, headers, holdS }, idempotencyKey ?? (await uuid()));
  }

  /** Returns a batch by its id. */
  retrieve(id: Id, { signal }: CallOptions = {}): Promise<Batch> {
    return this.#http.get(`/v1/batches/${part(id)}`, { signal });
  }

  /** Lists batches, newest first, fetched page by page. */
  list({ state, pageSize = 100, signal }: ListBatchesOptions = {}): AsyncGenerator<Batch, void, void> {
    return pages(this.#http, "/v1/batches", "batches", query({ limit: pageSize, state }), signal);
  }

  /** Cancels the jobs of a batch that have not ended. Results of earlier jobs are kept. */
  cancel(id: Id, { signal }: CallOptions = {}): Promise<Batch> {
    return this.#http.post(`/v1/batches/${part(id)}/cancel`, "", { signal });
  }

  /**
   * Creates a batch of the lines that failed or expired.
   *
   * Throws `NothingToRetry` if there are none, or `Conflict` while the batch runs.
   */
  retryFailed(id: Id, { signal }: CallOptions = {}): Promise<Batch> {
    return this.#http.post(`/v1/batches/${part(id)}/retry-failed`, "", { signal });
  }

  /** Waits until a batch has ended, in any state. Throws `WaitTimeout` after `timeoutS`; the batch continues. */
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

  /** Streams the lines that have succeeded so far, each once, in no particular order. Files in them are `FileRef`s. */
  async *results<R = BatchResult>(id: Id, { signal }: CallOptions = {}): AsyncGenerator<R, void, void> {
    for await (const line of this.#lines<BatchResult>(id, "results", signal)) {
      yield ("result" in line ? { ...line, result: hydrate(this.#http, line.result) } : line) as R;
    }
  }

  /** Streams the lines that have ended without a result so far, each with its error. */
  errors<E extends object = BatchError>(id: Id, { signal }: CallOptions = {}): AsyncGenerator<E, void, void> {
    return this.#lines<E>(id, "errors", signal);
  }

  #lines<L extends object>(id: Id, what: string, signal: AbortSignal | undefined): AsyncGenerator<L, void, void> {
    // Lines in OpenAI's format have no number, but each has its own id.
    const key = (line: { line?: number; custom_id?: string }): number | string | undefined =>
      line.line ?? line.custom_id;
    return jsonl<L>(this.#http, `/v1/batches/${part(id)}/${what}`, { signal, key });
  }
}

/** Whether the batch has ended. An ended batch never changes its state. */
function hasEnded({ state }: Batch): boolean {
  return state === "completed" || state === "failed" || state === "cancelled" || state === "expired";
}

function fileId(file: string | FileRef | undefined): string | undefined {
  if (!(file instanceof FileRef)) return file;
  if (file.id === undefined) {
    throw new TypeError(`${file.name} is not an uploaded file; upload it first, or pass lines`);
  }
  return file.id;
}
