"""Handlers that take several jobs a call: each has its own result and its own failure."""

from __future__ import annotations

import re
from typing import Any

import pytest

from stokehold import endpoint
from stokehold.runner.describe import describe

from .conftest import Gate, Serve
from .test_describe import Package

DOUBLE = """
    from stokehold import endpoint

    calls = []

    @endpoint(max_batch_size=16)
    def handler(n: list[int], by: list[int | None]) -> list[dict]:
        calls.append(len(n))
        return [{"n": each * (factor or 2), "calls": calls} for each, factor in zip(n, by)]
"""


def codes(reports: list[Any]) -> list[str]:
    return [report.header["error"]["code"] if report.type == "error" else "done" for report in reports]


def test_several_runs_are_one_call_and_each_has_its_result(serve: Serve) -> None:
    peer = serve(DOUBLE)
    first = peer.batch([{"n": 1}, {"n": 2, "by": 5}, {"n": 3}])
    assert [report.json for report in first] == [{"n": n, "calls": [3]} for n in (2, 10, 6)]
    assert peer.run({"n": 4}).json == {"n": 8, "calls": [3, 1]}


def test_one_input_that_does_not_fit_costs_the_others_nothing(serve: Serve) -> None:
    peer = serve(
        """
        from enum import Enum
        from stokehold import endpoint

        class Size(Enum):
            SMALL = "s"

        @endpoint(max_batch_size=4)
        def handler(size: list[Size]) -> list[str]:
            return [each.name for each in size]
        """
    )
    good, bad, last = peer.batch([{"size": "s"}, {"size": "x"}, {"size": "s"}])
    assert (good.json, last.json) == ("SMALL", "SMALL")
    assert (bad.header["error"]["code"], "input.size" in bad.header["error"]["message"]) == ("rejected", True)


def test_an_exception_in_the_list_fails_its_job_alone(serve: Serve) -> None:
    peer = serve(
        """
        from stokehold import Reject, endpoint

        @endpoint(max_batch_size=4)
        def handler(n: list[int]) -> list[int]:
            return [Reject("an odd one") if each % 2 else each for each in n]
        """
    )
    ends = peer.batch([{"n": 2}, {"n": 3}])
    assert codes(ends) == ["done", "rejected"]
    assert ends[1].header["error"]["message"] == "an odd one"


def test_a_call_that_raises_is_divided_until_only_the_guilty_fail(serve: Serve) -> None:
    peer = serve(
        """
        from stokehold import endpoint

        calls = 0

        @endpoint(max_batch_size=16)
        def handler(n: list[int]) -> list[int]:
            global calls
            calls += 1
            if 5 in n:
                raise ValueError("five")
            return [calls] * len(n)
        """
    )
    ends = peer.batch([{"n": n} for n in range(16)])
    assert codes(ends) == ["done"] * 5 + ["handler_error"] + ["done"] * 10
    # 16, 8, 4, 2, 2, 1, 1, ... : as deep as halves go, and each half that is sound once.
    assert max(report.json for report in ends if report.type == "done") == 9


def test_a_call_too_large_for_the_memory_is_not_tried_at_that_size_again(serve: Serve) -> None:
    peer = serve(
        """
        from stokehold import endpoint

        sizes = []

        @endpoint(max_batch_size=16)
        def handler(n: list[int]) -> list[list[int]]:
            sizes.append(len(n))
            if len(n) > 4:
                raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
            return [list(sizes)] * len(n)
        """
    )
    assert codes(peer.batch([{"n": n} for n in range(16)])) == ["done"] * 16
    sizes = peer.batch([{"n": n} for n in range(16)])[-1].json
    assert sizes == [16, 8] + [4] * 8


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("[1, 2]", "one result per item; it returned 2 for 1"),
        ("'ab'", "one result per item; it returned a str"),
        ("None", "one result per item; it returned a NoneType"),
    ],
)
def test_a_result_that_is_not_one_per_item_is_told(serve: Serve, result: str, message: str) -> None:
    peer = serve(
        f"""
        from stokehold import endpoint

        @endpoint(max_batch_size=4)
        def handler(n: list[int]):
            return {result}
        """
    )
    error = peer.run({"n": 1}).header["error"]
    assert error["code"] == "bad_output"
    assert message in error["message"]


