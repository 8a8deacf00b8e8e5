"""The retry policy. Pure: the jitter is an argument."""

from __future__ import annotations

from dataclasses import dataclass

from stokehold._errors import ApiError, ConnectionFailed, StokeholdError, TimedOut

# After these, the API may have carried out the request: a proxy can send them for a response that it has lost.
UNCERTAIN_STATUSES = frozenset({502, 503, 504})

RETRY_STATUSES = UNCERTAIN_STATUSES | {429}

# With a longer `Retry-After`, the error is raised at once instead of sleeping.
LONGEST_RETRY_AFTER_S = 60.0


@dataclass(frozen=True)
class Retry:
    """Capped exponential backoff with full jitter: the nth pause is random, from 0 to min(cap_s, base_s * 2^n).

    The defaults give pauses of at most 0.5, 1, 2, 4 and 8 s, long enough for a server to restart.
    """

    max_retries: int = 5
    base_s: float = 0.5
    cap_s: float = 8.0

    def delay_s(self, retries: int, error: StokeholdError, jitter: float) -> float | None:
        """Seconds to wait before retry number `retries` (from 0), or None to give up. `jitter` is from 0 to 1.

        A `Retry-After` is honored in full. Some jitter is added, so that clients do not all retry at the same time.
        """
        if retries >= self.max_retries or not is_retryable(error):
            return None
        retry_after_s = error.retry_after_s if isinstance(error, ApiError) else None
        if retry_after_s is None:
            return jitter * min(self.cap_s, self.base_s * 2.0 ** min(retries, 32))
        if retry_after_s > LONGEST_RETRY_AFTER_S:
            return None
        return retry_after_s + jitter * self.base_s


def is_retryable(error: StokeholdError) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, ApiError):
        return error.status in RETRY_STATUSES
    return isinstance(error, (ConnectionFailed, TimedOut))
