"""What a model is written with. `python -m stokehold.runner` is what a worker runs it in."""

from stokehold.runner.context import Job, current_job, progress
from stokehold.runner.decorator import endpoint
from stokehold.runner.errors import Cancelled, Reject
from stokehold.runner.field import Field

__all__ = ["Cancelled", "Field", "Job", "Reject", "current_job", "endpoint", "progress"]
