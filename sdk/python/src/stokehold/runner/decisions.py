"""What the handler of a step before or after a job returns.

A step before gets `endpoint`, `input` and `thresholds`; one after gets `output` as well. It may also return just
`{"scores": {label: 0 to 1}}`: then the thresholds that the step was given decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Decision = dict[str, Any]


def allow() -> Decision:
    """The job goes on as it is."""
    return {"decision": "allow"}


def reject(reason: str, scores: Mapping[str, float] | None = None) -> Decision:
    """The job fails with the code `rejected` and this reason, which its submitter reads."""
    if not reason:
        raise ValueError("reject(): give a reason, which the job's submitter reads")
    return _with_scores({"decision": "reject", "reason": reason}, scores)


def rewrite(value: Any, scores: Mapping[str, float] | None = None) -> Decision:
    """The job goes on with `value` as its input (before) or its output (after)."""
    return _with_scores({"decision": "rewrite", "value": value}, scores)


def _with_scores(decision: Decision, scores: Mapping[str, float] | None) -> Decision:
    return decision if scores is None else {**decision, "scores": dict(scores)}
