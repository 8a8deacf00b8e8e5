// A request body of JSON Lines, produced while it is sent.

import type { StreamedBody } from "./http.js";

/** A string is one line. Bytes are JSON Lines, in chunks of any size. Anything else is encoded as one line of JSON. */
export type LineItem = string | Uint8Array | object;

export type LineSource = Blob | ReadableStream<LineItem> | Iterable<LineItem> | AsyncIterable<LineItem>;

/** Lines are sent in chunks of about this size. A chunk for each line would be most of the work. */
const PIECE_BYTES = 64 << 10;

export class LinesBody implements StreamedBody {
  /** The error that the source or its encoding threw. */
  failure: { reason: unknown } | undefined;
  readonly #source: LineSource;
  readonly #encode: (line: object) => Promise<string>;
  #begun = false;

  constructor(source: LineSource, encode: (line: object) => Promise<string>) {
    this.#source = typeof source === "string" || source instanceof Uint8Array ? new Blob([source as BlobPart]) : source;
    this.#encode = encode;
  }

  /** Whether the source can be read again. A generator or a stream cannot, once its first line was requested. */
  get repeatable(): boolean {
    return this.failure === undefined && (!this.#begun || isRepeatable(this.#source));
  }

  open(timer: Parameters<StreamedBody["open"]>[0]): ReadableStream<Uint8Array> {
    let pieces: AsyncGenerator<Uint8Array, void, void> | undefined;
    return new ReadableStream<Uint8Array>(
      {
        pull: async (controller) => {
          this.#begun = true;
          timer.stop();
          pieces ??= this.#pieces();
          try {
            const { done, value } = await pieces.next();
            timer.restart();
            if (done) controller.close();
            else controller.enqueue(value);
          } catch (reason) {
            this.failure = { reason };
            timer.restart();
            controller.error(reason);
          }
        },
        cancel: async () => void (await pieces?.return()),
      },
      { highWaterMark: 0 },
    );
  }

  /** The whole body, for a `fetch` that does not stream bodies. */
  async blob(): Promise<Blob> {
    if (this.#source instanceof Blob) return this.#source;
    const pieces: BlobPart[] = [];
    for await (const piece of this.#pieces()) pieces.push(piece as BlobPart);
    return new Blob(pieces);
  }

  async *#pieces(): AsyncGenerator<Uint8Array, void, void> {
    const encoder = new TextEncoder();
    let gathered = "";
    for await (const item of items(this.#source)) {
      if (item instanceof Uint8Array) {
        if (gathered !== "") yield encoder.encode(gathered);
        gathered = "";
        if (item.length > 0) yield item;
        continue;
      }
      gathered += `${typeof item === "string" ? oneLine(item) : await this.#encode(item)}\n`;
      if (gathered.length < PIECE_BYTES) continue;
      yield encoder.encode(gathered);
      gathered = "";
    }
    if (gathered !== "") yield encoder.encode(gathered);
  }
}

function isRepeatable(source: LineSource): boolean {
  if (source instanceof Blob) return true;
  return Symbol.iterator in source && (source[Symbol.iterator]() as unknown) !== source;
}

function items(source: LineSource): Iterable<LineItem> | AsyncIterable<LineItem> {
  if (source instanceof Blob) return chunksOf(source.stream());
  return source instanceof ReadableStream ? chunksOf(source) : source;
}

/** Reads a stream, because streams are not iterable in every browser. */
async function* chunksOf<T>(stream: ReadableStream<T>): AsyncGenerator<T, void, void> {
  const reader = stream.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

function oneLine(text: string): string {
  const line = text.replace(/\r?\n$/, "");
  if (line.includes("\n")) {
    throw new TypeError("a line contains a line break; pass one line at a time, or all lines as one string");
  }
  return line;
}
