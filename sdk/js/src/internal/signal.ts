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
 * A signal that is aborted by the signal of the caller or after a time without data. `heard()` restarts the clock,
 * `rest()` stops it while no data is expected, and `close()` stops it for good.
 */
export class Silence {
  /** Whether the time without data was the reason. */
  passed = false;
  /** Called once when the request has to end. Cheaper than a listener of `signal`. */
  onstop: (() => void) | undefined;
  #controller: AbortController | undefined;
  readonly #stop = (): void => {
    this.#controller?.abort(this.#caller?.reason);
    this.onstop?.();
  };
  #timer: ReturnType<typeof setTimeout> | undefined;
  #closed = false;

  readonly #caller: AbortSignal | undefined;
  readonly #limitMs: number;

  constructor(limitMs: number, caller: AbortSignal | undefined) {
    this.#limitMs = limitMs;
    this.#caller = caller;
    caller?.addEventListener("abort", this.#stop, { once: true });
    this.heard();
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#caller?.aborted) this.#controller.abort(this.#caller.reason);
      else if (this.passed) this.#controller.abort();
    }
    return this.#controller.signal;
  }

  /** Whether the request has to end already. */
  get stopped(): boolean {
    return this.passed || this.#caller?.aborted === true;
  }

  heard(): void {
    clearTimeout(this.#timer);
    if (this.#closed) return; // the rest of a body, sent after the response has arrived
    this.#timer = setTimeout(() => {
      this.passed = true;
      this.#stop();
    }, this.#limitMs);
  }

  rest(): void {
    clearTimeout(this.#timer);
  }

  close(): void {
    this.rest();
    this.#closed = true;
    this.#caller?.removeEventListener("abort", this.#stop);
  }
}
