"""`cog`: runs a predictor written for Cog, as named in `cog.yaml`, with the package `cog` that it imports.

It is loaded and called as Cog's runtime does, in this process; only `train()` and `healthcheck()` are never called.
"""

from __future__ import annotations

import dataclasses
import datetime
import inspect
import io
import os
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, NamedTuple

import cog  # type: ignore[import-untyped]

from stokehold._wire import Load
from stokehold.runner.context import current_job
from stokehold.runner.handler import Call, Handler, HandlerNotFound, call_of
from stokehold.runner.inputs import unwrapped
from stokehold.runner.kinds.cog_inputs import Inputs
from stokehold.runner.kinds.cog_types import is_iterator, result_hint, result_schema
from stokehold.runner.modules import import_file

_WEIGHTS = "COG_WEIGHTS"
# Names to try, in order, if no object is named.
_USUAL_NAMES = ("Runner", "Predictor")
_METHODS = ("run", "predict")
# 0.17 has no BaseRunner.
_COGS_OWN = (cog.BasePredictor, getattr(cog, "BaseRunner", None), object)


class Predictor(Handler):
    """A handler with the results and errors of Cog."""

    interrupt = cog.CancelationException

    def portable(self, value: Any) -> Any:
        return _portable(value)


class Target(NamedTuple):
    """The object to run: a class and its method, or a function."""

    file: str
    name: str
    value: Any
    method: str | None

    @property
    def function(self) -> Callable[..., Any]:
        """Below its decorators."""
        return unwrapped(self.value if self.method is None else getattr(self.value, self.method))

    @property
    def inputs(self) -> Inputs:
        return Inputs(self.function, bound=self.method is not None)


def describe(where: str) -> dict[str, Any]:
    """Describes `FILE` or `FILE:object`. Imports its code but does not call `setup()`."""
    target = find(where)
    max_concurrency = getattr(target.function, "__cog_concurrent_max__", None)
    return {
        "name": None,
        "entry": f"{target.file}:{target.name}",
        "kind": "cog",
        "options": {} if max_concurrency is None else {"max_concurrency": max_concurrency},
        "input_schema": target.inputs.schema,
        "output_schema": result_schema(target.function),
    }


def prepare(load: Load, wait: Callable[[Any], Any]) -> Handler:
    """Loads the predictor: instantiates a class and calls its `setup()`."""
    target = find(load.entry)
    inputs = target.inputs
    _plain_defaults(target.function)
    call = target.value
    if target.method is not None:
        instance = target.value()
        _set_up(instance, wait)
        call = getattr(instance, target.method)
    if call_of(call) is Call.FUNCTION and is_iterator(result_hint(target.function)):
        call = _iterating(call)
    return Predictor(call, inputs)


def find(where: str) -> Target:
    """The predictor that `FILE` or `FILE:object` names; relative paths start at the working directory."""
    file, _, name = where.partition(":")
    path = Path(file).resolve()
    module = import_file(path)
    for usual in (name,) if name else _USUAL_NAMES:
        value = getattr(module, usual, None)
        if inspect.isclass(value) and (name or _methods(value)):
            return Target(path.name, usual, value, _only_method(value))
        if callable(value) and not inspect.isclass(value):
            return Target(path.name, usual, value, None)
    wanted = name or " or ".join(_USUAL_NAMES)
    raise HandlerNotFound(f"{path.name} has no {wanted} to call: name the predictor, e.g. {path.name}:Predictor")


def _only_method(predictor: type) -> str:
    methods = _methods(predictor)
    if len(methods) == 2:
        raise HandlerNotFound(f"{predictor.__name__} must define either run() or predict(), not both")
    if not methods:
        raise HandlerNotFound(f"run or predict method not found: {predictor.__name__}")
    return methods[0]


def _methods(predictor: type) -> list[str]:
    """The methods that a predictor defines itself, without those of Cog's classes."""
    own: set[str] = set()
    for owner in predictor.__mro__:
        if owner in _COGS_OWN:
            break
        own.update(name for name in _METHODS if callable(vars(owner).get(name)))
    return sorted(own)


def _plain_defaults(function: Any) -> None:
    """Replaces defaults such as `Input(default=3)` by 3, so that the model can call the function itself."""
    function.__defaults__ = tuple(
        default.default if isinstance(default, cog.FieldInfo) else default for default in function.__defaults__ or ()
    )


def _set_up(instance: Any, wait: Callable[[Any], Any]) -> None:
    setup = getattr(instance, "setup", None)
    if setup is None:
        return
    has_weights = "weights" in inspect.signature(setup).parameters
    started = setup(weights=os.environ.get(_WEIGHTS) or None) if has_weights else setup()
    if inspect.isawaitable(started):
        wait(started)


def _iterating(call: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    """Converts a function that returns an iterator into a generator."""

    def iterate(**arguments: Any) -> Iterator[Any]:
        yield from call(**arguments)

    return iterate


def _portable(value: Any) -> Any:
    """Converts a result like Cog. Files become paths, for `Outputs`."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, dict):
        return {key: _portable(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset, types.GeneratorType)):
        return [_portable(each) for each in value]
    if isinstance(value, io.IOBase):
        return _written(value)
    if isinstance(value, os.PathLike):
        return Path(value)
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    if inspect.isclass(value):
        return value
    # pydantic's, of version 2 and 1.
    dump = getattr(value, "model_dump", None) or getattr(value, "dict", None)
    if callable(dump):
        return _portable(dump())
    if dataclasses.is_dataclass(value):
        return {field.name: _portable(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


def _written(stream: Any) -> Path:
    """Copies a stream into a file of the job with the stream's name."""
    if stream.seekable():
        stream.seek(0)
    content = stream.read()
    is_text = isinstance(content, str)
    name = getattr(stream, "name", None)
    name = Path(name).name if isinstance(name, str) else ""
    path = Path(tempfile.mkdtemp(dir=current_job().scratch), name or ("output.txt" if is_text else "output.bin"))
    path.write_bytes(content.encode() if is_text else content)
    return path
