// When to try again. Pure: the jitter is passed in.

import { ApiError, ConnectionFailed, TimedOut } from "./error.js";

/**
 * Capped exponential backoff with full jitter: the nth pause is drawn from 0 to min(capMs, baseMs * 2^n).
 *
 * The defaults give pauses of at most 0.5, 1, 2, 4 and 8 s: enough for a server to be restarted.
 */
export interface RetryPolicy {
  maxRetries: number;
  baseMs: number;
  capMs: number;
}

export const DEFAULT_RETRY: RetryPolicy = { maxRetries: 5, baseMs: 500, capMs: 8_000 };

/** A caller who is told to stay away for longer than this is better off knowing than sleeping. */
const LONGEST_RETRY_AFTER_S = 60;

const RETRY_STATUSES: ReadonlySet<number> = new Set([429, 502, 503, 504]);

/**
 * Milliseconds to wait before retry number `retries` (from 0), or undefined to give up. `jitter` is from 0 to 1.
 *
 * A `Retry-After` is kept in full, plus a little jitter: those sent away together should not come back together.
 */
export function retryDelayMs(policy: RetryPolicy, retries: number, error: unknown, jitter: number): number | undefined {
  if (retries >= policy.maxRetries || !isRetryable(error)) return undefined;
  const retryAfterS = error instanceof ApiError ? error.retryAfterS : undefined;
  if (retryAfterS === undefined) return jitter * Math.min(policy.capMs, policy.baseMs * 2 ** retries);
  return retryAfterS > LONGEST_RETRY_AFTER_S ? undefined : retryAfterS * 1000 + jitter * policy.baseMs;
}

/** Whether the same request may succeed later. */
function isRetryable(error: unknown): boolean {
  if (error instanceof ApiError) return RETRY_STATUSES.has(error.status);
  return error instanceof ConnectionFailed || error instanceof TimedOut;
}