def test_a_cancelled_job_is_let_go_and_the_call_goes_on(serve: Serve, gate: Gate) -> None:
    peer = serve(
        f"""
        from stokehold import endpoint

        @endpoint(max_batch_size=4)
        def handler(n: list[int]) -> list[int]:
            with open({str(gate.path)!r}, "rb", buffering=0) as gate:
                print("waiting")
                gate.read(1)
            return n
        """
    )
    first, second = peer.start_batch([{"n": 1}, {"n": 2}])
    peer.until(lambda report: report.type == "log" and report.header["run"] == second)
    assert peer.log(first) == "waiting\n", "what a call says is said of each of its jobs"
    peer.cancel(first)
    assert peer.end(first).header["error"]["code"] == "cancelled"
    gate.open()
    assert peer.end(second).json == 2
    third, fourth = peer.start_batch([{"n": 3}, {"n": 4}])
    peer.until(lambda report: report.type == "log" and report.header["run"] == fourth)
    peer.cancel(third)
    peer.cancel(fourth)
    assert codes([peer.end(third), peer.end(fourth)]) == ["cancelled", "cancelled"]
    gate.open()
    assert peer.run({"n": 5}).json == 5, "the call itself was ended"


def test_describe_tells_what_one_job_gives_and_gets(package: Package) -> None:
    folder = package(
        """
        from stokehold import endpoint

        class Embedder:
            def setup(self): ...

            def predict(self, text: list[str], size: list[int | None]) -> list[list[float]]: ...

        Embedder = endpoint(name="embed", max_batch_size=16, max_wait_ms=5)(Embedder)
        """,
        "embedding.py",
    )
    document, code = describe("python", str(folder))
    assert code == 0, document
    assert (document["options"]["max_batch_size"], document["options"]["max_wait_ms"]) == (16, 5)
    schema = document["input_schema"]
    assert schema["properties"]["text"] == {"type": "string"}
    assert schema["properties"]["size"] == {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}
    assert schema["required"] == ["text"]
    assert document["output_schema"]["items"] == {"type": "number"}


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        ("def handler(n: int) -> list[int]: ...", "n: with max_batch_size, each argument is a list"),
        (
            "def handler(n: list[int] = []) -> list[int]: ...",
            "n: an argument of a batched handler cannot have a default",
        ),
        ("def handler(**rest: list[int]) -> list[int]: ...", r"\*\*rest: a batched handler must name its arguments"),
        ("async def handler(n: list[int]) -> list[int]: ...", "max_batch_size requires a plain function"),
        ("def handler(n: list[int]):\n    yield 1", "max_batch_size requires a plain function"),
    ],
)
def test_a_handler_that_cannot_take_a_batch_is_told_why(package: Package, handler: str, message: str) -> None:
    folder = package(
        f"from stokehold import endpoint\n\n@endpoint(max_batch_size=2)\n{handler}\n", f"wrong_{abs(hash(handler))}.py"
    )
    document, code = describe("python", str(folder))
    assert code == 1
    assert re.search(message, document["error"]["message"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_batch_size": 0}, "max_batch_size=0: use a whole number from 1 to 256"),
        ({"max_batch_size": 257}, "max_batch_size=257: use a whole number from 1 to 256"),
        ({"max_batch_size": 2, "max_wait_ms": -1}, "max_wait_ms=-1: use a number from 0 to 10000"),
        ({"max_wait_ms": 5}, "it requires a max_batch_size above 1"),
        ({"max_batch_size": 2, "max_concurrency": 2}, "use only one of them"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        endpoint(**options)
