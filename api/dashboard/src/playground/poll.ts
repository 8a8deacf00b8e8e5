// Polling: one request at a time, and longer pauses while requests fail.
import { ApiError } from "../api";

const PAUSE_MS = 1500;
/** Limit of the pause, which doubles with each failure in a row. */
export const PAUSE_MAX_MS = 30_000;

export interface Poll {
  /** Sends a request now or, if one is under way, right after it. */
  now: () => void;
  /** Aborts the request that is under way, and sends no other one. */
  stop: () => void;
}

export interface Polled<T> {
  get: (signal: AbortSignal) => Promise<T>;
  /** Receives an answer. Returns whether to go on. */
  take: (answer: T) => boolean;
  fail: (error: unknown) => void;
}

/** Sets a timer and returns what clears it. */
export type Later = (then: () => void, ms: number) => () => void;
const later: Later = (then, ms) => { const timer = setTimeout(then, ms); return () => clearTimeout(timer); };

/** Whether another request would get the same answer, e.g. because the job was deleted. */
function isFinal(error: unknown): boolean { return error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 408 && error.status !== 429; }

/** Sends the first request at once, and then one after each pause until `take` ends it or the API refuses for good. */
export function poll<T>({ get, take, fail }: Polled<T>, wait: Later = later): Poll {
  const stopped = new AbortController();
  let isAsking = false;
  let isWanted = false;
  let failures = 0;
  let cancel = () => {};
  const ask = async (): Promise<boolean> => {
    try {
      const answer = await get(stopped.signal);
      failures = 0;
      return !stopped.signal.aborted && take(answer);
    } catch (error) {
      if (stopped.signal.aborted) return false;
      failures += 1;
      fail(error);
      return !isFinal(error);
    }
  };
  const now = () => {
    if (isAsking) { isWanted = true; return; }
    if (stopped.signal.aborted) return;
    cancel();
    isAsking = true;
    isWanted = false;
    void ask().then((goesOn) => {
      isAsking = false;
      if (isWanted) now();
      else if (goesOn) cancel = wait(now, Math.min(PAUSE_MAX_MS, PAUSE_MS * 2 ** failures));
    });
  };
  now();
  return { now, stop: () => { stopped.abort(); cancel(); } };
}
