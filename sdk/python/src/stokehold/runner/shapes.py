"""Converts type hints to JSON Schemas, and JSON values to Python values."""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import inspect
import json
import os
import pathlib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Callable

from stokehold.runner.errors import Reject
from stokehold.runner.field import keywords

Schema = dict[str, Any]
Files = Mapping[str, str]
Loader = Callable[[Any, Files], Any]

FILE_SCHEMA: Schema = {
    "type": "object",
    "properties": {"$file": {"type": "string"}},
    "required": ["$file"],
    "format": "stokehold-file",
}

_PLAIN: dict[Any, tuple[str, tuple[type, ...]]] = {
    str: ("string", (str,)),
    bool: ("boolean", (bool,)),
    int: ("integer", (int,)),
    float: ("number", (int, float)),
    type(None): ("null", (type(None),)),
}
_LISTS = (
    list,
    collections.abc.Sequence,
    collections.abc.MutableSequence,
    collections.abc.Collection,
    collections.abc.Iterable,
)
_ITERATORS = (
    collections.abc.Iterator,
    collections.abc.Generator,
    collections.abc.AsyncIterator,
    collections.abc.AsyncIterable,
    collections.abc.AsyncGenerator,
)
_DICTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_PATHS = (pathlib.Path, pathlib.PurePath, pathlib.PosixPath, os.PathLike)
_UNIONS = (typing.Union, getattr(types, "UnionType", typing.Union))
_MISSING = inspect.Parameter.empty

_ADVICE: dict[Any, str] = {
    bytes: "JSON has no bytes; use pathlib.Path for a file, or str",
    bytearray: "JSON has no bytes; use pathlib.Path for a file, or str",
    memoryview: "JSON has no bytes; use pathlib.Path for a file, or str",
    set: "JSON has no sets; use list",
    frozenset: "JSON has no sets; use list",
    complex: "JSON has no complex numbers; use list[float]",
}


class UnknownHint(TypeError):  # noqa: N818 - a kind of TypeError
    """A type hint that cannot be converted to a JSON Schema."""


@dataclass(frozen=True)
class Shape:
    """A type hint. `load` is None if the JSON value is the Python value. `matches` selects the member of a union."""

    schema: Schema
    load: Loader | None = None
    matches: Callable[[Any], bool] = lambda _value: True


ANYTHING = Shape({})


