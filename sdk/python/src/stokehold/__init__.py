"""Stokehold for Python: the clients, which submit jobs, and the decorators and functions for writing a model.

The clients need httpx and are imported on first use. The environment of a model has no httpx and never imports them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from stokehold.runner import (
    Cancelled,
    Field,
    JobRetry,
    Reject,
    Step,
    allow,
    current_job,
    endpoint,
    progress,
    reject,
    rewrite,
)

if TYPE_CHECKING:
    from stokehold._async_client import AsyncClient
    from stokehold._async_job import AsyncFileRef, AsyncJob
    from stokehold._async_resources import (
        AsyncBatch,
        AsyncPipeline,
        AsyncSchedule,
    )
    from stokehold._batches import (
        BatchCounts,
        BatchOptions,
        BatchRecord,
        BatchState,
        InvalidLine,
    )
    from stokehold._client import Client
    from stokehold._errors import (
        ApiError,
        BadRequest,
        Conflict,
        ConnectionFailed,
        DependencyFailed,
        DeployError,
        FieldProblem,
        Forbidden,
        InvalidInput,
        JobCancelled,
        JobError,
        JobExpired,
        JobFailed,
        JobPoisoned,
        JobRejected,
        NotFound,
        NothingToRetry,
        NotRetryable,
        OutOfGpuMemory,
        PartlySubmitted,
        QuotaExceeded,
        RateLimited,
        ServerError,
        StokeholdError,
        TimedOut,
        Unauthorized,
        Unavailable,
        WaitTimeout,
        WebhookVerificationError,
    )
    from stokehold._events import (
        DoneEvent,
        Event,
        GapEvent,
        LogEvent,
        OutputEvent,
        ProgressEvent,
        StateEvent,
    )
    from stokehold._feedback import (
        Feedback,
        FeedbackStats,
    )
    from stokehold._job import FileRef, Job
    from stokehold._models import (
        Attempt,
        Dependee,
        Endpoint,
        Failure,
        FileInfo,
        JobRecord,
        JobState,
        Limits,
        Priority,
        Progress,
        Retried,
        StepRun,
        Timing,
        Worker,
    )
    from stokehold._options import (
        DeployOptions,
        JobFilter,
        JobOptions,
    )
    from stokehold._references import (
        Reference,
    )
    from stokehold._resources import (
        Batch,
        Pipeline,
        Schedule,
    )
    from stokehold._retry import (
        Retry,
    )
    from stokehold._schedules import (
        ScheduleRecord,
    )
    from stokehold._verify import (
        WebhookEvent,
        verify_webhook,
    )
    from stokehold._webhooks import (
        Delivery,
        DeliveryTry,
        WebhookSecret,
    )

__version__ = "0.1.0"

__all__ = [
    "ApiError",
    "AsyncBatch",
    "AsyncClient",
    "AsyncFileRef",
    "AsyncJob",
    "AsyncPipeline",
    "AsyncSchedule",
    "Attempt",
    "BadRequest",
    "Batch",
    "BatchCounts",
    "BatchOptions",
    "BatchRecord",
    "BatchState",
    "Cancelled",
    "Client",
    "Conflict",
    "ConnectionFailed",
    "Delivery",
    "DeliveryTry",
    "Dependee",
    "DependencyFailed",
    "DeployError",
    "DeployOptions",
    "DoneEvent",
    "Endpoint",
    "Event",
    "Failure",
    "Feedback",
    "FeedbackStats",
    "Field",
    "FieldProblem",
    "FileInfo",
    "FileRef",
    "Forbidden",
    "GapEvent",
    "InvalidInput",
    "InvalidLine",
    "Job",
    "JobCancelled",
    "JobError",
    "JobExpired",
    "JobFailed",
    "JobFilter",
    "JobOptions",
    "JobPoisoned",
    "JobRecord",
    "JobRejected",
    "JobRetry",
    "JobState",
    "Limits",
    "LogEvent",
    "NotFound",
    "NotRetryable",
    "NothingToRetry",
    "OutOfGpuMemory",
    "OutputEvent",
    "PartlySubmitted",
    "Pipeline",
    "Priority",
    "Progress",
    "ProgressEvent",
    "QuotaExceeded",
    "RateLimited",
    "Reference",
    "Reject",
    "Retried",
    "Retry",
    "Schedule",
    "ScheduleRecord",
    "ServerError",
    "StateEvent",
    "Step",
    "StepRun",
    "StokeholdError",
    "TimedOut",
    "Timing",
    "Unauthorized",
    "Unavailable",
    "WaitTimeout",
    "WebhookEvent",
    "WebhookSecret",
    "WebhookVerificationError",
    "Worker",
    "allow",
    "current_job",
    "endpoint",
    "progress",
    "reject",
    "rewrite",
    "verify_webhook",
]

_CLIENT_MODULES = {
    "ApiError": "stokehold._errors",
    "AsyncBatch": "stokehold._async_resources",
    "AsyncClient": "stokehold._async_client",
    "AsyncFileRef": "stokehold._async_job",
    "AsyncJob": "stokehold._async_job",
    "AsyncPipeline": "stokehold._async_resources",
    "AsyncSchedule": "stokehold._async_resources",
    "Attempt": "stokehold._models",
    "BadRequest": "stokehold._errors",
    "Batch": "stokehold._resources",
    "BatchCounts": "stokehold._batches",
    "BatchOptions": "stokehold._batches",
    "BatchRecord": "stokehold._batches",
    "BatchState": "stokehold._batches",
    "Client": "stokehold._client",
    "Conflict": "stokehold._errors",
    "ConnectionFailed": "stokehold._errors",
    "Delivery": "stokehold._webhooks",
    "DeliveryTry": "stokehold._webhooks",
    "Dependee": "stokehold._models",
    "DependencyFailed": "stokehold._errors",
    "DeployError": "stokehold._errors",
    "DeployOptions": "stokehold._options",
    "DoneEvent": "stokehold._events",
    "Endpoint": "stokehold._models",
    "Event": "stokehold._events",
    "Failure": "stokehold._models",
    "Feedback": "stokehold._feedback",
    "FeedbackStats": "stokehold._feedback",
    "FieldProblem": "stokehold._errors",
    "FileInfo": "stokehold._models",
    "FileRef": "stokehold._job",
    "Forbidden": "stokehold._errors",
    "GapEvent": "stokehold._events",
    "InvalidInput": "stokehold._errors",
    "InvalidLine": "stokehold._batches",
    "Job": "stokehold._job",
    "JobCancelled": "stokehold._errors",
    "JobError": "stokehold._errors",
    "JobExpired": "stokehold._errors",
    "JobFailed": "stokehold._errors",
    "JobFilter": "stokehold._options",
    "JobOptions": "stokehold._options",
    "JobPoisoned": "stokehold._errors",
    "JobRecord": "stokehold._models",
    "JobRejected": "stokehold._errors",
    "JobState": "stokehold._models",
    "Limits": "stokehold._models",
    "LogEvent": "stokehold._events",
    "NotFound": "stokehold._errors",
    "NotRetryable": "stokehold._errors",
    "NothingToRetry": "stokehold._errors",
    "OutOfGpuMemory": "stokehold._errors",
    "OutputEvent": "stokehold._events",
    "PartlySubmitted": "stokehold._errors",
    "Pipeline": "stokehold._resources",
    "Priority": "stokehold._models",
    "Progress": "stokehold._models",
    "ProgressEvent": "stokehold._events",
    "QuotaExceeded": "stokehold._errors",
    "RateLimited": "stokehold._errors",
    "Reference": "stokehold._references",
    "Retried": "stokehold._models",
    "Retry": "stokehold._retry",
    "Schedule": "stokehold._resources",
    "ScheduleRecord": "stokehold._schedules",
    "ServerError": "stokehold._errors",
    "StateEvent": "stokehold._events",
    "StepRun": "stokehold._models",
    "StokeholdError": "stokehold._errors",
    "TimedOut": "stokehold._errors",
    "Timing": "stokehold._models",
    "Unauthorized": "stokehold._errors",
    "Unavailable": "stokehold._errors",
    "WaitTimeout": "stokehold._errors",
    "WebhookEvent": "stokehold._verify",
    "WebhookSecret": "stokehold._webhooks",
    "WebhookVerificationError": "stokehold._errors",
    "Worker": "stokehold._models",
    "verify_webhook": "stokehold._verify",
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
