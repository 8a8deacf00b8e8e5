"""Stokehold for Python: the client that submits jobs, and what a model is written with.

The client needs httpx and is imported on first use; a model's environment, which has no httpx, never touches it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from stokehold.runner import Cancelled, Field, Reject, current_job, endpoint, progress

if TYPE_CHECKING:
    from stokehold._async_client import AsyncClient, AsyncFileRef, AsyncJob
    from stokehold._client import Client, FileRef, Job
    from stokehold._errors import (
        ApiError,
        BadRequest,
        Conflict,
        ConnectionFailed,
        DeployError,
        FieldProblem,
        Forbidden,
        InvalidInput,
        JobCancelled,
        JobError,
        JobExpired,
        JobFailed,
        NotFound,
        PartlySubmitted,
        RateLimited,
        ServerError,
        StokeholdError,
        TimedOut,
        Unauthorized,
        Unavailable,
        WaitTimeout,
    )
    from stokehold._events import DoneEvent, Event, LogEvent, OutputEvent, ProgressEvent, StateEvent
    from stokehold._models import (
        Attempt,
        Endpoint,
        Failure,
        FileInfo,
        JobRecord,
        JobState,
        Priority,
        Progress,
        Timing,
        Worker,
    )
    from stokehold._retry import Retry

__version__ = "0.1.0"

__all__ = [
    "ApiError",
    "AsyncClient",
    "AsyncFileRef",
    "AsyncJob",
    "Attempt",
    "BadRequest",
    "Cancelled",
    "Client",
    "Conflict",
    "ConnectionFailed",
    "DeployError",
    "DoneEvent",
    "Endpoint",
    "Event",
    "Failure",
    "Field",
    "FieldProblem",
    "FileInfo",
    "FileRef",
    "Forbidden",
    "InvalidInput",
    "Job",
    "JobCancelled",
    "JobError",
    "JobExpired",
    "JobFailed",
    "JobRecord",
    "JobState",
    "LogEvent",
    "NotFound",
    "OutputEvent",
    "PartlySubmitted",
    "Priority",
    "Progress",
    "ProgressEvent",
    "RateLimited",
    "Reject",
    "Retry",
    "ServerError",
    "StateEvent",
    "StokeholdError",
    "TimedOut",
    "Timing",
    "Unauthorized",
    "Unavailable",
    "WaitTimeout",
    "Worker",
    "current_job",
    "endpoint",
    "progress",
]

_CLIENT_MODULES = {
    "ApiError": "stokehold._errors",
    "AsyncClient": "stokehold._async_client",
    "AsyncFileRef": "stokehold._async_client",
    "AsyncJob": "stokehold._async_client",
    "Attempt": "stokehold._models",
    "BadRequest": "stokehold._errors",
    "Client": "stokehold._client",
    "Conflict": "stokehold._errors",
    "ConnectionFailed": "stokehold._errors",
    "DeployError": "stokehold._errors",
    "DoneEvent": "stokehold._events",
    "Endpoint": "stokehold._models",
    "Event": "stokehold._events",
    "Failure": "stokehold._models",
    "FieldProblem": "stokehold._errors",
    "FileInfo": "stokehold._models",
    "FileRef": "stokehold._client",
    "Forbidden": "stokehold._errors",
    "InvalidInput": "stokehold._errors",
    "Job": "stokehold._client",
    "JobCancelled": "stokehold._errors",
    "JobError": "stokehold._errors",
    "JobExpired": "stokehold._errors",
    "JobFailed": "stokehold._errors",
    "JobRecord": "stokehold._models",
    "JobState": "stokehold._models",
    "LogEvent": "stokehold._events",
    "NotFound": "stokehold._errors",
    "OutputEvent": "stokehold._events",
    "PartlySubmitted": "stokehold._errors",
    "Priority": "stokehold._models",
    "Progress": "stokehold._models",
    "ProgressEvent": "stokehold._events",
    "RateLimited": "stokehold._errors",
    "Retry": "stokehold._retry",
    "ServerError": "stokehold._errors",
    "StateEvent": "stokehold._events",
    "StokeholdError": "stokehold._errors",
    "TimedOut": "stokehold._errors",
    "Timing": "stokehold._models",
    "Unauthorized": "stokehold._errors",
    "Unavailable": "stokehold._errors",
    "WaitTimeout": "stokehold._errors",
    "Worker": "stokehold._models",
}


def __getattr__(name: str) -> Any:
    module = _CLIENT_MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_CLIENT_MODULES))
