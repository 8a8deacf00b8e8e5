// Requests to the API: headers, timeouts and retries.

import { apiError, ConnectionFailed, NotFound, StokeholdError, TimedOut } from "../core/error.js";
import { mayHaveHappened, retryDelayMs, type RetryPolicy } from "../core/retry.js";
import type { Deletion } from "../generated/deletion.js";
import { uuid } from "./crypto.js";
import { hasProcess } from "./env.js";
import { HttpError } from "./http1.js";
import { shortSender, type SendShort, type ShortResponse } from "./node.js";
import { IdleTimer, pause } from "./signal.js";
import { wholeText } from "./text.js";

/** The `User-Agent` header, for the log of the server. Browsers set their own; another would require a preflight. */
const USER_AGENT: Record<string, string> = hasProcess() ? { "user-agent": "stokehold-js/0.1.0" } : {};

/**
 * `fetch` does not report what it has sent, so a body extends its timeout by the time that it takes at 64 KiB/s, below
 * which a connection counts as lost.
 */
const SEND_BYTES_PER_MS = (64 << 10) / 1000;

/** The answer to a deletion whose response was lost. What depended on it is not known any more. */
const GONE = JSON.stringify({ deleted: true, dependents: [], freed_bytes: 0 } satisfies Deletion);

/** A body that is produced while it is sent. */
export interface StreamedBody {
  /** Opens the body at its start. The timer runs while a chunk is sent, and stops while one is produced. */
  open: (timer: Pick<IdleTimer, "restart" | "stop">) => ReadableStream<Uint8Array>;
  /** Whether the body can be opened again. */
  readonly repeatable: boolean;
  /** The error that producing the body threw, which is not an error of the connection. */
  readonly failure: { reason: unknown } | undefined;
}

/** A request, which may be sent several times. */
export interface Call {
  method: string;
  url: string;
  headers: Record<string, string>;
  body?: string | Blob | StreamedBody;
  /** Milliseconds without data after which the request fails. */
  timeoutMs: number;
  /** The time after which no retry starts, in milliseconds of `performance.now()`. */
  deadlineMs?: number;
  /** Whether to send the request at most once. */
  once?: boolean;
  signal: AbortSignal | undefined;
}

export interface HttpOptions {
  baseUrl: string;
  token: string | undefined;
  timeoutMs: number;
  retry: RetryPolicy;
  fetch: typeof globalThis.fetch;
}

/** The options of a request to a route. */
export interface RouteOptions {
  signal: AbortSignal | undefined;
  headers?: Record<string, string>;
  /** Seconds for which the API holds the request open. */
  holdS?: number;
  deadlineMs?: number;
  /** Whether to send the request at most once. */
  once?: boolean;
}

export class Http {
  readonly baseUrl: string;
  readonly retry: RetryPolicy;
  readonly #token: string | undefined;
  readonly #timeoutMs: number;
  readonly #fetch: typeof globalThis.fetch;
  readonly #sendShort: SendShort | undefined;

  constructor({ baseUrl, token, timeoutMs, retry, fetch }: HttpOptions) {
    this.baseUrl = baseUrl;
    this.retry = retry;
    this.#token = token;
    this.#timeoutMs = timeoutMs;
    this.#fetch = fetch;
    this.#sendShort = shortSender(baseUrl, fetch);
  }

  async get<T>(path: string, options: RouteOptions): Promise<T> {
    return parse<T>(await this.askText(this.route("GET", path, options)));
  }

  /** Sends a POST request. Every try has the same key, so that nothing is created twice if a response is lost. */
  async post<T>(
    path: string,
    body: string | Blob | StreamedBody,
    options: RouteOptions,
    idempotencyKey?: string,
  ): Promise<T> {
    const headers = {
      "content-type": "application/json",
      "idempotency-key": idempotencyKey ?? (await uuid()),
      ...options.headers,
    };
    const call = { ...this.route("POST", path, { ...options, headers }), body };
    return parse<T>(await this.askText(call));
  }

  /** Sends a PUT request, which is idempotent. */
  async putJson<T>(path: string, body: string, options: RouteOptions): Promise<T> {
    const headers = { "content-type": "application/json", ...options.headers };
    const call = { ...this.route("PUT", path, { ...options, headers }), body };
    return parse<T>(await this.askText(call));
  }

  /** Deletes something that is answered without a body. */
  async delete(path: string, options: RouteOptions): Promise<void> {
    await this.askText(this.route("DELETE", path, options), GONE);
  }

  /** Deletes something, or with `dry_run` returns what would be deleted. */
  async remove(path: string, options: RouteOptions): Promise<Deletion> {
    const gone = /[?&]dry_run=true\b/.test(path) ? undefined : GONE;
    return parse<Deletion>(await this.askText(this.route("DELETE", path, options), gone));
  }

  /** Sends a DELETE request that deletes a part of something, which has to exist at every try. */
  async deleteJson<T>(path: string, options: RouteOptions): Promise<T> {
    return parse<T>(await this.askText(this.route("DELETE", path, options)));
  }

