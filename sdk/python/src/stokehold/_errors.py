"""Everything this client raises, one class for each thing a caller would do differently.

StokeholdError
├── ApiError                the API answered, but not with success
│   ├── BadRequest          change the request
│   │   └── InvalidInput    the input does not match the endpoint's schema; `errors` says where
│   ├── Unauthorized        no token, or not a good one
│   ├── Forbidden           the token lacks a scope
│   ├── NotFound            no such job, endpoint, version or file
│   ├── Conflict            it is in another state than the request supposes
│   │   ├── NotRetryable    the job has not failed, expired or been cancelled
│   │   └── NothingToRetry  no line of the batch failed or expired
│   ├── RateLimited         too much at once; `retry_after_s` says when to come back
│   │   └── QuotaExceeded   your own limit, which `client.limits()` shows, not the API's
│   ├── Unavailable         something behind the API is away; repeating is safe
│   └── ServerError         a defect of the server
├── ConnectionFailed        no answer: refused, reset, cut off (also a builtin ConnectionError)
├── TimedOut                no answer in time (also a builtin TimeoutError)
├── WaitTimeout             the job or batch had not ended in time; it runs on (also a builtin TimeoutError)
├── PartlySubmitted         `submit_many` failed half way; `jobs` are those accepted
├── DeployError             the folder cannot be deployed; nothing was sent
├── WebhookVerificationError  the request did not come from your Stokehold, or is too old (also a builtin ValueError)
└── JobError                the job ended without a result
    ├── JobFailed
    │   ├── JobRejected     the handler, or a step before or after it, refuses this input for good
    │   ├── DependencyFailed  a job that it depends on, or one of its steps, has no result
    │   ├── JobPoisoned     it crashed its runner on several workers, and is not let near another
    │   └── OutOfGpuMemory  it needs more GPU memory than there is where it ran
    ├── JobCancelled
    └── JobExpired

A `ConnectionFailed`, `TimedOut` or `Unavailable` of a submit means that the outcome is unknown. All tries carried one
idempotency key; to be able to repeat the call itself safely, give it an `idempotency_key` of your own.
"""

# ruff: noqa: N818 (a name that says the cause reads better in `except NotFound` than one more "Error")

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from stokehold._models import Failure


class StokeholdError(Exception):
    """The root of all that this client raises."""


class FieldProblem(NamedTuple):
    """One wrong place in a request."""

    path: str
    message: str


class ApiError(StokeholdError):
    """The API answered, but not with success."""

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
    """The request is wrong; repeating it as it is cannot succeed."""


class InvalidInput(BadRequest):
    """The input does not match the endpoint's schema; `errors` says where."""


class Unauthorized(ApiError):
    """No token, or not a good one."""


class Forbidden(ApiError):
    """The token lacks a scope."""


class NotFound(ApiError):
    """No such job, endpoint, version or file."""


class Conflict(ApiError):
    """The thing is in another state than the request supposes."""


class NotRetryable(Conflict):
    """The job has not failed, expired or been cancelled, so there is nothing to do again."""


class NothingToRetry(Conflict):
    """No line of the batch failed or expired."""


class RateLimited(ApiError):
    """Too much at once; `retry_after_s` says when to come back."""


class QuotaExceeded(RateLimited):
    """One of your own limits is reached: open jobs, running jobs or starts a minute. `client.limits()` shows them."""


class Unavailable(ApiError):
    """Something behind the API is away; repeating with the same idempotency key is safe."""


class ServerError(ApiError):
    """A defect of the server."""


class ConnectionFailed(StokeholdError, ConnectionError):
    """No answer: the connection was refused, reset or cut off."""


class TimedOut(StokeholdError, TimeoutError):
    """No answer in time."""


class WaitTimeout(StokeholdError, TimeoutError):
    """The job or batch had not ended in time. It was not cancelled and runs on."""

    def __init__(self, subject_id: str, timeout_s: float, state: str, what: str = "job") -> None:
        self.job_id = subject_id if what == "job" else None
        self.batch_id = subject_id if what == "batch" else None
        self.timeout_s = timeout_s
        self.state = state
        super().__init__(
            f"{what} {subject_id} is still {state} after {timeout_s:g} s; it runs on, wait for it again or cancel it"
        )


class PartlySubmitted(StokeholdError):
    """`submit_many` failed after a part was accepted; the cause says why. `jobs` are those of the first inputs."""

    def __init__(self, jobs: Sequence[Any], total: int) -> None:
        self.jobs = list(jobs)
        super().__init__(f"{len(self.jobs)} of {total} jobs were accepted before this failed")


class DeployError(StokeholdError):
    """The folder cannot be deployed; nothing was sent."""


class WebhookVerificationError(StokeholdError, ValueError):
    """The request did not come from your Stokehold, or is too old to be believed. Answer it with 401."""


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
    """Every attempt failed; `code`, `class_name`, `message`, `traceback` and `stderr` are the last one's."""


class JobRejected(JobFailed):
    """The handler, or a step before or after it, refuses this input for good; `message` says why."""


class DependencyFailed(JobFailed):
    """A job that it depends on, or one of its steps, ended without a result."""


class JobPoisoned(JobFailed):
    """It crashed its runner again and again, on more than one worker, and is not tried further."""


class OutOfGpuMemory(JobFailed):
    """It needed more GPU memory than there was: a smaller input, or a larger `vram_gib` of its endpoint, may help."""


class JobCancelled(JobError):
    """It was cancelled."""


class JobExpired(JobError):
    """Its deadline passed before it ended."""


def job_error(job_id: str, state: str, failure: Failure | None) -> JobError:
    """The error for a job that ended in `state`, which is not `succeeded`."""
    if state == "cancelled":
        return JobCancelled(job_id, f"job {job_id} was cancelled", failure)
    if state == "expired":
        return JobExpired(job_id, f"job {job_id} expired: its deadline passed before it ended", failure)
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
    "quota_exceeded": QuotaExceeded,
}
_FAILED_BY_CODE: Mapping[str, type[JobFailed]] = {
    "rejected": JobRejected,
    "dependency_failed": DependencyFailed,
    "poison": JobPoisoned,
    "oom_gpu": OutOfGpuMemory,
}


def api_error_class(status: int, code: str) -> type[ApiError]:
    """Which class tells this answer's cause."""
    by_cause = _BY_CODE.get(code) or _BY_STATUS.get(status)
    if by_cause is not None:
        return by_cause
    return ServerError if status >= 500 else BadRequest


# Known by the name that people import, in tracebacks and in logs.
for _public in [kind for kind in globals().values() if isinstance(kind, type) and issubclass(kind, StokeholdError)]:
    _public.__module__ = "stokehold"