class Shapes:
    """Creates shapes. Classes with fields are put in `definitions` by name, so that they can contain themselves."""

    def __init__(self, *, lenient: bool = False) -> None:
        """lenient: an unsupported hint means any value (for results, which are checked when they are encoded)."""
        self.definitions: dict[str, Schema] = {}
        self._owners: dict[str, Any] = {}
        self._lenient = lenient

    def of(self, hint: Any, where: str) -> Shape:
        """Returns the shape of a hint. Errors name it as `where`."""
        if hint is Any or hint is _MISSING or hint is object or isinstance(hint, typing.TypeVar):
            return ANYTHING
        if hint is None:
            hint = type(None)
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin is not None and (arguments or origin is tuple) and hint is not typing.Tuple:  # noqa: UP006
            return self._of_generic(hint, origin, arguments, where)
        # `typing.List` without an argument is `list`.
        return self._of_plain(origin or hint, where)

    def _of_plain(self, hint: Any, where: str) -> Shape:
        if hint in _ADVICE:
            return self._unknown(hint, where, _ADVICE[hint])
        if hint in _PLAIN:
            name, classes = _PLAIN[hint]
            return Shape({"type": name}, None, _plain_matcher(hint, classes))
        if hint in _LISTS or hint in _ITERATORS:
            return self._array(Any, where)
        if hint in _DICTS:
            return Shape({"type": "object"}, None, _is_dict)
        if hint is tuple:
            return Shape({"type": "array"}, lambda value, _files: tuple(value), _is_list)
        if hasattr(hint, "__supertype__"):
            return self.of(hint.__supertype__, where)
        if hasattr(hint, "__value__"):
            return self.of(hint.__value__, where)
        if inspect.isclass(hint):
            return self._of_class(hint, where)
        return self._unknown(hint, where)

    def _of_generic(self, hint: Any, origin: Any, arguments: tuple[Any, ...], where: str) -> Shape:
        if origin in _ADVICE:
            return self._unknown(hint, where, _ADVICE[origin])
        if origin is typing.Annotated:
            return self._annotated(arguments[0], arguments[1:], where)
        if origin in _UNIONS:
            return self._union([self.of(member, where) for member in arguments])
        if origin is typing.Literal:
            return _choice(list(arguments))
        if origin in _LISTS or origin in _ITERATORS:
            return self._array(arguments[0], where)
        if origin in _DICTS:
            return self._dictionary(arguments, where)
        if origin is tuple:
            return self._tuple(arguments, where)
        if origin in _PATHS:
            return self._of_class(origin, where)
        if getattr(origin, "_name", "") in ("Required", "NotRequired", "ReadOnly"):
            return self.of(arguments[0], where)
        return self._unknown(hint, where)

    def _of_class(self, hint: type, where: str) -> Shape:
        if hint in _PATHS:
            return Shape(FILE_SCHEMA, load_file, _is_file)
        if issubclass(hint, enum.Enum):
            return _enumeration(hint)
        if _is_model(hint):
            return self._model(hint)
        if issubclass(hint, dict) and hasattr(hint, "__total__"):
            return self._typed_dict(hint, where)
        if dataclasses.is_dataclass(hint):
            return self._dataclass(hint, where)
        return self._unknown(hint, where)

    def _unknown(self, hint: Any, where: str, advice: str = "") -> Shape:
        if self._lenient:
            return ANYTHING
        advice = (
            advice or "use str, int, float, bool, list, dict, Literal, Enum, a dataclass, a TypedDict or pathlib.Path"
        )
        raise UnknownHint(f"{where}: {_name(hint)} cannot be converted to JSON: {advice}")

    def _annotated(self, hint: Any, metadata: tuple[Any, ...], where: str) -> Shape:
        shape = self.of(hint, where)
        schema = dict(shape.schema)
        for item in metadata:
            schema.update(_fitting(keywords(item), schema))
        return dataclasses.replace(shape, schema=schema)

    def _union(self, members: list[Shape]) -> Shape:
        schema: Schema = {"anyOf": [member.schema for member in members]}

        def matches(value: Any) -> bool:
            return any(member.matches(value) for member in members)

        if all(member.load is None for member in members):
            return Shape(schema, None, matches)

        def load(value: Any, files: Files) -> Any:
            refusal: Reject | None = None
            for member in members:
                if not member.matches(value):
                    continue
                if member.load is None:
                    return value
                try:
                    return member.load(value, files)
                except Reject as error:
                    refusal = refusal or error
            raise refusal or Reject(f"{_shown(value)} matches no member of the union")

        return Shape(schema, load, matches)

    def _array(self, hint: Any, where: str) -> Shape:
        item = self.of(hint, f"{where}[]")
        schema: Schema = {"type": "array", "items": item.schema} if item.schema else {"type": "array"}
        load = item.load
        if load is None:
            return Shape(schema, None, _is_list)
        return Shape(schema, lambda value, files: [load(each, files) for each in _checked(value, list)], _is_list)

    def _dictionary(self, arguments: tuple[Any, ...], where: str) -> Shape:
        key, hint = arguments
        if key not in (str, Any):
            return self._unknown(
                dict, where, f"JSON keys are strings; use dict[str, ...] instead of dict[{_name(key)}, ...]"
            )
        value = self.of(hint, f"{where}.*")
        schema: Schema = (
            {"type": "object", "additionalProperties": value.schema} if value.schema else {"type": "object"}
        )
        load = value.load
        if load is None:
            return Shape(schema, None, _is_dict)
        return Shape(
            schema,
            lambda found, files: {name: load(each, files) for name, each in _checked(found, dict).items()},
            _is_dict,
        )

    def _tuple(self, arguments: tuple[Any, ...], where: str) -> Shape:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            array = self._array(arguments[0], where)
            load = array.load
            if load is None:
                return Shape(array.schema, lambda value, _files: tuple(_checked(value, list)), _is_list)
            return Shape(array.schema, lambda value, files: tuple(load(value, files)), _is_list)
        # `tuple[()]` has no arguments, or an empty tuple as its only argument in old versions of Python.
        items = [self.of(hint, f"{where}[{index}]") for index, hint in enumerate(arguments) if hint != ()]
        schema: Schema = {"type": "array", "minItems": len(items), "maxItems": len(items)}
        if items:
            schema["prefixItems"] = [item.schema for item in items]

        def load_each(value: Any, files: Files) -> Any:
            if not isinstance(value, list) or len(value) != len(items):
                raise Reject(f"{_shown(value)} is not an array of {len(items)}")
            return tuple(each if item.load is None else item.load(each, files) for item, each in zip(items, value))

        return Shape(schema, load_each, lambda value: _is_list(value) and len(value) == len(items))

    def _typed_dict(self, hint: Any, where: str) -> Shape:
        def fields() -> dict[str, _Member]:
            hints = type_hints(hint, where)
            optional = {name for name, each in hints.items() if _qualifier(each) == "NotRequired"}
            required = hint.__required_keys__ - optional
            return {name: _Member(self.of(each, f"{where}.{name}"), name in required) for name, each in hints.items()}

        return self._object(hint, fields, dict)

    def _dataclass(self, hint: Any, where: str) -> Shape:
        def fields() -> dict[str, _Member]:
            hints = type_hints(hint, where)
            members = {}
            for field in dataclasses.fields(hint):
                if not field.init:
                    continue
                has_default = field.default is not dataclasses.MISSING
                required = not has_default and field.default_factory is dataclasses.MISSING
                shape = self.of(hints[field.name], f"{where}.{field.name}")
                members[field.name] = _Member(with_default(shape, field.default) if has_default else shape, required)
            return members

        return self._object(hint, fields, hint)

    def _object(self, hint: Any, fields: Callable[[], dict[str, _Member]], build: Callable[..., Any]) -> Shape:
        """`fields` is called after the name is registered, so that a member can refer to it."""
        reference, is_new = self._define(hint)
        members: dict[str, _Member] = self._owners[hint.__name__][1]
        if is_new:
            members.update(fields())
            schema: Schema = {
                "type": "object",
                "properties": {name: member.shape.schema for name, member in members.items()},
                "required": [name for name, member in members.items() if member.required],
                "additionalProperties": False,
                **order_of(members),
            }
            text = _doc(hint)
            self.definitions[hint.__name__] = {"description": text, **schema} if text else schema

        def matches(value: Any) -> bool:
            return (
                isinstance(value, dict)
                and value.keys() <= members.keys()
                and all(name in value for name, member in members.items() if member.required)
            )

        def load(value: Any, files: Files) -> Any:
            if not matches(value):
                raise Reject(f"{_shown(value)} is not a valid {hint.__name__}")
            return build(
                **{
                    name: each if (loader := members[name].shape.load) is None else loader(each, files)
                    for name, each in value.items()
                }
            )

        return Shape(reference, load, matches)

    def _model(self, hint: Any) -> Shape:
        reference, is_new = self._define(hint)
        if is_new:
            schema = hint.model_json_schema(ref_template="#/$defs/{model}")
            parts = schema.pop("$defs", {})
            # A model that contains itself is already one of its own parts.
            parts.setdefault(hint.__name__, schema)
            del self.definitions[hint.__name__]
            for name, definition in parts.items():
                if self.definitions.setdefault(name, definition) != definition:
                    raise UnknownHint(f"two types are named {name}; rename one")

        def load(value: Any, _files: Files) -> Any:
            try:
                return hint.model_validate(value)
            except ValueError as error:
                raise Reject(f"{_shown(value)} is not a valid {hint.__name__}: {error}") from None

        return Shape(reference, load, _is_dict)

    def _define(self, hint: Any) -> tuple[Schema, bool]:
        """Returns a reference to the definition of a class, and whether the definition is new."""
        name = hint.__name__
        owner = self._owners.setdefault(name, (hint, {}))
        if owner[0] is not hint:
            raise UnknownHint(f"two types are named {name}; rename one")
        is_new = name not in self.definitions
        self.definitions.setdefault(name, {})
        return {"$ref": f"#/$defs/{name}"}, is_new


