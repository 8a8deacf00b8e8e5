"""Type hints: their schema, and what they make of an input."""

from __future__ import annotations

import dataclasses
import enum
import json
import sys
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Callable, Dict, List, Literal, NewType, Optional, Tuple, TypedDict, Union

import pytest

from stokehold import Field, Reject
from stokehold.runner.inputs import Inputs, result_schema
from stokehold.runner.shapes import FILE_SCHEMA, Shapes, UnknownHint


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass
class Point:
    """A place."""

    x: float
    label: str = "here"
    colour: Colour = Colour.RED


@dataclasses.dataclass
class Tree:
    name: str
    children: List[Tree] = dataclasses.field(default_factory=list)


class Options(TypedDict):
    size: int


class MoreOptions(Options, total=False):
    image: Path


UserId = NewType("UserId", str)
POINT = {"$ref": "#/$defs/Point"}

SCHEMAS: list[tuple[Any, dict[str, Any]]] = [
    (str, {"type": "string"}),
    (int, {"type": "integer"}),
    (float, {"type": "number"}),
    (bool, {"type": "boolean"}),
    (None, {"type": "null"}),
    (Any, {}),
    (object, {}),
    (list, {"type": "array"}),
    (List, {"type": "array"}),
    (list[int], {"type": "array", "items": {"type": "integer"}}),
    (List[Any], {"type": "array"}),
    (Sequence[str], {"type": "array", "items": {"type": "string"}}),
    (dict, {"type": "object"}),
    (Dict[str, Any], {"type": "object"}),
    (Mapping[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
    (tuple, {"type": "array"}),
    (Tuple, {"type": "array"}),
    (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
    (
        tuple[int, str],
        {"type": "array", "minItems": 2, "maxItems": 2, "prefixItems": [{"type": "integer"}, {"type": "string"}]},
    ),
    (tuple[()], {"type": "array", "minItems": 0, "maxItems": 0}),
    (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
    (Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
    (Literal["a", 1, None], {"enum": ["a", 1, None]}),
    (Literal[Colour.RED], {"enum": ["red"]}),
    (Colour, {"enum": ["red", "blue"]}),
    (Level, {"enum": [1]}),
    (UserId, {"type": "string"}),
    (Path, FILE_SCHEMA),
    (Point, POINT),
    (Annotated[int, "how many"], {"type": "integer", "description": "how many"}),
    (
        Annotated[int, Field(ge=1, le=5, description="n")],
        {"type": "integer", "minimum": 1, "maximum": 5, "description": "n"},
    ),
    (Annotated[float, Field(gt=0, lt=1)], {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}),
    (
        Annotated[str, Field(min_length=1, max_length=9, pattern="^a")],
        {"type": "string", "minLength": 1, "maxLength": 9, "pattern": "^a"},
    ),
    (Annotated[List[int], Field(max_length=9)], {"type": "array", "items": {"type": "integer"}, "maxItems": 9}),
    (Annotated[int, Field(choices=[1, 2, 4])], {"type": "integer", "enum": [1, 2, 4]}),
    (Annotated[Optional[int], Field(ge=0)], {"anyOf": [{"type": "integer"}, {"type": "null"}], "minimum": 0}),
]


@pytest.mark.parametrize(("hint", "schema"), SCHEMAS, ids=[str(hint) for hint, _ in SCHEMAS])
def test_schema(hint: Any, schema: dict[str, Any]) -> None:
    assert Shapes().of(hint, "x").schema == schema


LOADS: list[tuple[Any, Any, Any]] = [
    (Any, {"a": [1]}, {"a": [1]}),
    (Path, {"$file": "f1"}, Path("/in/cat.png")),
    (Optional[Path], None, None),
    (List[Path], [{"$file": "f1"}], [Path("/in/cat.png")]),
    (Dict[str, Path], {"a": {"$file": "f1"}}, {"a": Path("/in/cat.png")}),
    (Union[str, Path], "f1", "f1"),
    (Union[str, Path], {"$file": "f1"}, Path("/in/cat.png")),
    (Annotated[Path, "a picture"], {"$file": "f1"}, Path("/in/cat.png")),
    (Colour, "red", Colour.RED),
    (Level, 1, Level.LOW),
    (Literal[Colour.RED, "other"], "red", Colour.RED),
    (tuple[int, ...], [1, 2], (1, 2)),
    (tuple[int, Colour], [1, "blue"], (1, Colour.BLUE)),
    (Tuple, [1, "a"], (1, "a")),
    (Point, {"x": 1}, Point(1)),
    (Point, {"x": 1, "colour": "blue"}, Point(1, "here", Colour.BLUE)),
    (Tree, {"name": "a", "children": [{"name": "b"}]}, Tree("a", [Tree("b")])),
    (Union[Point, Tree], {"name": "a"}, Tree("a")),
    (MoreOptions, {"size": 1, "image": {"$file": "f1"}}, {"size": 1, "image": Path("/in/cat.png")}),
    (Union[bool, Colour, int], 3, 3),
]


@pytest.mark.parametrize(("hint", "value", "loaded"), LOADS)
def test_load(hint: Any, value: Any, loaded: Any) -> None:
    shape = Shapes().of(hint, "x")
    got = value if shape.load is None else shape.load(value, {"f1": "/in/cat.png"})
    assert got == loaded
    assert type(got) is type(loaded)


REFUSALS: list[tuple[Any, Any, str]] = [
    (Path, "f1", 'is not a file; use {"$file": "<file id>"}'),
    (Path, {"$file": "f2"}, 'file "f2" was not sent with the job'),
    (Colour, "green", '"green" is not one of "red", "blue"'),
    (tuple[int, str], [1], "[1] is not an array of 2"),
    (Point, {"y": 1}, '{"y": 1} is not a valid Point'),
    (List[Path], {}, "{} is not an array"),
    (Union[Colour, Path], 5, "5 matches no member of the union"),
]


@pytest.mark.parametrize(("hint", "value", "message"), REFUSALS)
def test_a_value_that_does_not_fit_is_refused(hint: Any, value: Any, message: str) -> None:
    load = Shapes().of(hint, "x").load
    assert load is not None
    with pytest.raises(Reject) as caught:
        load(value, {"f1": "/in/cat.png"})
    assert message in str(caught.value)


UNKNOWN: list[tuple[Any, str]] = [
    (bytes, "x: bytes cannot be converted to JSON: JSON has no bytes; use pathlib.Path"),
    (List[bytes], "x[]: bytes cannot be converted to JSON"),
    (set, "JSON has no sets; use list"),
    (typing.Set[int], "JSON has no sets; use list"),
    (Dict[int, str], "use dict[str, ...] instead of dict[int, ...]"),
    (Callable[[], int], "cannot be converted to JSON"),
    (Path.cwd, "cannot be converted to JSON"),
]


@pytest.mark.parametrize(("hint", "message"), UNKNOWN)
def test_a_hint_without_a_json_form_says_what_to_use(hint: Any, message: str) -> None:
    with pytest.raises(UnknownHint) as caught:
        Shapes().of(hint, "x")
    assert message in str(caught.value)
    # A result may have such a hint: what comes is seen when it comes.
    assert Shapes(lenient=True).of(hint, "x").schema in ({}, {"type": "array"})


def test_an_input_schema_has_all_that_the_signature_says() -> None:
    def handler(  # type: ignore[no-untyped-def]
        text: str, point: Point, n: Annotated[int, "how many"] = 3, image: Optional[Path] = None, anything=None
    ):
        """Does it.

        And well.
        """

    assert Inputs(handler, bound=False).schema == {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "description": "Does it.\n\nAnd well.",
        "properties": {
            "text": {"type": "string"},
            "point": POINT,
            "n": {"type": "integer", "description": "how many", "default": 3},
            "image": {"anyOf": [FILE_SCHEMA, {"type": "null"}], "default": None},
            "anything": {"default": None},
        },
        "required": ["text", "point"],
        "additionalProperties": False,
        "x-order": ["text", "point", "n", "image", "anything"],
        "$defs": {
            "Point": {
                "description": "A place.",
                "type": "object",
                "properties": {
                    "x": {"type": "number"},
                    "label": {"type": "string", "default": "here"},
                    "colour": {"enum": ["red", "blue"], "default": "red"},
                },
                "required": ["x"],
                "additionalProperties": False,
                "x-order": ["x", "label", "colour"],
            }
        },
    }


def test_a_type_that_contains_itself_refers_to_itself() -> None:
    shapes = Shapes()
    shapes.of(Tree, "x")
    assert shapes.definitions["Tree"]["properties"]["children"] == {"type": "array", "items": {"$ref": "#/$defs/Tree"}}


def test_keyword_arguments_take_what_is_left() -> None:
    def free(**rest: Any) -> None: ...

    def files(a: int, **rest: Path) -> None: ...

    assert Inputs(free, bound=False).schema["additionalProperties"] is True
    inputs = Inputs(files, bound=False)
    assert inputs.schema["additionalProperties"] == FILE_SCHEMA
    body = json.dumps({"a": 1, "b": {"$file": "f1"}}).encode()
    assert inputs.load(body, {"f1": "/in"}) == {"a": 1, "b": Path("/in")}


def test_arguments_without_a_name_are_refused() -> None:
    with pytest.raises(UnknownHint, match="every argument must have a name"):
        Inputs(lambda *texts: None, bound=False)
    with pytest.raises(UnknownHint, match="positional-only"):
        Inputs(lambda text, /: None, bound=False)


def test_a_refusal_names_the_argument() -> None:
    def handler(colour: Colour) -> None: ...

    with pytest.raises(Reject, match=r'^input\.colour: "green" is not one of'):
        Inputs(handler, bound=False).load(b'{"colour": "green"}', {})


def test_a_hint_that_cannot_be_evaluated_says_so() -> None:
    def handler(x: NotImported) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(UnknownHint, match=r"NotImported.*Optional"):
        Inputs(handler, bound=False)


def test_two_types_of_one_name_are_refused() -> None:
    other = dataclasses.make_dataclass("Point", [("y", int)])
    with pytest.raises(UnknownHint, match="two types are named Point"):
        Shapes().of(Union[Point, other], "x")


def test_a_decorated_handler_keeps_its_hints() -> None:
    import functools

    def twice(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            return function(*arguments, **options)

        return call

    @twice
    def handler(n: int) -> str:
        return str(n)

    assert Inputs(handler, bound=False).schema["properties"] == {"n": {"type": "integer"}}
    assert result_schema(handler, yields=False)["type"] == "string"


def test_the_result_of_a_generator_is_an_array() -> None:
    def typed() -> Iterator[Path]:
        yield Path()

    def untyped():  # type: ignore[no-untyped-def]
        yield 1

    assert result_schema(typed, yields=True)["items"] == FILE_SCHEMA
    assert result_schema(untyped, yields=True)["type"] == "array"


@pytest.mark.skipif(sys.version_info < (3, 10), reason="X | None is Python 3.10")
def test_unions_with_a_bar() -> None:
    def handler(x: int | None, y: str | Path = "a") -> None: ...

    properties = Inputs(handler, bound=False).schema["properties"]
    assert properties["x"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert properties["y"] == {"anyOf": [{"type": "string"}, FILE_SCHEMA], "default": "a"}


@pytest.mark.skipif(sys.version_info >= (3, 10), reason="X | None is Python 3.10")
def test_unions_with_a_bar_are_explained_where_python_has_none() -> None:
    def handler(x: int | None) -> None: ...

    with pytest.raises(UnknownHint, match=r"needs Python 3\.10"):
        Inputs(handler, bound=False)


def test_pydantic_models() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Inner(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        n: int

    class Outer(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        inner: Inner

    shapes = Shapes()
    shape = shapes.of(Outer, "x")
    assert shape.schema == {"$ref": "#/$defs/Outer"}
    assert shapes.definitions.keys() == {"Inner", "Outer"}
    assert shapes.definitions["Outer"]["properties"]["inner"] == {"$ref": "#/$defs/Inner"}
    assert shape.load is not None
    assert shape.load({"inner": {"n": 1}}, {}) == Outer(inner=Inner(n=1))
    with pytest.raises(Reject, match="is not a valid Outer"):
        shape.load({"inner": {}}, {})
