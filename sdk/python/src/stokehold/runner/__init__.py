"""The API for handler code. Workers run handlers with `python -m stokehold.runner`."""

from stokehold.runner.context import Job, current_job, progress
from stokehold.runner.decisions import allow, reject, rewrite
from stokehold.runner.decorator import endpoint
from stokehold.runner.errors import Cancelled, Reject
from stokehold.runner.field import Field
from stokehold.runner.policy import JobRetry, Step

__all__ = [
    "Cancelled",
    "Field",
    "Job",
    "JobRetry",
    "Reject",
    "Step",
    "allow",
    "current_job",
    "endpoint",
    "progress",
    "reject",
    "rewrite",
]
