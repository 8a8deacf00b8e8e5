// Calls to the API: who asks, how long to wait, when to try again.

import { apiError, ConnectionFailed, NotFound, StokeholdError, TimedOut } from "../core/error.js";
import { retryDelayMs, type RetryPolicy } from "../core/retry.js";
import { uuid } from "./crypto.js";
import { hasProcess } from "./env.js";
import { pause, Silence } from "./signal.js";

/** Who asks, for the server's log. Browsers say it themselves, and would ask the API's leave for another header. */
const USER_AGENT: Record<string, string> = hasProcess() ? { "user-agent": "stokehold-js/0.1.0" } : {};

/** A body that is made as it is sent. */
export interface StreamedBody {
  /** From its start. The clock runs while a piece is sent, and rests while one is made. */
  open: (clock: Pick<Silence, "heard" | "rest">) => ReadableStream<Uint8Array>;
  /** Whether it can be opened from its start, once more. */
  readonly repeatable: boolean;
  /** What making it threw, which is no fault of the connection's. */
  readonly failure: { reason: unknown } | undefined;
}

/** One request, to be sent as often as it takes. */
export interface Call {
  method: string;
  url: string;
  headers: Record<string, string>;
  body?: string | Blob | StreamedBody;
  /** Longest silence before the answer is there, milliseconds. */
  timeoutMs: number;
  /** No retry is begun after this moment (`performance.now()` milliseconds). */
  deadlineMs?: number;
  /** Send it at most once. */
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

/** What a call of a route may say beyond its path. */
export interface RouteOptions {
  signal: AbortSignal | undefined;
  headers?: Record<string, string>;
  /** How long the API is asked to hold the answer, seconds. */
  holdS?: number;
  deadlineMs?: number;
  /** Send it at most once. */
  once?: boolean;
}

export class Http {
  readonly baseUrl: string;
  readonly retry: RetryPolicy;
  readonly #token: string | undefined;
  readonly #timeoutMs: number;
  readonly #fetch: typeof globalThis.fetch;

  constructor({ baseUrl, token, timeoutMs, retry, fetch }: HttpOptions) {
    this.baseUrl = baseUrl;
    this.retry = retry;
    this.#token = token;
    this.#timeoutMs = timeoutMs;
    this.#fetch = fetch;
  }

  async get<T>(path: string, options: RouteOptions): Promise<T> {
    return parse<T>(await this.ask(this.route("GET", path, options), (response) => response.text()));
  }

  /** Every try carries the same key, so that a create whose answer was lost is not done twice. */
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
    return parse<T>(await this.ask(call, (response) => response.text()));
  }

  /** Replaces what is there; doing it twice is doing it once. */
  async putJson<T>(path: string, body: string, options: RouteOptions): Promise<T> {
    const headers = { "content-type": "application/json", ...options.headers };
    const call = { ...this.route("PUT", path, { ...options, headers }), body };
    return parse<T>(await this.ask(call, (response) => response.text()));
  }

  /** That it is gone already is an error to the first try alone: after a lost answer it is what was asked for. */
  async delete(path: string, options: RouteOptions): Promise<void> {
    let tries = 0;
    const call = this.route("DELETE", path, options);
    await this.ask(call, (response) => response.text(), () => (tries += 1)).catch((error: unknown) => {
      if (tries > 1 && error instanceof NotFound) return;
      throw error;
    });
  }

  /** To a presigned URL: it carries its own right, and the token stays here. */
  async put(url: string, headers: Record<string, string>, body: Blob, signal: AbortSignal | undefined): Promise<void> {
    // These two are fetch's to say.
    const sent = Object.fromEntries(
      Object.entries(headers).filter(([name]) => !/^(host|content-length)$/i.test(name)),
    );
    const call = { method: "PUT", url, headers: sent, body, timeoutMs: this.#timeoutMs, signal };
    await this.ask(call, (response) => response.arrayBuffer());
  }

  /**
   * Bytes that may live in the object store. The token goes to the API's own paths and nowhere else; `fetch` takes it off
   * when it is redirected to another origin.
   */
  async bytes(pathOrUrl: string, signal: AbortSignal | undefined): Promise<ArrayBuffer> {
    const call = pathOrUrl.startsWith("/")
      ? this.route("GET", pathOrUrl, { signal })
      : { method: "GET", url: pathOrUrl, headers: {}, timeoutMs: this.#timeoutMs, signal };
    return this.ask(call, (response) => response.arrayBuffer());
  }

  /** The call of a route of the API. */
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

  /** Makes the call until it succeeds, as often as the policy allows and until the deadline. */
  async ask<T>(call: Call, read: (response: Response) => Promise<T>, tried?: () => void): Promise<T> {
    for (let retries = 0; ; retries += 1) {
      tried?.();
      const silence = new Silence(call.timeoutMs, call.signal);
      let error: StokeholdError;
      try {
        const response = await this.send(call, silence);
        if (response.ok) return await read(response);
        error = apiError(response.status, response.headers, await response.text());
      } catch (thrown) {
        if (isStreamed(call.body) && call.body.failure !== undefined) throw call.body.failure.reason;
        error = transportError(call, silence, thrown);
      } finally {
        silence.close();
      }
      const again = !call.once && !(isStreamed(call.body) && !call.body.repeatable);
      const delayMs = again ? retryDelayMs(this.retry, retries, error, Math.random()) : undefined;
      if (delayMs === undefined || performance.now() + delayMs > (call.deadlineMs ?? Infinity)) throw error;
      await pause(delayMs, call.signal);
    }
  }

  /** One try. */
  send({ method, url, headers, body }: Call, silence: Silence): Promise<Response> {
    // Called as a plain function: browsers refuse their fetch as another object's method.
    const fetch = this.#fetch;
    const init: RequestInit & { duplex?: "half" } = { method, headers, signal: silence.signal };
    if (isStreamed(body)) {
      init.body = body.open(silence);
      init.duplex = "half"; // what fetch wants said of a streamed body
    } else if (body !== undefined) init.body = body;
    return fetch(url, init);
  }
}

function isStreamed(body: Call["body"]): body is StreamedBody {
  return typeof body === "object" && "open" in body;
}

/** What fetch's failure means to a caller; rethrows the reason of an abort. Names no query, which may hold a signature. */
export function transportError({ method, url, signal }: Call, silence: Silence, thrown: unknown): StokeholdError {
  if (signal?.aborted) throw signal.reason;
  const where = `${method} ${url.split("?")[0]}`;
  if (silence.passed) return new TimedOut(`${where} had no answer in time`, { cause: thrown });
  const cause = thrown instanceof Error && thrown.cause instanceof Error ? thrown.cause : thrown;
  const why = cause instanceof Error ? cause.message || cause.name : String(cause);
  return new ConnectionFailed(`${where} had no answer: ${why}`, { cause: thrown });
}

function parse<T>(text: string): T {
  try {
    return JSON.parse(text) as T;
  } catch (cause) {
    throw new ConnectionFailed("the answer is not JSON, so it is not the API's; is a proxy between?", { cause });
  }
}
