"""The kind `cog`: models as Cog's documentation and its examples have them, unmodified."""

from __future__ import annotations

import base64
import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import Gate
from .peer import Peer, Report

pytest.importorskip("cog", reason="Cog needs Python 3.10")

Load = Callable[..., Peer]
Package = Callable[..., Path]

FILE = {
    "type": "object",
    "properties": {"$file": {"type": "string"}},
    "required": ["$file"],
    "format": "stokehold-file",
}

HELLO = """
from cog import BasePredictor, Input


class Predictor(BasePredictor):
    def setup(self):
        self.prefix = "hello"

    def predict(self, text: str = Input(description="Text to prefix with 'hello '")) -> str:
        return self.prefix + " " + text
"""

MANY = """
from typing import Optional
from cog import BasePredictor, Input

class Predictor(BasePredictor):
    def predict(
        self,
        no_default: str,
        default_without_input: str = "default",
        steps: int = Input(default=10, ge=1, le=500),
        scale: float = Input(default=1.5, ge=0.5),
        size: str = Input(choices=["small", "large"], default="small"),
        code: str = Input(regex="[a-z]+", default="a", min_length=1, max_length=5),
        seed: Optional[int] = Input(description="Random seed", default=None, ge=0),
        tags: list[str] = Input(default=["x"], max_length=3),
        exact: bool = False,
    ) -> dict:
        return dict(locals(), self=None)
"""


@pytest.fixture
def load(package: Package, start: Callable[[Path], Peer]) -> Load:
    """Starts a runner with the predictor of `source` loaded."""

    def load(source: str, entry: str = "predict.py:Predictor", max_concurrency: int = 1) -> Peer:
        peer = start(package(source, entry.partition(":")[0]))
        report = peer.load(entry, max_concurrency, kind="cog")
        assert report.type == "ready", report.header
        return peer

    return load


