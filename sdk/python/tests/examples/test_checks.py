"""The examples that look at other endpoints' jobs do what they say."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import json
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name.replace('-', '_')}", EXAMPLES / name / "main.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def describe(name: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "stokehold.runner", "describe", str(EXAMPLES / name)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 0, run.stdout
    document: dict[str, Any] = json.loads(run.stdout)
    return document


def scores(prompt: Any) -> dict[str, float]:
    found: dict[str, float] = load("prompt-check").prompt_check("render", prompt)["scores"]
    return found


@pytest.mark.parametrize(
    ("prompt", "label"),
    [
        ("a brutal massacre at dawn", "violence"),
        ("A BL00DY C0RPSE", "gore"),
        ("r\u00edfles and gr3n@des", "weapons"),
        ("kiiiiill and muuuurder them", "violence"),
        ("I want to kill myself", "self-harm"),
    ],
)
def test_prompt_check_finds_what_is_asked_for(prompt: str, label: str) -> None:
    found = scores({"deep": [{"prompt": prompt}], "seed": 7})
    assert found[label] > 0.5
    assert set(found) == {"violence", "gore", "weapons", "self-harm"}
    assert all(0 <= score <= 1 for score in found.values())


@pytest.mark.parametrize(
    "prompt",
    [
        "dusk over the islands",
        "a blood orange and a bath bomb",
        "skilled warm begun",
        "",
        "gunmetal sky, killer whales",
        "Sussex 1789",
        "a stable, bombastic kilometre of kilns, establishing riffles",
    ],
)
def test_prompt_check_leaves_the_harmless_alone(prompt: str) -> None:
    assert set(scores({"prompt": prompt}).values()) == {0}


def test_prompt_check_is_bounded() -> None:
    assert set(scores(["x" * 1_000_000] * 100).values()) == {0}
    assert set(scores(None).values()) == {0}


def test_prompt_check_takes_what_a_step_is_given() -> None:
    document = describe("prompt-check")
    assert (document["name"], document["entry"]) == ("prompt-check", "main.py:prompt_check")
    assert set(document["input_schema"]["properties"]) == {"endpoint", "input", "thresholds"}
    assert document["input_schema"]["required"] == ["endpoint", "input"]


def test_image_check_measures(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    check = load("image-check").image_check
    picture = image.new("RGB", (400, 300), (90, 140, 200))
    picture.paste((2, 3, 4), (0, 0, 400, 75))
    picture.paste((220, 10, 10), (0, 75, 200, 300))
    picture.save(tmp_path / "a.png")
    found = check("render", {}, tmp_path / "a.png")["scores"]
    assert found == {"dark": pytest.approx(0.25, abs=0.01), "red": pytest.approx(0.375, abs=0.01)}
    image.new("RGBA", (8, 8), (255, 255, 255, 0)).save(tmp_path / "clear.png")
    assert check("render", {}, tmp_path / "clear.png")["scores"] == {"dark": 1.0, "red": 0.0}
    for hue, expected in (((255, 0, 0), 1.0), ((255, 90, 0), 0.0), ((255, 0, 40), 1.0), ((120, 90, 90), 0.0)):
        image.new("RGB", (8, 8), hue).save(tmp_path / "hue.png")
        assert check("render", {}, tmp_path / "hue.png")["scores"]["red"] == expected, hue


def test_image_check_fetches_what_is_named_by_url(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    check = load("image-check").image_check
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        url = f"http://127.0.0.1:{server.server_port}/a.png"
        try:
            for output in (url, {"$file": "a.png", "url": url}):
                assert check("render", {}, output)["scores"]["dark"] == 1.0
        finally:
            server.shutdown()
    for output in ("file:///etc/hosts", {"$file": "a.png", "url": "/v1/jobs/1/files/a.png"}, {}):
        with pytest.raises(ValueError, match="no URL"):
            check("render", {}, output)


def test_image_check_rejects_what_is_no_picture(tmp_path: Path) -> None:
    pytest.importorskip("PIL.Image")
    (tmp_path / "a.png").write_text("not at all")
    decision = load("image-check").image_check("render", {}, tmp_path / "a.png")
    assert (decision["decision"], "no picture" in decision["reason"]) == ("reject", True)


def test_image_check_takes_what_a_step_is_given() -> None:
    pytest.importorskip("PIL.Image")
    schema = describe("image-check")["input_schema"]
    assert set(schema["properties"]) == {"endpoint", "input", "output", "thresholds"}
    assert any(each.get("format") == "stokehold-file" for each in schema["properties"]["output"]["anyOf"])


def test_render_checked_names_both() -> None:
    pytest.importorskip("PIL.Image")
    pytest.importorskip("numpy")
    document, plain = describe("render-checked"), describe("render")
    assert (document["name"], document["entry"]) == ("render-checked", "endpoint.py:render_checked")
    assert document["input_schema"] == plain["input_schema"]
    assert [step["endpoint"] for step in document["options"]["before"]] == ["prompt-check"]
    assert [step["endpoint"] for step in document["options"]["after"]] == ["image-check"]
    assert document["options"]["retry"]["on"] == ["timeout", "handler_error"]
    assert "before" not in plain["options"]