def order_of(names: Mapping[str, Any]) -> Schema:
    """The order of an object's members, for forms: JSON objects are stored without one."""
    return {"x-order": list(names)} if len(names) > 1 else {}


@dataclass(frozen=True)
class _Member:
    shape: Shape
    required: bool


def type_hints(target: Any, where: str) -> dict[str, Any]:
    """The type hints of a function or class, evaluated."""
    try:
        return typing.get_type_hints(target, include_extras=True)
    except (NameError, TypeError, AttributeError) as error:
        raise UnknownHint(
            f"{where}: a type hint cannot be evaluated: {error}. Types in hints must be imported at run time, and "
            "`X | None` requires Python 3.10; use Optional[X] before that"
        ) from error


def item_hint(hint: Any) -> Any:
    """The hint of the items of a list (`Any` if it has none), or None if the hint is not a list."""
    if typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    origin, arguments = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin not in _LISTS:
        return None
    return arguments[0] if arguments else Any


def with_default(shape: Shape, default: Any) -> Shape:
    """Adds a default to the schema, if JSON can represent it."""
    if isinstance(default, enum.Enum):
        default = default.value
    try:
        plain = json.loads(json.dumps(default, allow_nan=False))
    except (TypeError, ValueError):
        return shape
    return dataclasses.replace(shape, schema={**shape.schema, "default": plain})