@pytest.fixture
def website() -> Iterator[str]:
    """Serves `/hello.txt`, and nothing else."""

    class Pages(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_there = self.path == "/hello.txt"
            self.send_response(200 if is_there else 404)
            self.end_headers()
            self.wfile.write(b"from afar" if is_there else b"")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def _describe(where: Path | str, code: int = 0) -> dict[str, Any]:
    process = subprocess.run(
        [sys.executable, "-m", "stokehold.runner", "describe", str(where), "--kind", "cog"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert process.returncode == code, process
    document: dict[str, Any] = json.loads(process.stdout)
    return document


def _data_uri(content: bytes, kind: str = "text/plain") -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _refusal(report: Report) -> str:
    error = report.header["error"]
    assert error["code"] == "rejected", error
    return str(error["message"])


def test_hello_world_of_the_examples(load: Load) -> None:
    peer = load(HELLO)
    assert peer.run({"text": "world"}).json == "hello world"


def test_a_runner_with_run_is_found_without_being_named(load: Load) -> None:
    peer = load(
        """
        from cog import BaseRunner, Input

        class Predictor: "is not asked"

        class Runner(BaseRunner):
            def setup(self) -> None:
                self.prefix = "hello"

            def run(self, text: str = Input(description="Text to prefix with 'hello '")) -> str:
                return self.prefix + " " + text
        """,
        "run.py",
    )
    assert peer.run({"text": "world"}).json == "hello world"


def test_a_helper_named_runner_does_not_hide_the_predictor(load: Load) -> None:
    assert load(f"class Runner: 'of something else'\n{HELLO}", "predict.py").run({"text": "x"}).json == "hello x"


@pytest.mark.parametrize(
    "source",
    [
        "from cog import Input\ndef predict(text: str = Input(default='world')) -> str: return f'hello {text}'",
        "def predict(text: str = 'world') -> str: return f'hello {text}'",
        "async def predict(text: str = 'world') -> str: return f'hello {text}'",
    ],
)
def test_a_function_can_be_the_predictor(load: Load, source: str) -> None:
    peer = load(source, "predict.py:predict")
    assert [peer.run().json, peer.run({"text": "you"}).json] == ["hello world", "hello you"]


def test_a_class_that_is_not_derived_from_cog_s(load: Load) -> None:
    peer = load("class Predictor:\n    def predict(self, n: int) -> int: return n * 2")
    assert peer.run({"n": 4}).json == 8


def test_what_is_left_out_gets_its_default(load: Load) -> None:
    assert load(MANY).run({"no_default": "hello", "seed": None}).json == {
        "self": None,
        "no_default": "hello",
        "default_without_input": "default",
        "steps": 10,
        "scale": 1.5,
        "size": "small",
        "code": "a",
        "seed": None,
        "tags": ["x"],
        "exact": False,
    }


def test_an_optional_input_without_a_default_is_none(load: Load) -> None:
    peer = load(
        """
        from __future__ import annotations
        from cog import BasePredictor, Path, Secret, Input

        class Predictor(BasePredictor):
            def predict(self, value: str | None, image: Path | None, key: Secret = Input(default=None)) -> str:
                return f"{value} {image} {key}"
        """
    )
    assert peer.run().json == "None None None"
    assert peer.run({"value": "x", "key": "y"}).json == "x None **********"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"no_default": ...}, "no_default: Field required"),
        ({"steps": 0}, "steps fails constraint >= 1"),
        ({"steps": 501}, "steps fails constraint <= 500"),
        ({"steps": "many"}, "steps: Invalid value for type int"),
        ({"steps": True}, "steps: Invalid value for type int"),
        ({"steps": 1.5}, "steps: Invalid value for type int"),
        ({"scale": 0.25}, "scale fails constraint >= 0.5"),
        ({"scale": None}, "scale: Invalid value for type float"),
        ({"size": "huge"}, "size does not match choices ['small', 'large']"),
        ({"code": "1"}, "code does not match regex '[a-z]+'"),
        ({"code": ""}, "code fails constraint len() >= 1"),
        ({"code": "abcdef"}, "code fails constraint len() <= 5"),
        ({"seed": -1}, "seed fails constraint >= 0"),
        ({"seed": "x"}, "seed: Invalid value for type int"),
        ({"tags": ["four"]}, "tags fails constraint len() <= 3"),
        ({"tags": "x"}, 'tags: "x" is not an array'),
        ({"exact": "true"}, "exact: Invalid value for type bool"),
    ],
)
def test_an_input_that_does_not_fit_is_refused_in_cog_s_words(load: Load, given: dict[str, Any], message: str) -> None:
    peer = load(MANY)
    whole = {"no_default": "x", **given}
    assert _refusal(peer.run({name: value for name, value in whole.items() if value is not ...})) == message


def test_what_json_writes_as_a_whole_number_is_an_int(load: Load) -> None:
    assert load(MANY).run({"no_default": "x", "steps": 3.0}).body.count(b'"steps":3,') == 1


def test_an_unknown_input_is_ignored_with_a_warning(load: Load) -> None:
    peer = load(HELLO)
    run = peer.start({"text": "world", "guidance_scale": 7.5})
    assert peer.end(run).json == "hello world"
    assert peer.log(run, "stderr") == "WARNING unknown input field ignored: guidance_scale\n"


def test_unions_objects_and_what_is_opaque_are_passed_as_they_come(load: Load) -> None:
    peer = load(
        """
        from typing import Annotated, Any, Optional, TypedDict, Union
        from cog import BasePredictor, Opaque

        class Message(TypedDict):
            role: str

        class Predictor(BasePredictor):
            def predict(
                self,
                value: Union[str, float],
                params: dict[str, int],
                messages: Annotated[list[Message], Opaque],
                anything: Any,
                message: Optional[Message],
                more: Annotated[Optional[list[Message]], Opaque],
            ) -> dict:
                return {"params": params, "all": [value, messages, anything, message, more]}
        """
    )
    given = {"value": 1, "params": {"x": "not an int"}, "messages": [{"a": 1}], "anything": [None], "message": {"b": 1}}
    assert peer.run(given).json == {
        "params": {"x": "not an int"},
        "all": [1, [{"a": 1}], [None], {"b": 1}, None],
    }
    assert _refusal(peer.run({**given, "value": []})) == "value: no member of the union accepts []"


