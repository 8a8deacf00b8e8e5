// Timeouts and abort signals. `AbortSignal.any` could replace half of it, but Node 18 does not have it.

/** Sleeps. Rejects with the reason of the signal if it is aborted meanwhile. */
export function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const stop = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/**
 * The timeout of a request: ends it after a time without data, or when the signal of the caller is aborted.
 *
 * `restart()` restarts the time, `stop()` stops it while no data is expected, and `close()` stops it for good.
 */
export class IdleTimer {
  /** Whether the time without data was the reason. */
  expired = false;
  /** Called once when the request has to end. Cheaper than a listener of `signal`. */
  onOver: (() => void) | undefined;
  #controller: AbortController | undefined;
  readonly #end = (): void => {
    this.#controller?.abort(this.#caller?.reason);
    this.onOver?.();
  };
  readonly #expire = (): void => {
    this.expired = true;
    this.#end();
  };
  #timeout: ReturnType<typeof setTimeout> | undefined;
  #closed = false;

  readonly #caller: AbortSignal | undefined;
  readonly #limitMs: number;

  constructor(limitMs: number, caller: AbortSignal | undefined) {
    this.#limitMs = limitMs;
    this.#caller = caller;
    caller?.addEventListener("abort", this.#end, { once: true });
    this.restart();
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#caller?.aborted) this.#controller.abort(this.#caller.reason);
      else if (this.expired) this.#controller.abort();
    }
    return this.#controller.signal;
  }

  /** Whether the request has to end already. */
  get isOver(): boolean {
    return this.expired || this.#caller?.aborted === true;
  }

  /** Restarts the time, this once with `moreMs` more. */
  restart(moreMs = 0): void {
    clearTimeout(this.#timeout);
    if (this.#closed) return; // the rest of a body, sent after the response has arrived
    this.#timeout = setTimeout(this.#expire, this.#limitMs + moreMs);
  }

  stop(): void {
    clearTimeout(this.#timeout);
  }

  close(): void {
    this.stop();
    this.#closed = true;
    this.#caller?.removeEventListener("abort", this.#end);
  }
}
