"""Backpressure of a server: its own metrics decide how many jobs it is sent, so that others wait in the queue."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

# A fraction of max_concurrency by which the number rises with each reading: a full range takes 16 readings.
_STEPS = 16
# Short prompts wait in an engine for some milliseconds even if it has room, and a reading may coincide with that.
_KEPT = 0.9

_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{.*\})?\s+(?P<value>\S+)")
_CONDITION = re.compile(r"(?P<metric>[a-zA-Z_:][a-zA-Z0-9_:]*)\s+(?P<sign>>=?)\s+(?P<limit>\S+)")


class Condition(NamedTuple):
    """A metric and its limit, e.g. `vllm:num_requests_waiting > 0`."""

    metric: str
    includes_limit: bool
    limit: float

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Raises `ValueError` for a text that is not a condition."""
        found = _CONDITION.fullmatch(text.strip())
        if found is None:
            raise ValueError(f"{text!r} is not a metric and its limit, e.g. 'vllm:num_requests_waiting > 0'")
        return cls(found["metric"], found["sign"] == ">=", float(found["limit"]))

    def holds(self, metrics: str) -> bool | None:
        """Whether it holds for metrics in Prometheus' text format; `None` without the metric. Several samples of it,
        e.g. one for each model or replica, are added.
        """
        values = [
            float(sample["value"])
            for line in metrics.splitlines()
            if (sample := _SAMPLE.match(line)) and sample["name"] == self.metric
        ]
        if not values:
            return None
        # Some engines report NaN for a metric that they have not computed yet.
        total = sum(value for value in values if not math.isnan(value))
        return total >= self.limit if self.includes_limit else total > self.limit


def next_capacity(capacity: int, running: int, is_busy: bool, most: int) -> int:
    """The number of jobs that the server takes at once after a reading: 1 to `most`.

    While the server is busy, it falls to nine tenths of the jobs that run, unless more of them run than it allows: then
    the last fall has had no effect yet. Otherwise it rises by a sixteenth of `most` (additive increase, multiplicative
    decrease: Chiu and Jain, 1989).
    """
    if not is_busy:
        return min(most, capacity + max(1, most // _STEPS))
    return capacity if running > capacity else max(1, int(running * _KEPT))