def test_a_secret_does_not_show(load: Load) -> None:
    peer = load(
        """
        from cog import BaseRunner, Secret

        class Runner(BaseRunner):
            def run(self, api_token: Secret) -> str:
                print(api_token)
                return api_token.get_secret_value()
        """,
        "run.py:Runner",
    )
    run = peer.start({"api_token": "hidden"})
    assert peer.end(run).json == "hidden"
    assert peer.log(run) == "**********\n"
    assert _refusal(peer.run({"api_token": 7})) == "api_token: Invalid value for type Secret"


BLUR = """
import tempfile

from cog import BasePredictor, Input, Path
from PIL import Image, ImageFilter


class Predictor(BasePredictor):
    def predict(
        self,
        image: Path = Input(description="Input image"),
        blur: float = Input(description="Blur radius", default=5),
    ) -> Path:
        if blur == 0:
            return input
        im = Image.open(str(image))
        im = im.filter(ImageFilter.BoxBlur(blur))
        out_path = Path(tempfile.mkdtemp()) / "out.png"
        im.save(str(out_path))
        return out_path
"""


def test_blur_of_the_examples_takes_an_uploaded_file_and_gives_one(load: Load, tmp_path: Path) -> None:
    images = pytest.importorskip("PIL.Image")
    images.new("RGB", (8, 8), "red").save(tmp_path / "in.png")
    peer = load(BLUR)
    done = peer.run({"image": {"$file": "photo"}}, {"photo": str(tmp_path / "in.png")})
    assert done.json == {"$file": "out.png"}
    (file,) = done.header["files"]
    assert file["content_type"] == "image/png"
    with images.open(file["path"]) as image:
        assert image.size == (8, 8)
    assert "was not attached to the job" in _refusal(peer.run({"image": {"$file": "other"}}))


READS = """
import os
from cog import BasePredictor, Path
from typing import Optional

class Predictor(BasePredictor):
    def predict(self, paths: list[Path], file: Optional[Path] = None) -> dict:
        every = [*paths, *([file] if file else [])]
        return {"texts": [path.read_text() for path in every], "places": [str(path) for path in every]}
"""


def test_files_come_as_uploads_data_uris_and_urls_alike(load: Load, tmp_path: Path, website: str) -> None:
    (tmp_path / "a.txt").write_text("uploaded")
    peer = load(READS)
    paths = [{"$file": "a"}, _data_uri(b"inline"), f"{website}/hello.txt"]
    run = peer.start({"paths": paths, "file": _data_uri(b"alone")}, {"a": str(tmp_path / "a.txt")})
    found = peer.end(run).json
    assert found["texts"] == ["uploaded", "inline", "from afar", "alone"]
    uploaded, *fetched = map(Path, found["places"])
    assert uploaded == tmp_path / "a.txt"
    # The job's own folder, which is removed with all that is in it.
    assert {path.parent for path in fetched} == {peer.scratch(run)}
    assert [path.suffix for path in fetched] == [".txt"] * 3


def test_a_url_that_cannot_be_fetched_is_no_fault_of_the_input(load: Load, website: str) -> None:
    error = load(READS).run({"paths": [f"{website}/missing"]}).header["error"]
    assert error["code"] == "handler_error"
    assert "404" in error["message"]


@pytest.mark.parametrize("value", ["/etc/passwd", "file:///etc/passwd", "data:no-comma", 3, {}])
def test_what_is_no_file_is_refused(load: Load, value: Any) -> None:
    assert _refusal(load(READS).run({"paths": [value]})).startswith("paths: ")


def test_a_file_input_is_open(load: Load, tmp_path: Path, website: str) -> None:
    (tmp_path / "a.txt").write_text("uploaded")
    peer = load(
        """
        from cog import BasePredictor, File

        class Predictor(BasePredictor):
            def predict(self, file: File) -> str:
                return file.read().decode()
        """
    )
    assert peer.run({"file": {"$file": "a"}}, {"a": str(tmp_path / "a.txt")}).json == "uploaded"
    assert peer.run({"file": _data_uri(b"inline")}).json == "inline"
    assert peer.run({"file": f"{website}/hello.txt"}).json == "from afar"


