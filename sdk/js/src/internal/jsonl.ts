// JSON Lines, decoded from a response stream across reconnects.

import { apiError, ConnectionFailed, StokeholdError } from "../core/error.js";
import { retryDelayMs } from "../core/retry.js";
import { transportError, type Http } from "./http.js";
import { pause, IdleTimer } from "./signal.js";
import { textOf, wholeText } from "./text.js";

/** Far above the longest line that the API writes. */
const LINE_CHARS_MAX = 64 << 20;

/** Line numbers up to this one take a bit each, at most 128 MiB. */
const LINES_MAX = 1 << 30;

/** The time without data after which a connection counts as lost. The server may need long to find the next lines. */
const SILENCE_MS = 120_000;

export interface JsonlOptions<R> {
  signal: AbortSignal | undefined;
  /**
   * Returns the key that identifies a line. Lines come in any order: after a lost connection the response starts again,
   * and lines that were already returned are skipped. Without a key, a connection that is lost after a line throws.
   */
  key?: (line: R) => number | string | undefined;
}

/** Streams the lines, each once. */
export async function* jsonl<R>(
  http: Http,
  path: string,
  { signal, key }: JsonlOptions<R>,
): AsyncGenerator<R, void, void> {
  const given = new Given();
  let resumable = true;
  let fruitless = 0;
  for (;;) {
    const headers = { accept: "application/jsonl" };
    const call = { ...http.route("GET", path, { signal, headers }), timeoutMs: SILENCE_MS };
    const timer = new IdleTimer(SILENCE_MS, signal);
    let error: StokeholdError;
    try {
      const response = await http.send(call, timer);
      if (response.ok) {
        for await (const line of lines(response, timer)) {
          const value = decode<R>(line);
          const name = key?.(value);
          if (name === undefined) resumable = false;
          else if (!given.add(name)) continue;
          fruitless = 0;
          yield value;
        }
        return;
      }
      error = apiError(response.status, response.headers, await wholeText(response, timer));
    } catch (thrown) {
      if (thrown instanceof StokeholdError && !(thrown instanceof ConnectionFailed)) throw thrown;
      error = thrown instanceof ConnectionFailed ? thrown : transportError(call, timer, thrown);
    } finally {
      timer.close();
    }
    const delayMs = resumable ? retryDelayMs(http.retry, fruitless, error, Math.random()) : undefined;
    if (delayMs === undefined) throw error;
    fruitless += 1;
    await pause(delayMs, signal);
  }
}

async function* lines(response: Response, timer: IdleTimer): AsyncGenerator<string, void, void> {
  if (response.body === null) return;
  let rest: string[] = [];
  let size = 0;
  for await (const text of textOf(response.body, timer)) {
    const pieces = text.split("\n");
    const last = pieces.pop() ?? "";
    for (const piece of pieces) {
      const line = rest.join("") + piece;
      rest = [];
      size = 0;
      if (line.trim() !== "") yield line;
    }
    rest.push(last);
    size += last.length;
    if (size > LINE_CHARS_MAX) {
      throw new StokeholdError("received a line of more than 64 MiB; is this a Stokehold API?");
    }
  }
  const line = rest.join("");
  if (line.trim() !== "") yield line;
}

function decode<R>(line: string): R {
  try {
    return JSON.parse(line) as R;
  } catch (cause) {
    throw new ConnectionFailed("a line of the response is not JSON; check for a proxy in between", { cause });
  }
}

/** The lines that were already returned. A batch may have millions. */
class Given {
  readonly #names = new Set<string>();
  #bits = new Uint8Array(1024);

  /** Adds a line. Returns whether it is new. */
  add(name: number | string): boolean {
    if (typeof name === "string" || !Number.isInteger(name) || name < 0 || name > LINES_MAX) {
      const before = this.#names.size;
      return this.#names.add(String(name)).size > before;
    }
    const byte = Math.floor(name / 8);
    const bit = 1 << name % 8;
    if (byte >= this.#bits.length) {
      const larger = new Uint8Array(2 * byte);
      larger.set(this.#bits);
      this.#bits = larger;
    }
    const before = this.#bits[byte] ?? 0;
    this.#bits[byte] = before | bit;
    return (before & bit) === 0;
  }
}
