"""The arguments of a Cog predictor: their schema, and how they are decoded from the input of a job.

Built on `cog.FieldInfo` and the classes that models import, which exist in every version of Cog since 0.17. The checks
of Cog itself are in private modules that differ between versions. The messages are those of Cog.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import operator
import re
import sys
from typing import Any, Callable, NamedTuple

import cog  # type: ignore[import-untyped]

from stokehold.runner.errors import Reject
from stokehold.runner.kinds.cog_types import DIALECT, CogShapes, unveiled, without_none
from stokehold.runner.shapes import Files, Schema, Shape, type_hints, with_default

_MISSING = inspect.Parameter.empty
# Features of Python patterns that linear-time engines lack: look-around, conditions, references to groups, possessive
# and atomic parts, and `\Z`.
_BACKTRACKS = re.compile(r"\(\?(?:[=!>(]|<[=!]|P=)|\\[1-9Z]|[*+?}]\+")


class Inputs:
    """The arguments of a predictor. Created once per predictor; `load` runs for every job."""

    def __init__(self, function: Callable[..., Any], *, bound: bool) -> None:
        """bound: the first parameter is `self`."""
        hints = type_hints(function, "the predictor")
        shapes = CogShapes()
        parameters = list(inspect.signature(function).parameters.values())[bound:]
        self._fields = [_Field(each, hints.get(each.name, Any), shapes) for each in parameters]
        self._names = {field.name for field in self._fields}
        self.schema: Schema = {
            "$schema": DIALECT,
            "title": "Input",
            "type": "object",
            "properties": {field.name: {**field.schema, "x-order": n} for n, field in enumerate(self._fields)},
            "required": [field.name for field in self._fields if field.is_required],
            # A misspelled argument is rejected at submit, where the caller sees it. `load` ignores it, as Cog does.
            "additionalProperties": False,
        }
        # Only its own docstring: an inherited one is from Cog and about overriding.
        if function.__doc__:
            self.schema["description"] = inspect.cleandoc(function.__doc__)
        if shapes.definitions:
            self.schema["$defs"] = shapes.definitions

    def load(self, body: bytes, files: Files) -> dict[str, Any]:
        """Decodes the arguments, with defaults. Raises `Reject` for an input that does not match."""
        given: dict[str, Any] = json.loads(body)
        for name in given:
            if name not in self._names:
                sys.stderr.write(f"WARNING unknown input field ignored: {name}\n")
        return {field.name: field.load(given.get(field.name, _MISSING), files) for field in self._fields}


class _Constraint(NamedTuple):
    """A constraint of `cog.Input`: its name there and in JSON Schema, and the message for a value that breaks it."""

    argument: str
    keyword: str
    refusal: str
    holds: Callable[[Any, Any], bool]

    def schema(self, bound: Any) -> Schema:
        if self.argument != "regex":
            return {self.keyword: bound}
        # Cog matches from the beginning. A pattern that the API cannot run is checked only here.
        return {} if _BACKTRACKS.search(bound) else {self.keyword: f"^(?:{bound})"}


_CONSTRAINTS = (
    _Constraint("ge", "minimum", "fails constraint >= {}", operator.ge),
    _Constraint("le", "maximum", "fails constraint <= {}", operator.le),
    _Constraint("min_length", "minLength", "fails constraint len() >= {}", lambda text, bound: len(text) >= bound),
    _Constraint("max_length", "maxLength", "fails constraint len() <= {}", lambda text, bound: len(text) <= bound),
    _Constraint("regex", "pattern", "does not match regex {!r}", lambda text, regex: bool(re.match(regex, text))),
    _Constraint("choices", "enum", "does not match choices {!r}", lambda value, choices: value in choices),
)


class _Field:
    """An input."""

    def __init__(self, parameter: inspect.Parameter, hint: Any, shapes: CogShapes) -> None:
        self.name = parameter.name
        has_info = isinstance(parameter.default, cog.FieldInfo)
        plain = None if parameter.default is _MISSING else parameter.default
        info = parameter.default if has_info else cog.FieldInfo(default=plain)
        hint, is_optional = without_none(unveiled(hint))
        # `Input(default=None)` looks like `Input()`. Cog makes only a secret optional this way.
        self._is_optional = is_optional or (hint is cog.Secret and has_info)
        shape = shapes.of(hint, self.name)
        self._load = shape.load
        self._default = info.default
        self._bounds = [(each, bound) for each in _CONSTRAINTS if (bound := _bound(info, each.argument)) is not None]
        self.is_required = info.default is None and not self._is_optional
        self.schema = self._described(shape, info)

    def load(self, value: Any, files: Files) -> Any:
        """Decodes the argument; `_MISSING` means that it was omitted. Raises `Reject`."""
        if value is _MISSING:
            if self.is_required:
                raise Reject(f"{self.name}: Field required")
            return self._default
        if value is None and self._is_optional:
            return None
        if self._load is not None:
            try:
                value = self._load(value, files)
            except Reject as error:
                raise Reject(f"{self.name}: {error}") from None
        self._check(value)
        return value

    def _check(self, value: Any) -> None:
        for constraint, bound in self._bounds:
            for each in value if isinstance(value, list) else [value]:
                if not constraint.holds(each, bound):
                    raise Reject(f"{self.name} {constraint.refusal.format(bound)}")

    def _described(self, shape: Shape, info: Any) -> Schema:
        schema = shape.schema
        for constraint, bound in self._bounds:
            schema = _narrowed(schema, constraint.schema(bound))
        if self._is_optional:
            schema = {"anyOf": [*(schema["anyOf"] if schema.keys() == {"anyOf"} else [schema]), {"type": "null"}]}
        if not self.is_required:
            schema = with_default(dataclasses.replace(shape, schema=schema), info.default).schema
        extra = {
            "description": info.description,
            "deprecated": info.deprecated,
            "x-cog-accept": getattr(info, "accept", None),
        }
        title = self.name.replace("_", " ").title()
        return {"title": title, **schema, **{keyword: value for keyword, value in extra.items() if value}}


def _bound(info: Any, argument: str) -> Any:
    """Formats a bound as Cog does: 1.0 is 1."""
    bound = getattr(info, argument)
    if isinstance(bound, float) and bound.is_integer():
        return int(bound)
    return list(bound) if argument == "choices" and bound is not None else bound


def _narrowed(schema: Schema, keywords: Schema) -> Schema:
    """The constraints of a list apply to its items."""
    if schema.get("type") == "array":
        return {**schema, "items": {**schema.get("items", {}), **keywords}}
    return {**schema, **keywords}