def test_a_structured_output_may_hold_files_and_anything_cog_knows(load: Load) -> None:
    peer = load(
        """
        import datetime, enum, io, pathlib
        from typing import Any, Optional
        import numpy as np
        import pydantic
        from cog import BaseModel, BasePredictor, File, Path

        class Color(enum.Enum):
            RED = "red"

        class Inner(pydantic.BaseModel):
            names: set[str]
            path: pathlib.Path

        class Output(BaseModel):
            file: File
            bytes: File
            image: Optional[Path]
            score: Any
            rest: list[Any]

        class Predictor(BasePredictor):
            def predict(self) -> Output:
                Path("image.png").write_bytes(b"png")
                rest = [Color.RED, datetime.datetime(2025, 1, 15), (n for n in (1, 2)), np.arange(2)]
                return Output(
                    file=io.StringIO("hello"), bytes=io.BytesIO(b"raw"), image=Path("image.png"),
                    score=np.float32(0.5), rest=[*rest, Inner(names={"x"}, path="image.png")],
                )
        """
    )
    done = peer.run()
    assert done.json == {
        "file": {"$file": "output.txt"},
        "bytes": {"$file": "output.bin"},
        "image": {"$file": "image.png"},
        "score": 0.5,
        "rest": ["red", "2025-01-15T00:00:00", [1, 2], [0, 1], {"names": ["x"], "path": {"$file": "image.png"}}],
    }
    contents = {file["name"]: Path(file["path"]).read_bytes() for file in done.header["files"]}
    assert contents == {"output.txt": b"hello", "output.bin": b"raw", "image.png": b"png"}


def test_a_list_of_paths_and_an_open_file_of_one_name(load: Load) -> None:
    peer = load(
        """
        from cog import BaseRunner, Path

        class Runner(BaseRunner):
            def run(self) -> list[Path]:
                output = []
                for i, item in enumerate(["foo", "bar"]):
                    out_path = Path(f"out-{i}.txt")
                    with out_path.open("w") as f:
                        f.write(item)
                    output.append(out_path)
                return [*output, open("out-0.txt", "rb")]
        """,
        "run.py:Runner",
    )
    done = peer.run()
    assert done.json == [{"$file": "out-0.txt"}, {"$file": "out-1.txt"}, {"$file": "out-0-2.txt"}]
    assert Path(done.header["files"][2]["path"]).read_text() == "foo"


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
        ("predict.py:predict", "def predict(x: set) -> str: pass", "x: set has no JSON form"),
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