def _plain_matcher(hint: Any, classes: tuple[type, ...]) -> Callable[[Any], bool]:
    if hint in (int, float):
        return lambda value: isinstance(value, classes) and not isinstance(value, bool)
    return lambda value: isinstance(value, classes)


def _choice(values: list[Any]) -> Shape:
    plain = [value.value if isinstance(value, enum.Enum) else value for value in values]
    by_plain = {_key(each): value for each, value in zip(plain, values)}
    load: Loader | None = None
    if any(isinstance(value, enum.Enum) for value in values):

        def load(value: Any, _files: Files) -> Any:
            try:
                return by_plain[_key(value)]
            except KeyError:
                raise Reject(f"{_shown(value)} is not one of {', '.join(map(_shown, plain))}") from None

    return Shape({"enum": plain}, load, lambda value: _key(value) in by_plain)


def _enumeration(hint: type[enum.Enum]) -> Shape:
    for member in hint:
        if not isinstance(member.value, (str, int, float, bool, type(None))):
            raise UnknownHint(f"{hint.__name__}.{member.name}: use a str, int, float or bool as the value of an enum")
    return _choice(list(hint))


def _key(value: Any) -> Any:
    """A key that distinguishes 1 from true but not from 1.0, as JSON does."""
    if isinstance(value, (str, int, float, type(None))):
        return (isinstance(value, bool), value)
    return (None, repr(value))


def load_file(value: Any, files: Files) -> pathlib.Path:
    """Returns the path of the file of `{"$file": id}`. Raises `Reject` for any other value."""
    if not _is_file(value):
        raise Reject(f'{_shown(value)} is not a file; use {{"$file": "<file id>"}}')
    path = files.get(value["$file"])
    if path is None:
        raise Reject(f"file {_shown(value['$file'])} was not sent with the job")
    return pathlib.Path(path)


def _is_file(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("$file"), str)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)


def _is_model(hint: Any) -> bool:
    """Whether a class is a pydantic model. Does not import pydantic."""
    return callable(getattr(hint, "model_json_schema", None)) and callable(getattr(hint, "model_validate", None))


def _checked(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise Reject(f"{_shown(value)} is not an {'array' if kind is list else 'object'}")
    return value


def _fitting(found: Schema, schema: Schema) -> Schema:
    """Removes the length keywords that do not apply to the type, if it is known."""
    unfit = {"string": ("minItems", "maxItems"), "array": ("minLength", "maxLength")}.get(schema.get("type", ""), ())
    return {keyword: value for keyword, value in found.items() if keyword not in unfit}


def _qualifier(hint: Any) -> str:
    return str(getattr(typing.get_origin(hint), "_name", ""))


def _doc(hint: Any) -> str:
    """The docstring of a class, unless Python generated it."""
    text = hint.__doc__ or ""
    return "" if text.startswith(f"{hint.__name__}(") or text == dict.__doc__ else inspect.cleandoc(text)


def _name(hint: Any) -> str:
    return hint.__qualname__ if inspect.isclass(hint) else str(hint).replace("typing.", "")


def _shown(value: Any) -> str:
    text = json.dumps(value, default=repr)
    return text if len(text) <= 80 else text[:77] + "..."
