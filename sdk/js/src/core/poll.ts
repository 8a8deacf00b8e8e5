// Waiting for a job's end by long polls.

import { pause } from "../internal/signal.js";
import { isTerminal, type JobRecord } from "../resources/record.js";
import { WaitTimeout } from "./error.js";

/** One long poll: below the 60 s that the API allows and that many proxies cut at. */
const POLL_S = 30;

/** The first pause after a poll that was not held, and how often it doubles: 20 ms to 1.28 s. */
const PAUSE_MS = 20;
const PAUSE_DOUBLINGS = 6;

/**
 * Looks until the job has ended. One request is held open at a time; the last second before a deadline is polled.
 *
 * `look` is given how long to hold and, when there is one, the deadline (`performance.now()` milliseconds).
 */
export async function untilEnd(
  record: JobRecord,
  look: (holdS: number, deadlineMs: number) => Promise<JobRecord>,
  timeoutS: number | undefined,
  signal: AbortSignal | undefined,
): Promise<JobRecord> {
  const deadlineMs = timeoutS === undefined ? Infinity : performance.now() + timeoutS * 1000;
  let early = 0;
  while (!isTerminal(record.state)) {
    const askedMs = performance.now();
    const holdS = Math.max(0, Math.min(POLL_S, Math.floor((deadlineMs - askedMs) / 1000)));
    record = await look(holdS, deadlineMs);
    if (isTerminal(record.state)) break;
    const nowMs = performance.now();
    if (timeoutS !== undefined && nowMs >= deadlineMs) throw new WaitTimeout(record.id, timeoutS, record.state);
    if (holdS === 0 || nowMs - askedMs < holdS * 500) {
      // Not held as asked (a proxy, a server that shuts down) or the last second: do not spin.
      await pause(Math.min(PAUSE_MS * 2 ** Math.min(early, PAUSE_DOUBLINGS), deadlineMs - nowMs), signal);
      early += 1;
    }
  }
  return record;
}
