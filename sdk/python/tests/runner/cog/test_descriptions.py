"""The kind `cog`: what `describe` reads from a predictor."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .models import FILE, Package, describe

pytest.importorskip("cog", reason="Cog needs Python 3.10")


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
    assert describe(folder / "predict.py") == {
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
    found = describe(f"{folder / 'predict.py'}:predict")["output_schema"]
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
    found = describe(f"{folder / 'predict.py'}:Predictor")["output_schema"]
    assert found["$ref"] == "#/$defs/ModelOutput"
    fields = found["$defs"]["ModelOutput"]["properties"]
    assert fields["error"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert fields["segmented_image"] == {"anyOf": [FILE, {"type": "null"}]}


def test_what_cannot_be_described_says_why(package: Package) -> None:
    folder = package("class Predictor: pass", "predict.py")
    error = describe(f"{folder / 'predict.py'}:Predictor", code=1)["error"]
    assert error["message"] == "run or predict method not found: Predictor"
