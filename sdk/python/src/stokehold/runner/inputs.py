"""The arguments of a handler: their schema, and how they are decoded from the input of a job."""

from __future__ import annotations

import inspect
import json
from typing import Any, Callable

from stokehold.runner.errors import Reject
from stokehold.runner.shapes import (
    Files,
    Loader,
    Schema,
    Shapes,
    UnknownHint,
    item_hint,
    order_of,
    type_hints,
    with_default,
)

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


class Inputs:
    """The arguments of a handler. Created once per handler; `load` runs for every job."""

    def __init__(self, handler: Callable[..., Any], *, bound: bool, is_batched: bool = False) -> None:
        """bound: skip the first parameter (`self`). is_batched: each argument is a list with an item per job."""
        hints = type_hints(unwrapped(handler), "the handler")
        shapes = Shapes()
        properties: Schema = {}
        required: list[str] = []
        additional: Any = False
        self._loaders: list[tuple[str, Loader]] = []
        self._rest: Loader | None = None
        # For a batched handler: the item of a job that omits the argument.
        self._left_out: dict[str, Any] = {}
        for parameter in _parameters(handler, bound):
            hint = hints.get(parameter.name, Any)
            if is_batched:
                hint = _item_of(parameter, hint)
                self._left_out[parameter.name] = None
            shape = shapes.of(hint, parameter.name)
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                additional = shape.schema or True
                self._rest = shape.load
                continue
            if is_batched and shape.matches(None):
                shape = with_default(shape, None)
            elif parameter.default is inspect.Parameter.empty:
                required.append(parameter.name)
            else:
                shape = with_default(shape, parameter.default)
            properties[parameter.name] = shape.schema
            if shape.load is not None:
                self._loaders.append((parameter.name, shape.load))
        self._names = frozenset(properties)
        self.schema: Schema = {
            "$schema": _DIALECT,
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": additional,
            **order_of(properties),
        }
        text = inspect.getdoc(handler)
        if text:
            self.schema["description"] = text
        if shapes.definitions:
            self.schema["$defs"] = shapes.definitions

    def load(self, body: bytes, files: Files) -> dict[str, Any]:
        """Decodes the arguments. Raises `Reject` for an input that does not match."""
        arguments: dict[str, Any] = json.loads(body)
        for name, load in self._loaders:
            if name in arguments:
                arguments[name] = _loaded(load, name, arguments[name], files)
        if self._rest is not None:
            for name in arguments.keys() - self._names:
                arguments[name] = _loaded(self._rest, name, arguments[name], files)
        return arguments

    def columns(self, items: list[dict[str, Any]]) -> dict[str, list[Any]]:
        """The arguments of a call for several jobs: a list for each argument, in the order of the jobs."""
        return {name: [item.get(name, none) for item in items] for name, none in self._left_out.items()}


def result_schema(handler: Callable[..., Any], *, yields: bool, is_batched: bool = False) -> Schema:
    """The schema of the result of a job; for a generator, that of the list of yielded values."""
    shapes = Shapes(lenient=True)
    hint = type_hints(unwrapped(handler), "the handler").get("return", Any)
    if is_batched:
        hint = item_hint(hint) or Any
    shape = shapes.of(hint, "result")
    schema = shape.schema if shape.schema or not yields else {"type": "array"}
    if shapes.definitions:
        schema = {**schema, "$defs": shapes.definitions}
    return {"$schema": _DIALECT, **schema}


def unwrapped(handler: Callable[..., Any]) -> Callable[..., Any]:
    """The function with the type hints: without decorators, or the `__call__` of a callable object."""
    function: Callable[..., Any] = inspect.unwrap(handler)
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    called: Callable[..., Any] = inspect.unwrap(type(function).__call__)
    return called


def _parameters(handler: Callable[..., Any], bound: bool) -> list[inspect.Parameter]:
    parameters = list(inspect.signature(handler).parameters.values())
    if bound:
        parameters = parameters[1:]
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            raise UnknownHint(f"*{parameter.name}: every argument must have a name, because an input is a JSON object")
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise UnknownHint(
                f"{parameter.name}: no argument can be positional-only, because an input is a JSON object"
            )
    return parameters


def _item_of(parameter: inspect.Parameter, hint: Any) -> Any:
    """The hint of the value of one job, for a parameter of a batched handler."""
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        raise UnknownHint(f"**{parameter.name}: a batched handler must name its arguments, each of which is a list")
    item = item_hint(hint)
    if item is None:
        raise UnknownHint(
            f"{parameter.name}: with max_batch_size, each argument is a list, an item per job; hint it as list[...]"
        )
    if parameter.default is not inspect.Parameter.empty:
        raise UnknownHint(
            f"{parameter.name}: an argument of a batched handler cannot have a default; hint it as list[... | None]. "
            "The item of a job that omits it is None"
        )
    return item


def _loaded(load: Loader, name: str, value: Any, files: Files) -> Any:
    try:
        return load(value, files)
    except Reject as error:
        raise Reject(f"input.{name}: {error}") from None
