"""The kind `cog`: files in inputs and outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .models import READS, Load, data_uri, refusal

pytest.importorskip("cog", reason="Cog needs Python 3.10")


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
    assert "was not sent with the job" in refusal(peer.run({"image": {"$file": "other"}}))


def test_files_come_as_uploads_data_uris_and_urls_alike(load: Load, tmp_path: Path, website: str) -> None:
    (tmp_path / "a.txt").write_text("uploaded")
    peer = load(READS)
    paths = [{"$file": "a"}, data_uri(b"inline"), f"{website}/hello.txt"]
    run = peer.start({"paths": paths, "file": data_uri(b"alone")}, {"a": str(tmp_path / "a.txt")})
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
    assert refusal(load(READS).run({"paths": [value]})).startswith("paths: ")


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
    assert peer.run({"file": data_uri(b"inline")}).json == "inline"
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
