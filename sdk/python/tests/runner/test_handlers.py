"""Every kind of handler, and how it fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Gate, Serve
from .peer import Peer


def test_a_function_gets_its_input_as_arguments(serve: Serve) -> None:
    peer = serve("def handler(text: str, times: int = 2): return {'text': text * times}")
    done = peer.run({"text": "ab"})
    assert done.type == "done"
    assert done.json == {"text": "abab"}
    assert peer.run({"text": "ab", "times": 3}).json == {"text": "ababab"}


def test_runs_wait_in_order(serve: Serve) -> None:
    peer = serve("def handler(n: int): return n")
    runs = [peer.start({"n": n}) for n in range(50)]
    assert [peer.end(run).json for run in runs] == list(range(50))
    assert [report.header["run"] for report in peer.seen("done")] == runs


def test_a_marked_function_stays_callable_for_its_own_module(serve: Serve) -> None:
    peer = serve(
        """
        from stokehold import endpoint

        @endpoint
        def double(n: int): return n * 2

        @endpoint(name="quadruple", timeout_s=5)
        def handler(n: int): return double(double(n))
        """
    )
    assert peer.run({"n": 3}).json == 12


def test_a_generator_streams_and_ends_with_the_list(serve: Serve) -> None:
    peer = serve(
        """
        def handler(n: int):
            for i in range(n):
                yield {"i": i}
        """
    )
    done = peer.run({"n": 3})
    assert [(report.header["index"], report.json) for report in peer.seen("output")] == [
        (0, {"i": 0}),
        (1, {"i": 1}),
        (2, {"i": 2}),
    ]
    assert done.json == [{"i": 0}, {"i": 1}, {"i": 2}]
    assert peer.run({"n": 0}).json == []


def test_a_generator_that_raises_keeps_what_it_streamed(serve: Serve) -> None:
    peer = serve(
        """
        def handler():
            yield 1
            raise ValueError("half way")
        """
    )
    error = peer.run()
    assert error.header["error"]["message"] == "half way"
    assert [report.json for report in peer.seen("output")] == [1]


def test_an_async_function(serve: Serve) -> None:
    peer = serve(
        """
        import asyncio
        async def handler(n: int):
            await asyncio.sleep(0)
            return n + 1
        """
    )
    assert peer.run({"n": 1}).json == 2


def test_async_runs_go_on_at_once_up_to_the_limit(serve: Serve) -> None:
    peer = serve(
        """
        import asyncio
        waiting = []
        async def handler(party: int):
            event = asyncio.Event()
            waiting.append(event)
            if len(waiting) == party:
                for each in waiting: each.set()
                waiting.clear()
            await event.wait()
            return "met"
        """,
        max_concurrency=3,
    )
    # Each waits for two others: with less room than three, none would end.
    runs = [peer.start({"party": 3}) for _ in range(6)]
    assert [peer.end(run).json for run in runs] == ["met"] * 6


def test_no_async_run_is_forgotten_however_starts_and_ends_cross(serve: Serve) -> None:
    peer = serve("async def handler(n: int): return n", max_concurrency=2)
    runs = [peer.start({"n": 0}), peer.start({"n": 1})]
    for n in range(2, 1_000):
        assert peer.end(runs[n - 2]).json == n - 2
        runs.append(peer.start({"n": n}))
    assert [peer.end(run).json for run in runs[-2:]] == [998, 999]


def test_async_runs_over_the_limit_wait(serve: Serve) -> None:
    peer = serve(
        """
        import asyncio
        inside = 0
        async def handler():
            global inside
            inside += 1
            seen = inside
            for _ in range(5): await asyncio.sleep(0)
            inside -= 1
            return seen
        """,
        max_concurrency=2,
    )
    runs = [peer.start() for _ in range(20)]
    assert {peer.end(run).json for run in runs} <= {1, 2}


def test_an_async_generator(serve: Serve) -> None:
    peer = serve(
        """
        async def handler(n: int):
            for i in range(n):
                yield i
        """
    )
    assert peer.run({"n": 2}).json == [0, 1]
    assert [report.json for report in peer.seen("output")] == [0, 1]


@pytest.mark.parametrize(
    ("predict", "result"),
    [
        ("def predict(self, n: int): return n + self.base", 11),
        ("async def predict(self, n: int): return n + self.base", 11),
        ("def predict(self, n: int): yield n + self.base", [11]),
        ("async def predict(self, n: int): yield n + self.base", [11]),
        ("@staticmethod\n    def predict(n: int): return n", 1),
        ("@classmethod\n    def predict(cls, n: int): return [cls.__name__, n]", ["Model", 1]),
    ],
)
def test_a_class_with_any_kind_of_predict(
    package: Callable[[str], Path], start: Callable[[Path], Peer], predict: str, result: object
) -> None:
    source = f"class Model:\n    base = 0\n    def setup(self): self.base = 10\n    {predict}\n"
    peer = start(package(source))
    assert peer.load("endpoint.py:Model").type == "ready"
    assert peer.run({"n": 1}).json == result


def test_setup_runs_once_and_may_be_async(serve: Serve) -> None:
    peer = serve(
        """
        class Model:
            setups = 0
            async def setup(self): self.setups += 1
            def predict(self): return self.setups
        """,
        "Model",
    )
    assert [peer.run().json, peer.run().json] == [1, 1]


def test_a_class_without_setup(serve: Serve) -> None:
    assert serve("class Model:\n    def predict(self): return 1", "Model").run().json == 1


def test_modules_beside_the_handler_can_be_imported(serve: Serve, package: Callable[..., Path]) -> None:
    package("ANSWER = 42", file="helper_module.py")
    assert serve("import helper_module\ndef handler(): return helper_module.ANSWER").run().json == 42


@pytest.mark.parametrize(
    ("source", "class_name", "message"),
    [
        ("raise OSError('no weights')", "OSError", "no weights"),
        ("import does_not_exist_at_all", "ModuleNotFoundError", "does_not_exist_at_all"),
        ("def handler(:", "SyntaxError", "invalid"),
        (
            "class handler:\n    def setup(self): raise LookupError('too big')\n    def predict(self): pass",
            "LookupError",
            "too big",
        ),
        ("class handler: pass", "stokehold.runner.handler.HandlerNotFound", "has no predict()"),
        ("handler = 3", "stokehold.runner.handler.HandlerNotFound", "not callable"),
        ("", "stokehold.runner.handler.HandlerNotFound", "does not exist"),
        ("def handler(x: bytes): pass", "stokehold.runner.shapes.UnknownHint", "x: bytes cannot be converted to JSON"),
        ("import sys; sys.exit('bye')", "SystemExit", "bye"),
    ],
)
def test_what_fails_to_load_says_why_and_exits(
    package: Callable[[str], Path], start: Callable[[Path], Peer], source: str, class_name: str, message: str
) -> None:
    peer = start(package(source))
    failed = peer.load("endpoint.py:handler")
    assert failed.type == "failed"
    error = failed.header["error"]
    assert (error["code"], error["class"]) == ("setup_failed", class_name)
    assert message in error["message"]
    assert peer.read_to_the_end() == 1


def test_a_raise_tells_class_message_and_the_handlers_own_frames(serve: Serve) -> None:
    peer = serve(
        """
        class Broken(Exception): pass

        def inner(text): raise Broken(f"cannot\\n{text}")

        def handler(text: str):
            try:
                {}["key"]
            except KeyError as error:
                inner(text)
        """
    )
    report = peer.run({"text": "do"})
    assert report.type == "error"
    error = report.header["error"]
    assert (error["code"], error["class"], error["message"]) == ("handler_error", "endpoint.Broken", "cannot do")
    assert "in handler" in error["traceback"]
    assert "in inner" in error["traceback"]
    assert "KeyError: 'key'" in error["traceback"]
    assert "serial.py" not in error["traceback"]
    assert peer.run({"text": "again"}).type == "error"


def test_a_vast_error_is_cut(serve: Serve) -> None:
    peer = serve("def handler(): raise ValueError('\\x00\\ud800' + 'é' * 1_000_000)")
    error = peer.run().header["error"]
    assert len(error["message"]) == 2_000
    assert len(error["traceback"].encode()) <= 16 * 1024
    assert error["traceback"].startswith("Traceback")


def test_an_error_that_cannot_be_shown_is_still_told(serve: Serve) -> None:
    peer = serve(
        """
        class Shy(Exception):
            def __str__(self): raise RuntimeError("no")
        def handler(): raise Shy
        """
    )
    error = peer.run().header["error"]
    assert error["class"] == "endpoint.Shy"
    assert "RuntimeError" in error["message"]


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_reject_is_final(serve: Serve, kind: str) -> None:
    peer = serve(f"from stokehold import Reject\n{kind} handler(): raise Reject('no face found')")
    error = peer.run().header["error"]
    assert (error["code"], error["message"]) == ("rejected", "no face found")


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_keyboard_interrupt_of_the_handlers_own_is_an_error_like_any(serve: Serve, kind: str) -> None:
    peer = serve(f"{kind} handler(fail: bool):\n    if fail: raise KeyboardInterrupt\n    return 1")
    assert peer.run({"fail": True}).header["error"]["class"] == "KeyboardInterrupt"
    assert peer.run({"fail": False}).json == 1


def test_current_job_names_the_job(serve: Serve) -> None:
    peer = serve(
        """
        import threading
        from stokehold import current_job

        def handler():
            job = current_job()
            outside = []
            def look():
                try: current_job()
                except RuntimeError as error: outside.append(str(error))
            thread = threading.Thread(target=look)
            thread.start(); thread.join()
            return [job.id, job.attempt, job.scratch.is_dir(), list(job.scratch.iterdir()), len(outside)]
        """
    )
    assert peer.run().json == ["job-1", 1, True, [], 1]


def test_async_runs_know_each_their_own_job(serve: Serve, gate: Gate) -> None:
    peer = serve(
        f"""
        import asyncio
        from stokehold import current_job
        async def handler():
            before = current_job().id
            gate = open({str(gate.path)!r}, "rb", buffering=0)
            await asyncio.get_running_loop().run_in_executor(None, gate.read, 1)
            print("said by", before)
            return [before, current_job().id]
        """,
        max_concurrency=2,
    )
    runs = [peer.start(), peer.start()]
    gate.open(2)
    for run in runs:
        assert peer.end(run).json == [f"job-{run}"] * 2
        assert peer.log(run) == f"said by job-{run}\n"


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_shutdown_lets_runs_end_and_exits_with_0(serve: Serve, kind: str) -> None:
    peer = serve(f"{kind} handler(): return 1")
    runs = [peer.start() for _ in range(3)]
    peer.send({"type": "shutdown"})
    assert peer.read_to_the_end() == 0
    assert [report.header["run"] for report in peer.seen("done")] == runs
