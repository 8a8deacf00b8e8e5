"""The type hints of Cog: their schemas, and the conversion to Python values."""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import operator
import os
import shutil
import tempfile
import types
import typing
from typing import Any, Callable

import cog  # type: ignore[import-untyped]

from stokehold.runner.context import current_job
from stokehold.runner.errors import Reject
from stokehold.runner.shapes import FILE_SCHEMA, Files, Schema, Shape, Shapes, load_file, type_hints

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_NONE = type(None)
_FILE_OR_URI: Schema = {"anyOf": [FILE_SCHEMA, {"type": "string", "format": "uri"}]}
_SECRET: Schema = {"type": "string", "format": "password", "writeOnly": True, "x-cog-secret": True}
# How clients of Cog send a file. A path would be a path on this machine.
_URIS = ("data:", "http://", "https://")
_PIECES = (cog.ConcatenateIterator, cog.AsyncConcatenateIterator)
_ITERATORS = (
    *_PIECES,
    collections.abc.Iterator,
    collections.abc.Generator,
    collections.abc.AsyncIterator,
    collections.abc.AsyncGenerator,
)
# The oldest supported version, 0.17, does not have it.
_OPAQUE = getattr(cog, "Opaque", None)


class CogShapes(Shapes):
    """Supports the classes of Cog too. Values that Cog does not check are not checked here either."""

    def of(self, hint: Any, where: str) -> Shape:
        return super().of(unveiled(hint), where)

    def _of_plain(self, hint: Any, where: str) -> Shape:
        shape = super()._of_plain(hint, where)
        return _checked(hint, shape) if hint in (str, bool, int, float) else shape

    def _of_class(self, hint: type, where: str) -> Shape:
        if issubclass(hint, cog.Secret):
            return Shape(_SECRET, _load_secret, lambda value: isinstance(value, str))
        if issubclass(hint, (cog.File, os.PathLike)):
            load = _load_stream if issubclass(hint, cog.File) else _load_path
            return Shape(FILE_SCHEMA if self._lenient else _FILE_OR_URI, load, _is_file)
        return super()._of_class(hint, where)

    def _dictionary(self, arguments: tuple[Any, ...], where: str) -> Shape:
        return self.of(dict, where)

    def _typed_dict(self, hint: Any, where: str) -> Shape:
        return self.of(dict, where)


def result_schema(function: Callable[..., Any]) -> Schema:
    """The schema of the result of a predictor; for an iterator, that of the list of yielded values."""
    hint = result_hint(function)
    marks: Schema = {}
    if is_iterator(hint):
        marks["x-cog-array-type"] = "iterator"
        if _origin(hint) in _PIECES:
            marks["x-cog-array-display"] = "concatenate"
        # The first argument of a generator is the type of its items.
        hint = types.GenericAlias(list, (next(iter(typing.get_args(hint)), Any),))
    shapes = CogShapes(lenient=True)
    schema = {"$schema": DIALECT, "title": "Output", **shapes.of(hint, "result").schema, **marks}
    return {**schema, "$defs": shapes.definitions} if shapes.definitions else schema


def result_hint(function: Callable[..., Any]) -> Any:
    return type_hints(function, "the predictor").get("return", Any)


def is_iterator(hint: Any) -> bool:
    return _origin(hint) in _ITERATORS


def without_none(hint: Any) -> tuple[Any, bool]:
    """Removes None from an optional hint. Also returns whether it is optional."""
    members = _members(hint)
    others = [member for member in members if member is not _NONE]
    return (functools.reduce(operator.or_, others), True) if 0 < len(others) < len(members) else (hint, False)


def unveiled(hint: Any) -> Any:
    """Replaces `Annotated[..., cog.Opaque]` by its structure: where it is a list, and where it can be None."""
    if typing.get_origin(hint) is not typing.Annotated or _OPAQUE not in typing.get_args(hint)[1:]:
        return hint
    members = _members(typing.get_args(hint)[0])
    return functools.reduce(
        operator.or_,
        [each if each is _NONE else list if _origin(each) is list else Any for each in members],
    )


def _members(hint: Any) -> tuple[Any, ...]:
    """The members of a union. Any other hint is its own only member."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _origin(hint: Any) -> Any:
    return typing.get_origin(hint) or hint


def _checked(hint: type, shape: Shape) -> Shape:
    """Rejects a value of another type, with the message of Cog, which does not contain the value."""

    def load(value: Any, _files: Files) -> Any:
        if hint is int and isinstance(value, float) and value.is_integer():
            # In JSON Schema, 1.0 is an integer.
            return int(value)
        if not shape.matches(value):
            raise Reject(f"Invalid value for type {hint.__name__}")
        return value

    return dataclasses.replace(shape, load=load)


def _load_secret(value: Any, _files: Files) -> Any:
    if not isinstance(value, str):
        raise Reject("Invalid value for type Secret")
    return cog.Secret(value)


def _load_path(value: Any, files: Files) -> Any:
    """Returns a `cog.Path`. The content of a URI is written to the scratch folder of the job."""
    if not _is_uri(value):
        return cog.Path(load_file(value, files))
    remote = _validated(cog.Path, value)
    with tempfile.NamedTemporaryFile(dir=current_job().scratch, suffix=remote.filename, delete=False) as local:
        shutil.copyfileobj(remote.fileobj, local)
    return cog.Path(local.name)


def _load_stream(value: Any, files: Files) -> Any:
    """Returns an open file. A URL is downloaded while it is read."""
    return _validated(cog.File, value) if _is_uri(value) else load_file(value, files).open("rb")


def _validated(kind: Any, uri: str) -> Any:
    try:
        return kind.validate(uri)
    except ValueError as error:
        raise Reject(str(error)) from None


def _is_uri(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(_URIS)


def _is_file(value: Any) -> bool:
    return _is_uri(value) or (isinstance(value, dict) and "$file" in value)
