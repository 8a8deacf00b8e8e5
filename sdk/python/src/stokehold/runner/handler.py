"""From a path to something that can be run."""

from __future__ import annotations

import enum
import importlib.util
import inspect
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, NamedTuple

from stokehold.runner.decorator import Options, options_of
from stokehold.runner.inputs import Inputs, unwrapped
from stokehold.runner.shapes import UnknownHint

# Where a folder's handler is looked for, in this order.
_USUAL_FILES = ("endpoint.py", "main.py", "predict.py")


class HandlerNotFound(Exception):  # noqa: N818
    """No handler where one was looked for; the message says what to change."""


class Kind(str, enum.Enum):
    """How a handler is run."""

    FUNCTION = "function"
    ASYNC_FUNCTION = "async_function"
    GENERATOR = "generator"
    ASYNC_GENERATOR = "async_generator"

    @property
    def is_async(self) -> bool:
        return self in (Kind.ASYNC_FUNCTION, Kind.ASYNC_GENERATOR)

    @property
    def yields(self) -> bool:
        return self in (Kind.GENERATOR, Kind.ASYNC_GENERATOR)


class Target(NamedTuple):
    """An object that can be deployed, and where it was found."""

    folder: Path
    file: str
    name: str
    value: Any

    @property
    def entry(self) -> str:
        return f"{self.file}:{self.name}"

    @property
    def options(self) -> Options:
        return options_of(self.value) or Options()


class Handler:
    """What runs for every job."""

    def __init__(self, call: Callable[..., Any], *, bound: bool = False, is_batched: bool = False) -> None:
        """bound: `call` is a class's `predict`, whose `self` is still to come."""
        self.call = call
        self.kind = _kind(call)
        self.is_batched = is_batched
        if is_batched and self.kind is not Kind.FUNCTION:
            raise UnknownHint(
                "max_batch_size is for a plain function: an async handler takes several jobs with max_concurrency, "
                "and a generator one at a time"
            )
        self.inputs = Inputs(call, bound=bound, is_batched=is_batched)


def find(where: str) -> Target:
    """The handler that `PATH` or `PATH:object` means."""
    text, _, name = where.partition(":") if not Path(where).exists() else (where, "", "")
    path = Path(text).resolve()
    if path.is_file():
        return _in_module(path, name)
    if not path.is_dir():
        raise HandlerNotFound(f"{text}: no such file or folder")
    files = [path / usual for usual in _USUAL_FILES if (path / usual).is_file()]
    if not files:
        files = sorted(path.glob("*.py"))
        if len(files) != 1:
            found = ", ".join(file.name for file in files) or "no .py file"
            raise HandlerNotFound(f"{text}: has {found}: name the handler's file endpoint.py, or give FILE.py:object")
    return _in_module(files[0], name)


def load(entry: str) -> Any:
    """The object an entry (`file.py:object`) names, relative to the working directory."""
    file, _, name = entry.partition(":")
    return _in_module(Path.cwd() / file, name).value


def plan(target: Any) -> Handler:
    """The handler as it will be, without running any of its code."""
    is_batched = _is_batched(target)
    if not inspect.isclass(target):
        return Handler(target, is_batched=is_batched)
    is_plain = inspect.isfunction(inspect.getattr_static(target, "predict", None))
    return Handler(_predict_of(target, target.__name__), bound=is_plain, is_batched=is_batched)


def prepare(target: Any, wait: Callable[[Any], Any]) -> Handler:
    """The handler ready to run: a class is instantiated and its `setup()` called. `wait` runs a coroutine."""
    is_batched = _is_batched(target)
    if not inspect.isclass(target):
        return Handler(target, is_batched=is_batched)
    _predict_of(target, target.__name__)
    instance: Any = target()
    setup = getattr(instance, "setup", None)
    if setup is not None:
        started = setup()
        if inspect.isawaitable(started):
            wait(started)
    return Handler(_predict_of(instance, target.__name__), is_batched=is_batched)


def _is_batched(target: Any) -> bool:
    return (options_of(target) or Options()).max_batch_size > 1


def _predict_of(owner: Any, name: str) -> Callable[..., Any]:
    predict: Any = getattr(owner, "predict", None)
    if not callable(predict):
        raise HandlerNotFound(f"class {name} has no predict(): that is what runs for each job")
    found: Callable[..., Any] = predict
    return found


def _in_module(path: Path, name: str) -> Target:
    module = _import(path)
    name = name or _only_endpoint(module, path)
    value = getattr(module, name, None)
    if not callable(value):
        there = "is not callable" if hasattr(module, name) else "does not exist"
        raise HandlerNotFound(f"{path.name}:{name} {there}: name a function, or a class with predict()")
    return Target(path.parent, path.name, name, value)


def _only_endpoint(module: ModuleType, path: Path) -> str:
    """The name of the one object that `@endpoint` marked; one that was imported from elsewhere counts too."""
    marked = {id(value): name for name, value in vars(module).items() if options_of(value) is not None}
    names = list(marked.values())
    if len(names) != 1:
        raise HandlerNotFound(
            f"{path.name} has {_listed(names)}: mark one function or class with @endpoint, or give {path.name}:object"
        )
    return names[0]


def _listed(names: Iterable[str]) -> str:
    text = ", ".join(names)
    return f"several endpoints ({text})" if text else "no @endpoint"


def _import(path: Path) -> ModuleType:
    """Imports a file as the module its name says, with its folder on the path, as `python FILE` has it."""
    if not path.is_file():
        raise HandlerNotFound(f"{path.name}: no such file in {path.parent.name or path.parent}")
    name = path.stem
    if name in sys.modules:
        raise HandlerNotFound(f"{path.name}: a Python module is named {name} as well: rename the file")
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise HandlerNotFound(f"{path.name}: is no Python file")
    module = importlib.util.module_from_spec(spec)
    # Before it runs, as `import` does: dataclasses and pickle look themselves up there.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _kind(call: Callable[..., Any]) -> Kind:
    function = unwrapped(call)
    if inspect.isasyncgenfunction(call) or inspect.isasyncgenfunction(function):
        return Kind.ASYNC_GENERATOR
    if inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(function):
        return Kind.ASYNC_FUNCTION
    if inspect.isgeneratorfunction(call) or inspect.isgeneratorfunction(function):
        return Kind.GENERATOR
    return Kind.FUNCTION
