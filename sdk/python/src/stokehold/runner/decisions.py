"""Return values of a handler that runs as a step before or after a job.

A step before a job gets `endpoint`, `input` and `thresholds`; a step after it also gets `output`. It may return just
`{"scores": {label: 0 to 1}}` instead; then the thresholds of the step decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Decision = dict[str, Any]


def allow() -> Decision:
    """Lets the job continue unchanged."""
    return {"decision": "allow"}


def reject(reason: str, scores: Mapping[str, float] | None = None) -> Decision:
    """Fails the job with the code `rejected` and this reason, which is shown to its submitter."""
    if not reason:
        raise ValueError("reject(): give a reason, which is shown to the job's submitter")
    return _with_scores({"decision": "reject", "reason": reason}, scores)


def rewrite(value: Any, scores: Mapping[str, float] | None = None) -> Decision:
    """Lets the job continue with `value` as its input (step before) or its output (step after)."""
    return _with_scores({"decision": "rewrite", "value": value}, scores)


def _with_scores(decision: Decision, scores: Mapping[str, float] | None) -> Decision:
    return decision if scores is None else {**decision, "scores": dict(scores)}
