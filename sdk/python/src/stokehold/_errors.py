"""The exceptions of the clients: one class for each case that a caller would handle differently.

StokeholdError
├── ApiError                the API returned an error
│   ├── BadRequest          the request is invalid; change it
│   │   └── InvalidInput    the input does not match the schema of the endpoint; `errors` lists where
│   ├── Unauthorized        the token is missing or invalid
│   ├── Forbidden           the token lacks a scope
│   ├── NotFound            the job, endpoint, version or file does not exist
│   ├── Conflict            the current state does not allow the request
│   │   ├── NotRetryable    the job has not failed, expired or been cancelled
│   │   ├── NothingToRetry  no line of the batch failed or expired
│   │   └── InUse           `dependents` need what was to be deleted; pass `force=True`, or delete these first
│   ├── RateLimited         too many requests; retry after `retry_after_s`
│   │   └── QuotaExceeded   one of your own limits is reached; see `client.limits()`
│   ├── Unavailable         a service behind the API is unavailable; a retry is safe
│   └── ServerError         a bug in the server
├── ConnectionFailed        no response: refused, reset or closed early (also a builtin ConnectionError)
├── TimedOut                no response in time (also a builtin TimeoutError)
├── WaitTimeout             the job or batch did not end in time; it continues (also a builtin TimeoutError)
├── PartlySubmitted         `submit_many` failed after some jobs were accepted; these are `jobs`
├── DeployError             the folder cannot be deployed; nothing was sent
├── WebhookVerificationError  the request is not from your Stokehold, or is too old (also a builtin ValueError)
└── JobError                the job ended without a result
    ├── JobFailed
    │   ├── JobRejected     the handler, or a step before or after it, rejected the input for good
    │   ├── DependencyFailed  a job that it depends on, or one of its steps, has no result
    │   ├── JobPoisoned     it crashed its runner on several workers, and is not run again
    │   └── OutOfGpuMemory  it needed more GPU memory than was available
    ├── JobCancelled
    └── JobExpired

After a `ConnectionFailed`, `TimedOut` or `Unavailable` of a submit, the outcome is unknown. All retries within one call
use the same idempotency key. To repeat the call itself safely, pass an `idempotency_key` of your own.
"""

# ruff: noqa: N818 (`except NotFound` reads better than `except NotFoundError`)

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from stokehold._generated.deletion import Dependent
    from stokehold._models import Failure


class StokeholdError(Exception):
    """The base class of all exceptions of the clients."""


class FieldProblem(NamedTuple):
    """An invalid value in a request: its path, and what is wrong with it."""

    path: str
    message: str


class ApiError(StokeholdError):
    """The API returned an error."""

    def __init__(
        self,
        detail: str,
        *,
        status: int,
        code: str,
        request_id: str | None = None,
        errors: Sequence[FieldProblem] = (),
        retry_after_s: float | None = None,
    ) -> None:
        self.status = status
        self.code = code
        self.detail = detail
        self.request_id = request_id
        self.errors = tuple(errors)
        self.retry_after_s = retry_after_s
        places = [f"{error.path or '/'}: {error.message}" for error in self.errors if error.message not in detail]
        super().__init__(f"{detail} ({'; '.join([*places, f'{status} {code}'])})")


class BadRequest(ApiError):
    """The request is invalid. It cannot succeed unless it is changed."""


class InvalidInput(BadRequest):
    """The input does not match the schema of the endpoint. `errors` lists where."""


class Unauthorized(ApiError):
    """The token is missing or invalid."""


class Forbidden(ApiError):
    """The token lacks a scope."""


class NotFound(ApiError):
    """The job, endpoint, version or file does not exist."""


class Conflict(ApiError):
    """The current state of the job, batch or other object does not allow the request."""


class NotRetryable(Conflict):
    """The job has not failed, expired or been cancelled, so it cannot be retried."""


class NothingToRetry(Conflict):
    """No line of the batch failed or expired."""


class InUse(Conflict):
    """Something depends on what was to be deleted. `dependents` lists it, by kind."""

    dependents: tuple[Dependent, ...] = ()


class RateLimited(ApiError):
    """Too many requests. `retry_after_s` is the time to wait before a retry."""


class QuotaExceeded(RateLimited):
    """One of your own limits is reached: open jobs, running jobs or starts a minute. See `client.limits()`."""


class Unavailable(ApiError):
    """A service behind the API is unavailable. A retry with the same idempotency key is safe."""


