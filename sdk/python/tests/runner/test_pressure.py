"""The number of jobs that a server is sent, by its own metrics."""

from __future__ import annotations

import pytest

from stokehold.runner.kinds.pressure import Condition, next_capacity

VLLM = """
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="./model"} 3.0
vllm:num_requests_waiting{engine="1",model_name="./model"} 1.0
vllm:num_requests_waiting_by_reason{reason="capacity"} 9.0
vllm:kv_cache_usage_perc{engine="0",model_name="a \\"quoted\\" } name"} 0.95
llamacpp:requests_deferred 0
"""


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("vllm:num_requests_waiting > 0", True),
        ("vllm:num_requests_waiting > 4", False),
        ("vllm:num_requests_waiting >= 4", True),
        ("vllm:kv_cache_usage_perc > 0.9", True),
        ("llamacpp:requests_deferred > 0", False),
        ("sglang:num_queue_reqs > 0", None),
    ],
)
def test_samples_of_a_metric_are_added_and_compared(condition: str, holds: bool | None) -> None:
    assert Condition.parse(condition).holds(VLLM) is holds


def test_a_metric_that_is_not_computed_yet_is_not_busy() -> None:
    assert Condition.parse("waiting > 0").holds("waiting NaN") is False


@pytest.mark.parametrize("wrong", ["", "waiting", "waiting < 3", "waiting > ", "waiting > many", "a b > 1", "1st > 0"])
def test_what_is_not_a_condition_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"not a metric|could not convert"):
        Condition.parse(wrong)


def series(room: int, most: int, readings: int) -> list[int]:
    """The capacity over time, for an engine that has room for `room` jobs and a queue that always has more."""
    capacity, running, seen = most, most, []
    for _ in range(readings):
        capacity = next_capacity(capacity, running, running > room, most)
        # A tenth of the jobs ends between two readings.
        running = max(capacity, running - max(1, running // 10))
        seen.append(capacity)
    return seen


def test_an_engine_that_is_smaller_than_declared_is_found_and_kept_full() -> None:
    capacities = series(room=40, most=64, readings=200)
    settled = capacities[20:]
    assert min(settled) >= 36, "nine tenths of what it has room for"
    assert max(settled) <= 44, "and a sixteenth of the range more"


def test_an_engine_with_room_is_sent_all_that_is_declared() -> None:
    assert set(series(room=64, most=64, readings=50)) == {64}
    assert series(room=1, most=8, readings=100)[-1] <= 2


def test_it_stays_between_one_and_the_declared_number() -> None:
    assert next_capacity(1, 1, True, 8) == 1
    assert next_capacity(5, 0, True, 8) == 1
    assert next_capacity(8, 8, False, 8) == 8
    assert next_capacity(1, 0, False, 1) == 1


def test_a_fall_waits_for_the_effect_of_the_last_one() -> None:
    assert next_capacity(57, 64, True, 64) == 57
    assert next_capacity(57, 57, True, 64) == 51
