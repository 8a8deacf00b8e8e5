// Waiting for an end, a job's or a batch's, by long polls.

import { pause } from "../internal/signal.js";
import { WaitTimeout } from "./error.js";

/** One long poll: below the 60 s that the API allows and that many proxies cut at. */
const POLL_S = 30;

/** The first pause after a poll that was not held, and how often it doubles: 20 ms to 1.28 s. */
const PAUSE_MS = 20;
const PAUSE_DOUBLINGS = 6;

/** What is waited for. */
export interface Ending<R> {
  what: "job" | "batch";
  ended: (record: R) => boolean;
  /** Longest one look is held, seconds. Default 30. */
  pollS?: number;
}

/**
 * Looks until it has ended. One request is held open at a time; the last second before a deadline is polled.
 *
 * `look` is given how long to hold and, when there is one, the deadline (`performance.now()` milliseconds).
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
      // Not held as asked (a proxy, a server that shuts down) or the last second: do not spin.
      await pause(Math.min(PAUSE_MS * 2 ** Math.min(early, PAUSE_DOUBLINGS), deadlineMs - nowMs), signal);
      early += 1;
    }
  }
  return record;
}
