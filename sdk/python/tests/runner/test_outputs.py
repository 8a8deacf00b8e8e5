"""Results: plain, rich, files, and what JSON cannot hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Serve
from .peer import Peer

PRELUDE = """
import dataclasses, enum, math, pathlib
from pathlib import Path

class Colour(enum.Enum):
    RED = "red"

@dataclasses.dataclass
class Box:
    x: object

class Scalar:
    def tolist(self): return 1.5

class Model:
    def __init__(self, x): self.x = x
    def model_dump(self): return {"x": self.x}

loop = []
loop.append(loop)
deep = []
for _ in range(100_000): deep = [deep]
"""


@pytest.fixture
def rich(package: Callable[[str], Path], start: Callable[[Path], Peer]) -> Callable[[str], Peer]:
    def serve(expression: str) -> Peer:
        folder = package(PRELUDE)
        with (folder / "endpoint.py").open("a") as file:
            file.write(f"def handler(): return {expression}\n")
        peer = start(folder)
        assert peer.load("endpoint.py:handler").type == "ready"
        return peer

    return serve


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("None", None),
        ("'ü\\u2028'", "ü\u2028"),
        ("10 ** 30", 10**30),
        ("(1, [2.5, True])", [1, [2.5, True]]),
        ("{1: 2, None: 3}", {"1": 2, "null": 3}),
        ("Box([Colour.RED, Box(x={'a': Scalar()})])", {"x": ["red", {"x": {"a": 1.5}}]}),
        ("[Model(Scalar())]", [{"x": 1.5}]),
    ],
)
def test_what_has_a_json_form(rich: Callable[[str], Peer], expression: str, result: object) -> None:
    done = rich(expression).run()
    assert done.type == "done", done.header
    assert done.json == result


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("{'items': [0, 1, 2, {'x': {1}}]}", "result.items[3].x is a set, which JSON cannot hold: return a list"),
        ("float('nan')", "result is nan, which JSON cannot hold"),
        ("[1.0, -math.inf]", "result[1] is -inf, which JSON cannot hold"),
        ("Box(b'x')", "result.x is a bytes, which JSON cannot hold: write it to a file"),
        ("{(1, 2): 3}", "result has the key (1, 2): JSON keys are strings"),
        ("[object]", "result[0] is a type, which JSON cannot hold"),
        ("{'a': object()}", "result.a is an object, which JSON cannot hold"),
        ("(i for i in ())", "is a generator, which JSON cannot hold: let the handler itself `yield`"),
        ("'\\ud800'", "result is a str with half a surrogate pair"),
        ("loop", "result contains itself, or is nested too deeply"),
        ("deep", "result contains itself, or is nested too deeply"),
        ("Path('nope')", "cannot find the file nope, which the result names"),
        ("[Path('.')]", "is not a file: pack a folder into an archive"),
        ("'x' * (64 * 1024 * 1024)", "67108866 bytes of JSON, more than 67108864: write it to a file"),
    ],
)
def test_what_has_none_is_named(rich: Callable[[str], Peer], expression: str, message: str) -> None:
    peer = rich(expression)
    error = peer.run().header["error"]
    assert error["code"] == "bad_output"
    assert message in error["message"]
    # The runner is none the worse for it.
    assert peer.run().header["error"]["code"] == "bad_output"


def test_a_bad_yield_is_named_by_its_place(serve: Serve) -> None:
    peer = serve("def handler():\n    yield 1\n    yield {'x': {2}}")
    assert "result[1].x is a set" in peer.run().header["error"]["message"]


def test_numpy_comes_out_as_numbers(serve: Serve) -> None:
    pytest.importorskip("numpy")
    peer = serve(
        """
        import numpy as np
        def handler(bad: bool = False):
            scalars = {"s": np.float32(0.5), "d": np.float64(0.25), "b": np.bool_(True)}
            return {"a": np.arange(4).reshape(2, 2), **scalars, "n": np.array([1.0, np.nan]) if bad else 0}
        """
    )
    assert peer.run().json == {"a": [[0, 1], [2, 3]], "s": 0.5, "d": 0.25, "b": True, "n": 0}
    assert "result.n[1] is nan" in peer.run({"bad": True}).header["error"]["message"]


def test_files_land_in_scratch_under_safe_names(serve: Serve, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    peer = serve(
        f"""
        import dataclasses
        from pathlib import Path
        from stokehold import current_job

        @dataclasses.dataclass
        class Picture:
            path: Path

        def handler():
            scratch, elsewhere = current_job().scratch, Path({str(elsewhere)!r})
            (scratch / "own.png").write_bytes(b"own")
            (scratch / "deep").mkdir()
            (scratch / "deep" / "own.png").write_bytes(b"deep")
            (elsewhere / "own.png").write_bytes(b"other")
            (elsewhere / "..a b\\n?.txt").write_bytes(b"odd")
            (elsewhere / "Bericht f\u00fcr \u56f3 1.png").write_bytes(b"any script")
            (elsewhere / ("x" * 230 + ".bin")).write_bytes(b"long")
            Path("here.json").write_text("{{}}")
            return {{
                "own": scratch / "own.png",
                "again": [scratch / "own.png"],
                "deep": scratch / "deep" / "own.png",
                "other": Picture(elsewhere / "own.png"),
                "odd": elsewhere / "..a b\\n?.txt",
                "script": elsewhere / "Bericht f\u00fcr \u56f3 1.png",
                "long": elsewhere / ("x" * 230 + ".bin"),
                "relative": Path("here.json"),
            }}
        """
    )
    done = peer.run()
    assert done.type == "done", done.header
    result = done.json
    files = {file["name"]: file for file in done.header["files"]}
    scratch = peer.scratch(1)

    def content(value: dict[str, str]) -> bytes:
        path = Path(files[value["$file"]]["path"])
        assert scratch in path.parents
        return path.read_bytes()

    assert result["own"] == result["again"][0] == {"$file": "own.png"}
    assert result["odd"] == {"$file": "__a b_?.txt"}
    assert result["script"] == {"$file": "Bericht f\u00fcr \u56f3 1.png"}
    assert len(files) == 7
    assert all(len(name.encode()) <= 200 for name in files)
    assert [content(result[key]) for key in ("own", "deep", "odd", "long", "relative")] == [
        b"own",
        b"deep",
        b"odd",
        b"long",
        b"{}",
    ]
    assert content(result["other"]["path"]) == b"other"
    assert files["own.png"]["content_type"] == "image/png"
    assert files["here.json"]["content_type"] == "application/json"
    # Nothing of the handler's own was moved away.
    assert (elsewhere / "own.png").read_bytes() == b"other"


def test_yielded_files_are_all_told_at_the_end(serve: Serve) -> None:
    peer = serve(
        """
        from stokehold import current_job
        def handler(n: int):
            for i in range(n):
                path = current_job().scratch / f"{i}.txt"
                path.write_text(str(i))
                yield path
        """
    )
    done = peer.run({"n": 1_000})
    assert [item["$file"] for item in done.json] == [f"{i}.txt" for i in range(1_000)]
    assert [file["name"] for file in done.header["files"]] == [f"{i}.txt" for i in range(1_000)]
    assert peer.seen("output")[0].json == {"$file": "0.txt"}
    assert "more than 1000 files" in peer.run({"n": 1_001}).header["error"]["message"]


def test_two_names_never_become_the_same(serve: Serve, tmp_path: Path) -> None:
    names = [
        *(f"a{between}b.txt" for between in "_\n\\\t "),
        "a-2_b.txt",
        ".b",
        "_b",
        "..b",
        "\u00e9.txt",
        "e\u0301.txt",
    ]
    names += ["\u00e4" * 110 + end for end in ("1.txt", "2.txt", "3.md")]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in names:
        (elsewhere / name).write_text(name)
    peer = serve(
        f"""
        from pathlib import Path

        def handler(names: list[str]):
            return [Path({str(elsewhere)!r}) / name for name in names]
        """
    )
    done = peer.run({"names": names})
    assert done.type == "done", done.header
    given = [file["$file"] for file in done.json]
    assert len(set(given)) == len(names)
    unchanged = {"a_b.txt", "a b.txt", "a-2_b.txt", "_b", "\u00e9.txt", "e\u0301.txt"}
    assert unchanged == set(given) & set(names)
    paths = {file["name"]: Path(file["path"]) for file in done.header["files"]}
    assert [paths[name].read_text() for name in given] == names
