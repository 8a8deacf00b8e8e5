"""The exceptions that a handler raises, and those that are raised in it.

Reject       Exception      the handler rejects its input for good
BadOutput    Exception      the handler returned a value that cannot be sent
Cancelled    BaseException  the job was cancelled or timed out
"""

from __future__ import annotations


class Reject(Exception):  # noqa: N818 - `raise Reject("no face found")` reads better than with "Error"
    """Raise it for an input that can never succeed. The job fails at once, without a retry."""


class Cancelled(BaseException):
    """Raised in a handler that is not async when its job is cancelled or times out. Clean up, and do not suppress it.

    An async handler gets `asyncio.CancelledError` instead.
    """


class BadOutput(Exception):  # noqa: N818
    """The result, or a part of it, has no JSON form."""


# Tracebacks and the errors of jobs show the name that is imported.
for _public in (Reject, Cancelled):
    _public.__module__ = "stokehold"
