"""Stokehold for Python: the client that submits jobs, and what a model is written with.

The client needs httpx and is imported on first use; a model's environment, which has no httpx, never touches it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from stokehold.runner import Cancelled, Field, Reject, current_job, endpoint, progress

if TYPE_CHECKING:
    from stokehold._async_client import AsyncClient, AsyncJob
    from stokehold._client import Client, Job
    from stokehold._models import FileRef

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "AsyncJob",
    "Cancelled",
    "Client",
    "Field",
    "FileRef",
    "Job",
    "Reject",
    "current_job",
    "endpoint",
    "progress",
]

_CLIENT_MODULES = {
    "AsyncClient": "stokehold._async_client",
    "AsyncJob": "stokehold._async_client",
    "Client": "stokehold._client",
    "FileRef": "stokehold._models",
    "Job": "stokehold._client",
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
