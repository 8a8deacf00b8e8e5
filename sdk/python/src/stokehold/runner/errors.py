"""What a handler raises, and what is raised in it.

Reject       Exception      the handler refuses its input for good
BadOutput    Exception      the handler returned what cannot be sent
Cancelled    BaseException  the job was cancelled, or its time is up
"""

from __future__ import annotations


class Reject(Exception):  # noqa: N818 - read at the place it is raised: `raise Reject("no face found")`
    """Raise it when the input will never work: the job fails at once, without a retry."""


class Cancelled(BaseException):
    """Raised inside a plain handler whose job was cancelled or timed out. Clean up and let it pass.

    An async handler gets `asyncio.CancelledError` instead.
    """


class BadOutput(Exception):  # noqa: N818
    """The result, or a part of it, has no JSON form."""


# Known by the name that people import, in tracebacks and in a job's error.
for _public in (Reject, Cancelled):
    _public.__module__ = "stokehold"
