// The retry policy. Pure: the jitter is an argument.

import { ApiError, ConnectionFailed, TimedOut } from "./error.js";

/**
 * Capped exponential backoff with full jitter: the nth pause is random, from 0 to min(capMs, baseMs * 2^n).
 *
 * The defaults give pauses of at most 0.5, 1, 2, 4 and 8 s, long enough for a server to restart.
 */
export interface RetryPolicy {
  maxRetries: number;
  baseMs: number;
  capMs: number;
}

export const DEFAULT_RETRY: RetryPolicy = { maxRetries: 5, baseMs: 500, capMs: 8_000 };

/** With a longer `Retry-After`, the error is thrown at once instead of waiting. */
const LONGEST_RETRY_AFTER_S = 60;

/** After these, the API may have carried out the request: a proxy can send them for a response that it has lost. */
const UNCERTAIN_STATUSES: readonly number[] = [502, 503, 504];

const RETRY_STATUSES: ReadonlySet<number> = new Set([429, ...UNCERTAIN_STATUSES]);

/**
 * Milliseconds to wait before retry number `retries` (from 0), or undefined to give up. `jitter` is from 0 to 1.
 *
 * A `Retry-After` is honored in full. Some jitter is added, so that clients do not all retry at the same time.
 */
export function retryDelayMs(policy: RetryPolicy, retries: number, error: unknown, jitter: number): number | undefined {
  if (retries >= policy.maxRetries || !isRetryable(error)) return undefined;
  const retryAfterS = error instanceof ApiError ? error.retryAfterS : undefined;
  if (retryAfterS === undefined) return jitter * Math.min(policy.capMs, policy.baseMs * 2 ** retries);
  return retryAfterS > LONGEST_RETRY_AFTER_S ? undefined : retryAfterS * 1000 + jitter * policy.baseMs;
}

/** Whether the API may have carried out the request although it failed with this error. */
export function mayHaveHappened(error: unknown): boolean {
  if (error instanceof ApiError) return UNCERTAIN_STATUSES.includes(error.status);
  return error instanceof ConnectionFailed || error instanceof TimedOut;
}

/** Whether the same request may succeed later. */
function isRetryable(error: unknown): boolean {
  if (error instanceof ApiError) return RETRY_STATUSES.has(error.status);
  return error instanceof ConnectionFailed || error instanceof TimedOut;
}