  /** Uploads to a presigned URL. The URL is the authorization; the token is not sent. */
  async put(url: string, headers: Record<string, string>, body: Blob, signal: AbortSignal | undefined): Promise<void> {
    // `fetch` sets these two headers.
    const sent = Object.fromEntries(
      Object.entries(headers).filter(([name]) => !/^(host|content-length)$/i.test(name)),
    );
    const call = { method: "PUT", url, headers: sent, body, timeoutMs: this.#timeoutMs, signal };
    await this.ask(call, (response) => response.arrayBuffer());
  }

  /**
   * Downloads from the API or from the object store. The token is sent to the API only; `fetch` removes it from a
   * redirect to another origin.
   */
  async bytes(pathOrUrl: string, signal: AbortSignal | undefined): Promise<ArrayBuffer> {
    const call = pathOrUrl.startsWith("/")
      ? this.route("GET", pathOrUrl, { signal })
      : { method: "GET", url: pathOrUrl, headers: {}, timeoutMs: this.#timeoutMs, signal };
    return this.ask(call, (response) => response.arrayBuffer());
  }

  /** Builds the request to a route of the API. */
  route(method: string, path: string, options: RouteOptions): Call {
    const { signal, headers, holdS = 0, deadlineMs, once = false } = options;
    return {
      method,
      url: this.baseUrl + path,
      headers: {
        accept: "application/json",
        ...USER_AGENT,
        ...(this.#token === undefined ? {} : { authorization: `Bearer ${this.#token}` }),
        ...headers,
      },
      timeoutMs: this.#timeoutMs + holdS * 1000,
      ...(deadlineMs === undefined ? {} : { deadlineMs }),
      once,
      signal,
    };
  }

  /** Repeats a request until it succeeds, within the retry policy and until the deadline. */
  ask<T>(call: Call, read: (response: Response) => Promise<T>): Promise<T> {
    return this.#repeat(call, (timer) => this.send(call, timer), read);
  }

  /**
   * Like `ask`, for a response that is short text. `gone` is the text if the API finds nothing (404) after an earlier
   * try that it may have carried out.
   */
  askText(call: Call, gone?: string): Promise<string> {
    return this.#repeat(call, (timer) => this.#sendOnce(call, timer), wholeText, gone);
  }

  async #repeat<R extends ShortResponse, T>(
    call: Call,
    send: (timer: IdleTimer) => Promise<R>,
    read: (response: R, timer: IdleTimer) => Promise<T>,
    gone?: T,
  ): Promise<T> {
    let isUncertain = false;
    for (let retries = 0; ; retries += 1) {
      const timer = new IdleTimer(call.timeoutMs, call.signal);
      let error: StokeholdError;
      try {
        const response = await send(timer);
        if (response.ok) return await read(response, timer);
        error = apiError(response.status, response.headers, await wholeText(response, timer));
      } catch (thrown) {
        if (isStreamed(call.body) && call.body.failure !== undefined) throw call.body.failure.reason;
        error = transportError(call, timer, thrown);
      } finally {
        timer.close();
      }
      if (gone !== undefined && isUncertain && error instanceof NotFound) return gone;
      isUncertain ||= mayHaveHappened(error);
      const again = !call.once && !(isStreamed(call.body) && !call.body.repeatable);
      const delayMs = again ? retryDelayMs(this.retry, retries, error, Math.random()) : undefined;
      if (delayMs === undefined || performance.now() + delayMs > (call.deadlineMs ?? Infinity)) throw error;
      await pause(delayMs, call.signal);
    }
  }

  async #sendOnce(call: Call, timer: IdleTimer): Promise<ShortResponse> {
    const { body } = call;
    if (this.#sendShort !== undefined && (body === undefined || typeof body === "string")) {
      const response = await this.#sendShort({ ...call, body }, timer);
      const coding = response?.headers.get("content-encoding") ?? "identity";
      if (response !== undefined && coding === "identity" && !isRedirect(response)) return response;
      if (response !== undefined && call.once) {
        if (coding === "identity") return response;
        throw new HttpError(`the response has the content coding ${coding}, and the request accepts none`);
      }
    }
    return this.send(call, timer);
  }

  /** Sends a request with `fetch`. */
  send({ method, url, headers, body }: Call, timer: IdleTimer): Promise<Response> {
    // Called as a plain function: in browsers, `fetch` fails as a method of another object.
    const fetch = this.#fetch;
    const init: RequestInit & { duplex?: "half" } = { method, headers, signal: timer.signal };
    if (isStreamed(body)) {
      init.body = body.open(timer);
      init.duplex = "half"; // `fetch` requires it for a streamed body
    } else if (body !== undefined) {
      init.body = body;
      timer.restart((typeof body === "string" ? body.length : body.size) / SEND_BYTES_PER_MS);
    }
    return fetch(url, init);
  }
}

function isRedirect({ status, headers }: ShortResponse): boolean {
  return status >= 300 && status < 400 && headers.get("location") !== null;
}

function isStreamed(body: Call["body"]): body is StreamedBody {
  return typeof body === "object" && "open" in body;
}

/**
 * Converts an error of `fetch`, or throws the reason of an aborted signal. The message has no query string, which may
 * contain a signature.
 */
export function transportError({ method, url, signal }: Call, timer: IdleTimer, thrown: unknown): StokeholdError {
  if (signal?.aborted) throw signal.reason;
  const where = `${method} ${url.split("?")[0]}`;
  if (thrown instanceof HttpError) return new StokeholdError(`${where}: ${thrown.message}`, { cause: thrown });
  if (timer.expired) return new TimedOut(`${where}: no response in time`, { cause: thrown });
  const cause = thrown instanceof Error && thrown.cause instanceof Error ? thrown.cause : thrown;
  const why = cause instanceof Error ? cause.message || cause.name : String(cause);
  return new ConnectionFailed(`${where}: no response: ${why}`, { cause: thrown });
}

function parse<T>(text: string): T {
  try {
    return JSON.parse(text) as T;
  } catch (cause) {
    const message = "the response is not JSON, so it is not from the API; check for a proxy in between";
    throw new ConnectionFailed(message, { cause });
  }
}