class ServerError(ApiError):
    """A bug in the server."""


class ConnectionFailed(StokeholdError, ConnectionError):
    """No response: the connection was refused, reset or closed early."""


class TimedOut(StokeholdError, TimeoutError):
    """No response in time."""


class WaitTimeout(StokeholdError, TimeoutError):
    """The job or batch did not end in time. It is not cancelled and continues."""

    def __init__(self, subject_id: str, timeout_s: float, state: str, what: str = "job") -> None:
        self.job_id = subject_id if what == "job" else None
        self.batch_id = subject_id if what == "batch" else None
        self.timeout_s = timeout_s
        self.state = state
        super().__init__(
            f"{what} {subject_id} is still {state} after {timeout_s:g} s and continues; wait again, or cancel it"
        )


class PartlySubmitted(StokeholdError):
    """`submit_many` failed after some jobs were accepted. `jobs` are those of the first inputs.

    The reason is in `__cause__`.
    """

    def __init__(self, jobs: Sequence[Any], total: int) -> None:
        self.jobs = list(jobs)
        super().__init__(f"{len(self.jobs)} of {total} jobs were accepted before a request failed")


class DeployError(StokeholdError):
    """The folder cannot be deployed; nothing was sent."""


class WebhookVerificationError(StokeholdError, ValueError):
    """The request is not from your Stokehold, or is too old. Respond to it with 401."""


class JobError(StokeholdError):
    """The job ended without a result."""

    def __init__(self, job_id: str, text: str, failure: Failure | None) -> None:
        self.job_id = job_id
        self.code = failure.code if failure else ""
        self.class_name = failure.class_name if failure else ""
        self.message = failure.message if failure else ""
        self.traceback = failure.traceback if failure else None
        self.stderr = failure.stderr if failure else None
        super().__init__(text)


class JobFailed(JobError):
    """Every attempt failed. `code`, `class_name`, `message`, `traceback` and `stderr` describe the last failure."""


class JobRejected(JobFailed):
    """The handler, or a step before or after it, rejected the input for good. `message` is the reason."""


class DependencyFailed(JobFailed):
    """A job that this job depends on, or one of its steps, ended without a result."""


class JobPoisoned(JobFailed):
    """The job crashed its runner several times, on more than one worker, and is not run again."""


class OutOfGpuMemory(JobFailed):
    """The job needed more GPU memory than was available. Try a smaller input or a larger `vram_gib`."""


class JobCancelled(JobError):
    """The job was cancelled."""


class JobExpired(JobError):
    """The job did not start within its queue timeout, or did not end before its deadline."""


def job_error(job_id: str, state: str, failure: Failure | None) -> JobError:
    """Returns the error for a job that ended in `state`, which is not `succeeded`."""
    if state == "cancelled":
        return JobCancelled(job_id, f"job {job_id} was cancelled", failure)
    if state == "expired":
        return JobExpired(job_id, f"job {job_id} expired: it did not start or end in time", failure)
    if failure is None:
        return JobFailed(job_id, f"job {job_id} failed", None)
    what = ": ".join(part for part in (failure.class_name, failure.message) if part)
    kind = _FAILED_BY_CODE.get(failure.code, JobFailed)
    return kind(job_id, f"job {job_id} failed ({failure.code}): {what}", failure)


_BY_STATUS: Mapping[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    429: RateLimited,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}
_BY_CODE: Mapping[str, type[ApiError]] = {
    "invalid_input": InvalidInput,
    "idempotency_conflict": Conflict,
    "not_retryable": NotRetryable,
    "nothing_to_retry": NothingToRetry,
    "in_use": InUse,
    "quota_exceeded": QuotaExceeded,
}
_FAILED_BY_CODE: Mapping[str, type[JobFailed]] = {
    "rejected": JobRejected,
    "dependency_failed": DependencyFailed,
    "poison": JobPoisoned,
    "oom_gpu": OutOfGpuMemory,
}


def api_error_class(status: int, code: str) -> type[ApiError]:
    """Returns the class for an error response."""
    by_cause = _BY_CODE.get(code) or _BY_STATUS.get(status)
    if by_cause is not None:
        return by_cause
    return ServerError if status >= 500 else BadRequest


# Tracebacks and logs show the name that is imported.
for _public in [kind for kind in globals().values() if isinstance(kind, type) and issubclass(kind, StokeholdError)]:
    _public.__module__ = "stokehold"