def test_a_description_has_all_that_input_says(package: Package) -> None:
    folder = package(
        """
        from typing import Optional
        import cog
        from cog import BasePredictor, BaseModel, ConcatenateIterator, Input, Path, Secret

        class Predictor(BasePredictor):
            def setup(self): raise RuntimeError("is not called")

            @cog.concurrent(max=4)
            async def predict(
                self,
                prompt: str = Input(description="What to draw", min_length=1, max_length=77, regex="[^<]*$"),
                image: Path = Input(description="Where to start", accept="image/*"),
                masks: Optional[list[Path]] = Input(default=None),
                num_steps: int = Input(default=20, ge=1, le=50.0),
                scheduler: str = Input(default="DDIM", choices=["DDIM", "K-LMS"]),
                word: str = Input(regex="(?!no)", default="yes"),
                sizes: list[int] = Input(default=[1], ge=1),
                seed: Optional[int] = Input(description="Leave it out for a random one", deprecated=True, ge=0),
                value: int | str = 1,
                token: Secret = None,
                extra: dict = {},
            ) -> ConcatenateIterator[str]:
                '''Draws.'''
                yield ""
        """,
        "predict.py",
    )
    file_or_uri = [FILE, {"type": "string", "format": "uri"}]
    null = {"type": "null"}
    assert _describe(folder / "predict.py") == {
        "name": None,
        "entry": "predict.py:Predictor",
        "kind": "cog",
        "options": {"max_concurrency": 4},
        "input_schema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "Input",
            "type": "object",
            "description": "Draws.",
            "properties": {
                "prompt": {
                    "title": "Prompt",
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 77,
                    "pattern": "^(?:[^<]*$)",
                    "description": "What to draw",
                    "x-order": 0,
                },
                "image": {
                    "title": "Image",
                    "anyOf": file_or_uri,
                    "description": "Where to start",
                    "x-cog-accept": "image/*",
                    "x-order": 1,
                },
                "masks": {
                    "title": "Masks",
                    "anyOf": [{"type": "array", "items": {"anyOf": file_or_uri}}, null],
                    "default": None,
                    "x-order": 2,
                },
                "num_steps": {
                    "title": "Num Steps",
                    "type": "integer",
                    "minimum": 1,
                    "maximum": 50,
                    "default": 20,
                    "x-order": 3,
                },
                "scheduler": {
                    "title": "Scheduler",
                    "type": "string",
                    "enum": ["DDIM", "K-LMS"],
                    "default": "DDIM",
                    "x-order": 4,
                },
                "word": {"title": "Word", "type": "string", "default": "yes", "x-order": 5},
                "sizes": {
                    "title": "Sizes",
                    "type": "array",
                    "items": {"type": "integer", "minimum": 1},
                    "default": [1],
                    "x-order": 6,
                },
                "seed": {
                    "title": "Seed",
                    "anyOf": [{"type": "integer", "minimum": 0}, null],
                    "default": None,
                    "description": "Leave it out for a random one",
                    "deprecated": True,
                    "x-order": 7,
                },
                "value": {
                    "title": "Value",
                    "anyOf": [{"type": "integer"}, {"type": "string"}],
                    "default": 1,
                    "x-order": 8,
                },
                "token": {
                    "title": "Token",
                    "type": "string",
                    "format": "password",
                    "writeOnly": True,
                    "x-cog-secret": True,
                    "x-order": 9,
                },
                "extra": {"title": "Extra", "type": "object", "default": {}, "x-order": 10},
            },
            "required": ["prompt", "image", "token"],
            "additionalProperties": False,
        },
        "output_schema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "Output",
            "type": "array",
            "items": {"type": "string"},
            "x-cog-array-type": "iterator",
            "x-cog-array-display": "concatenate",
        },
    }


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        ("str", {"type": "string"}),
        ("None", {"type": "null"}),
        ("dict[str, dict[str, str]]", {"type": "object"}),
        ("Any", {}),
        ("File", {"$ref": "file"}),
        ("list[Path]", {"type": "array", "items": {"$ref": "file"}}),
        ("Iterator[Path]", {"type": "array", "items": {"$ref": "file"}, "x-cog-array-type": "iterator"}),
        ("AsyncIterator[int]", {"type": "array", "items": {"type": "integer"}, "x-cog-array-type": "iterator"}),
        ("Annotated[list[object], Opaque]", {"type": "array"}),
        ("object()", {}),
    ],
)
def test_a_result_s_schema(package: Package, hint: str, schema: dict[str, Any]) -> None:
    folder = package(
        f"""
        from typing import Annotated, Any, AsyncIterator, Iterator
        from cog import File, Opaque, Path
        def predict() -> {hint}: pass
        """,
        "predict.py",
    )
    found = _describe(f"{folder / 'predict.py'}:predict")["output_schema"]
    assert (found.pop("$schema"), found.pop("title")) == ("https://json-schema.org/draft/2020-12/schema", "Output")
    assert json.loads(json.dumps(found).replace(json.dumps(FILE), '{"$ref": "file"}')) == schema


def test_a_model_s_schema_names_its_fields(package: Package) -> None:
    folder = package(
        """
        from typing import Optional
        from cog import BaseModel, BasePredictor, Path

        class ModelOutput(BaseModel):
            success: bool
            error: Optional[str]
            segmented_image: Optional[Path]

        class Predictor(BasePredictor):
            def predict(self, msg: str) -> ModelOutput: pass
        """,
        "predict.py",
    )
    found = _describe(f"{folder / 'predict.py'}:Predictor")["output_schema"]
    assert found["$ref"] == "#/$defs/ModelOutput"
    fields = found["$defs"]["ModelOutput"]["properties"]
    assert fields["error"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert fields["segmented_image"] == {"anyOf": [FILE, {"type": "null"}]}


def test_what_cannot_be_described_says_why(package: Package) -> None:
    folder = package("class Predictor: pass", "predict.py")
    error = _describe(f"{folder / 'predict.py'}:Predictor", code=1)["error"]
    assert error["message"] == "run or predict method not found: Predictor"
