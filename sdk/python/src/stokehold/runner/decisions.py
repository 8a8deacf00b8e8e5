"""The decisions that the handler of a step before or after a job returns.

A step before a job receives `endpoint`, `input` and `thresholds`; a step after a job also receives `output`. The
handler can also return only `{"scores": {label: 0 to 1}}`. The thresholds of the step then decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Decision = dict[str, Any]


def allow() -> Decision:
    """Accepts the job unchanged."""
    return {"decision": "allow"}


def reject(reason: str, scores: Mapping[str, float] | None = None) -> Decision:
    """Fails the job with the code `rejected` and this reason, which its submitter can read."""
    if not reason:
        raise ValueError("reject() requires a reason, for the submitter of the job")
    return _with_scores({"decision": "reject", "reason": reason}, scores)


def rewrite(value: Any, scores: Mapping[str, float] | None = None) -> Decision:
    """Continues the job with `value` as its input (in a step before) or its output (in a step after)."""
    return _with_scores({"decision": "rewrite", "value": value}, scores)


def _with_scores(decision: Decision, scores: Mapping[str, float] | None) -> Decision:
    return decision if scores is None else {**decision, "scores": dict(scores)}
