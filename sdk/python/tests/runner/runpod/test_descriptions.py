"""The kind `runpod`: what `describe` reads from a script, and the words of its progress and errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stokehold.runner import failure
from stokehold.runner.handler import HandlerNotFound
from stokehold.runner.kinds import runpod as kind
from stokehold.runner.kinds.runpod_words import failure_of, fraction_of, message_of

from .models import raised

pytest.importorskip("runpod", reason="needs Python 3.10")


def test_a_script_is_described_without_being_run(package: Callable[..., Path]) -> None:
    described = kind.describe(
        str(package("from runpod import serverless\nraise SystemExit", "handler.py") / "handler.py")
    )
    assert described == {
        "name": None,
        "entry": "handler.py",
        "kind": "runpod",
        "options": {},
        "input_schema": {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"},
        "output_schema": {},
    }


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ('start({"handler": f, "concurrency_modifier": lambda current: 4})', {"max_concurrency": 4}),
        ("start(dict(handler=f, concurrency_modifier=lambda current: current + 1))", {"max_concurrency": 16}),
        ('def four(n):\n    return 4\nstart({"concurrency_modifier": four})', {"max_concurrency": 4}),
        ('def some(n):\n    return min(n, 9)\nstart({"concurrency_modifier": some})', {"max_concurrency": 16}),
        ('config = {}\nconfig["concurrency_modifier"] = lambda n: 5_000\nstart(config)', {"max_concurrency": 1_000}),
        ('start({"handler": f})', {}),
    ],
)
def test_a_script_with_a_concurrency_modifier_is_offered_several_jobs(
    package: Callable[..., Path], source: str, options: dict[str, int]
) -> None:
    folder = package(f"from runpod.serverless import start\n{source}", "handler.py")
    assert kind.describe(str(folder / "handler.py"))["options"] == options


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (None, "handler.py: no such file in package"),
        ("def handler(:", "handler.py is not valid Python"),
        ("import runpodder\nfrom . import runpod", "handler.py does not import runpod; name the script that ends in"),
    ],
)
def test_other_scripts_are_rejected_with_the_reason(
    package: Callable[..., Path], source: str | None, message: str
) -> None:
    folder = package("") if source is None else package(source, "handler.py")
    with pytest.raises(HandlerNotFound, match=message):
        kind.describe(str(folder / "handler.py"))


@pytest.mark.parametrize(
    ("update", "fraction", "message"),
    [
        ("Update 1/4", 0.25, "Update 1/4"),
        ("12.5 % of 8 files", 0.125, "12.5 % of 8 files"),
        ("1/0", None, "1/0"),
        ("loading", None, "loading"),
        (0.5, 0.5, ""),
        (1, 0.01, ""),
        (1.0, 1.0, ""),
        (50, 0.5, ""),
        (50.0, 0.5, ""),
        pytest.param(10**400, 1.0, "", id="huge"),
        (float("nan"), None, ""),
        (True, None, ""),
        ({"progress": 50, "message": "half"}, 0.5, "half"),
        ({"step": 3}, None, '{"step": 3}'),
        (None, None, "null"),
    ],
)
def test_progress_can_be_reported_in_many_forms(update: Any, fraction: float | None, message: str) -> None:
    assert (fraction_of(update), message_of(update)) == (fraction, message)


@pytest.mark.parametrize(
    ("error", "class_name", "message", "code"),
    [
        (
            {"reason": "no face"},
            "stokehold.runner.kinds.runpod_words.HandlerError",
            '{"reason": "no face"}',
            "handler_error",
        ),
        ("CUDA out of memory", "stokehold.runner.kinds.runpod_words.HandlerError", "CUDA out of memory", "oom_gpu"),
        (raised("torch.OutOfMemoryError", "no room"), "torch.OutOfMemoryError", "no room", "oom_gpu"),
        (raised("MemoryError", ""), "MemoryError", "", "oom_host"),
        (raised("ValueError", "CUDA out of memory"), "ValueError", "CUDA out of memory", "handler_error"),
        (raised("__main__.Odd", "x"), "Odd", "x", "handler_error"),
    ],
)
def test_an_error_is_judged_as_the_one_it_tells_of(error: Any, class_name: str, message: str, code: str) -> None:
    described = failure.describe(failure_of(error))
    assert (described.class_name, described.message, described.code) == (class_name, message, code)
