"""The kind `cog`: streams, async predictors, setup, failures and cancels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ..conftest import Gate
from ..peer import Peer
from .models import Load, Package

pytest.importorskip("cog", reason="Cog needs Python 3.10")


def test_canary_of_the_examples_streams(load: Load) -> None:
    peer = load(
        """
        from cog import BasePredictor, ConcatenateIterator, Input


        class Predictor(BasePredictor):
            def predict(self, text: str = Input(description="Text to prefix")) -> ConcatenateIterator[str]:
                yield "hello "
                yield "there, "
                yield text
        """
    )
    assert peer.run({"text": "you"}).json == ["hello ", "there, ", "you"]
    assert [report.json for report in peer.seen("output")] == ["hello ", "there, ", "you"]


def test_an_iterator_of_files_that_is_returned_streams_too(load: Load) -> None:
    peer = load(
        """
        import cog
        from typing import Iterator

        class Predictor(cog.BasePredictor):
            @cog.streaming
            def predict(self, n: int) -> Iterator[cog.Path]:
                return self.made(n)

            def made(self, n):
                for i in range(n):
                    path = cog.Path(f"{i}.txt")
                    path.write_text(str(i))
                    yield path
        """
    )
    done = peer.run({"n": 2})
    assert done.json == [report.json for report in peer.seen("output")] == [{"$file": "0.txt"}, {"$file": "1.txt"}]


def test_an_async_predictor_runs_several_jobs_at_once(load: Load) -> None:
    peer = load(
        """
        import asyncio
        import cog

        class Predictor(cog.BasePredictor):
            async def setup(self) -> None:
                self.waiting = []

            @cog.concurrent(max=3)
            async def predict(self, party: int) -> str:
                event = asyncio.Event()
                self.waiting.append(event)
                if len(self.waiting) == party:
                    for each in self.waiting: each.set()
                await event.wait()
                return "met"
        """,
        max_concurrency=3,
    )
    # Each waits for two others: with less room than three, none would end.
    runs = [peer.start({"party": 3}) for _ in range(3)]
    assert [peer.end(run).json for run in runs] == ["met"] * 3


def test_an_async_iterator_streams_and_metrics_are_taken(load: Load) -> None:
    peer = load(
        """
        from cog import AsyncConcatenateIterator, BasePredictor, Input, current_scope, emit_metric

        class Predictor(BasePredictor):
            async def predict(self, total: int = Input(default=2)) -> AsyncConcatenateIterator[str]:
                for fruit in ["Apple", "Banana", "Orange"][:total]:
                    yield fruit
                emit_metric("output_tokens", total)
                current_scope().record_metric("output_tokens", total)
                self.record_metric("token_count", 1, mode="incr")
        """
    )
    assert peer.run().json == ["Apple", "Banana"]
    assert [report.json for report in peer.seen("output")] == ["Apple", "Banana"]


def test_hello_context_of_the_examples(load: Load) -> None:
    peer = load(
        """
        import warnings

        from cog import ExperimentalFeatureWarning, Input, current_scope

        warnings.filterwarnings(action="ignore", category=ExperimentalFeatureWarning)


        def run(
            text: str = Input(description="Example text input"),
        ) -> dict[str, dict[str, str]]:
            return {"inputs": {"text": text}, "context": current_scope().context}
        """,
        "run.py:run",
    )
    assert peer.run({"text": "x"}).json == {"inputs": {"text": "x"}, "context": {}}


@pytest.mark.parametrize(
    ("weights", "prefix"), [("https://example.org/tuned", "https://example.org/tuned"), ("", "hello")]
)
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_setup_gets_the_weights_of_the_environment(
    load: Load, monkeypatch: pytest.MonkeyPatch, weights: str, prefix: str, kind: str
) -> None:
    monkeypatch.setenv("COG_WEIGHTS", weights)
    peer = load(
        f"""
        from typing import Optional
        from cog import BasePredictor, Path

        class Predictor(BasePredictor):
            {kind} setup(self, weights: Optional[Path] = None):
                self.prefix = weights or "hello"

            def predict(self, text: str) -> str:
                return self.prefix + " " + text
        """
    )
    assert peer.run({"text": "x"}).json == f"{prefix} x"


def test_setup_may_warm_up_with_the_defaults(load: Load) -> None:
    peer = load(
        """
        from cog import BasePredictor, Input

        class Predictor(BasePredictor):
            def setup(self):
                self.seen = []
                self.predict("warm-up")

            def predict(self, text: str, steps: int = Input(default=3)) -> list:
                self.seen.append([text, steps])
                return self.seen
        """
    )
    assert peer.run({"text": "x"}).json == [["warm-up", 3], ["x", 3]]


def test_an_exception_in_predict_is_told_as_it_is(load: Load) -> None:
    peer = load(
        """
        from cog import BasePredictor

        class Predictor(BasePredictor):
            def predict(self) -> str:
                raise ValueError("NSFW content detected")
        """
    )
    error = peer.run().header["error"]
    assert (error["code"], error["class"], error["message"]) == ("handler_error", "ValueError", "NSFW content detected")
    assert "in predict" in error["traceback"]


@pytest.mark.parametrize(
    ("entry", "source", "message"),
    [
        ("predict.py:Predictor", "class Predictor: pass", "run or predict method not found: Predictor"),
        (
            "predict.py:Predictor",
            "class Predictor:\n    def run(self): pass\n    def predict(self): pass",
            "Predictor must define either run() or predict(), not both",
        ),
        ("predict.py", "class Model: pass", "predict.py has no Runner or Predictor to call"),
        ("predict.py:Model", "Model = 3", "predict.py has no Model to call"),
        ("predict.py:predict", "def predict(x: set) -> str: pass", "x: set cannot be converted to JSON"),
        (
            "predict.py:Predictor",
            "class Predictor:\n    def setup(self): raise OSError('no weights')\n    def predict(self) -> str: pass",
            "no weights",
        ),
    ],
)
def test_what_cannot_be_loaded_says_why(
    package: Package, start: Callable[[Path], Peer], entry: str, source: str, message: str
) -> None:
    failed = start(package(source, "predict.py")).load(entry, kind="cog")
    assert failed.header["error"]["code"] == "setup_failed"
    assert message in failed.header["error"]["message"]


@pytest.mark.parametrize(
    "ending",
    ["raise", "raise CancelationException('again')", "raise RuntimeError('of the clean-up') from None"],
)
def test_a_cancel_is_raised_in_a_sync_predictor_which_may_clean_up(load: Load, gate: Gate, ending: str) -> None:
    peer = load(
        f"""
        from cog import BasePredictor, CancelationException

        class Predictor(BasePredictor):
            def predict(self, wait: bool) -> str:
                try:
                    print("begun", flush=True)
                    if wait:
                        open({str(gate.path)!r}, "rb", buffering=0).read(1)
                    return "done"
                except Exception:
                    return "swallowed"
                except CancelationException:
                    print("cleaned up")
                    {ending}
        """
    )
    run = peer.start({"wait": True})
    peer.until(lambda report: report.type == "log" and report.body == b"begun\n")
    peer.cancel(run)
    error = peer.end(run).header["error"]
    assert error["code"] == ("handler_error" if "RuntimeError" in ending else "cancelled")
    assert peer.log(run) == "begun\ncleaned up\n"
    assert peer.run({"wait": False}).json == "done"


def test_a_cancel_ends_an_async_predictor(load: Load) -> None:
    peer = load(
        """
        import asyncio
        from cog import BasePredictor

        class Predictor(BasePredictor):
            async def predict(self) -> str:
                try:
                    print("begun", flush=True)
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    print("cleaned up")
                    raise
        """
    )
    run = peer.start()
    peer.until(lambda report: report.type == "log" and report.body == b"begun\n")
    peer.cancel(run)
    assert peer.end(run).header["error"]["code"] == "cancelled"
    assert peer.log(run) == "begun\ncleaned up\n"
