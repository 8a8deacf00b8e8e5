// Waits for the end of a job or a batch with long polls.

import { pause } from "../internal/signal.js";
import { WaitTimeout } from "./error.js";

/** The length of a long poll, below the 60 s that the API allows and after which many proxies close connections. */
const POLL_S = 30;

/** The first pause after a poll that returned early, and how often it doubles: 20 ms to 1.28 s. */
const PAUSE_MS = 20;
const PAUSE_DOUBLINGS = 6;

/** The kind of the record, and when it has ended. */
export interface Ending<R> {
  what: "job" | "batch";
  ended: (record: R) => boolean;
  /** The length of a long poll in seconds. Default 30. */
  pollS?: number;
}

/**
 * Fetches the record until it has ended.
 *
 * Long polls are used until the last second before the deadline, and short polls after that. `look` receives the
 * seconds to hold the request, and the deadline (in milliseconds of `performance.now()`; `Infinity` if there is none).
 */
export async function untilEnd<R extends { id: string; state: string }>(
  record: R,
  { what, ended, pollS = POLL_S }: Ending<R>,
  look: (holdS: number, deadlineMs: number) => Promise<R>,
  timeoutS: number | undefined,
  signal: AbortSignal | undefined,
): Promise<R> {
  const deadlineMs = timeoutS === undefined ? Infinity : performance.now() + timeoutS * 1000;
  let early = 0;
  while (!ended(record)) {
    const askedMs = performance.now();
    const holdS = Math.max(0, Math.min(pollS, Math.floor((deadlineMs - askedMs) / 1000)));
    record = await look(holdS, deadlineMs);
    if (ended(record)) break;
    const nowMs = performance.now();
    if (timeoutS !== undefined && nowMs >= deadlineMs) throw new WaitTimeout(what, record.id, timeoutS, record.state);
    if (holdS === 0 || nowMs - askedMs < holdS * 500) {
      // Not held as asked (a proxy, a server that shuts down), or the last second: do not spin.
      await pause(Math.min(PAUSE_MS * 2 ** Math.min(early, PAUSE_DOUBLINGS), deadlineMs - nowMs), signal);
      early += 1;
    }
  }
  return record;
}
