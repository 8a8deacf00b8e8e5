"""Exceptions that a handler raises, or that are raised in it.

Reject       Exception      the handler rejects its input permanently
BadOutput    Exception      the handler's return value cannot be sent
Cancelled    BaseException  the job was cancelled or timed out
"""

from __future__ import annotations


class Reject(Exception):  # noqa: N818 - read at the place it is raised: `raise Reject("no face found")`
    """Raise this when the input will never work: the job fails immediately, without a retry."""


class Cancelled(BaseException):
    """Raised inside a plain handler when its job was cancelled or timed out. Clean up and let it propagate.

    An async handler gets `asyncio.CancelledError` instead.
    """


class BadOutput(Exception):  # noqa: N818
    """The result, or a part of it, cannot be represented as JSON."""


# Tracebacks and job errors show the name under which users import them.
for _public in (Reject, Cancelled):
    _public.__module__ = "stokehold"
