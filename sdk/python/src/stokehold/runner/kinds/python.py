"""`python`: a function, or a class with `predict()`, that is marked with `@endpoint`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, NamedTuple

from stokehold._wire import Load
from stokehold.runner.decorator import Options, default_name, options_of
from stokehold.runner.handler import Handler, HandlerNotFound
from stokehold.runner.inputs import Inputs, result_schema
from stokehold.runner.modules import import_file

# The files that are searched for the handler of a folder, in this order.
_USUAL_FILES = ("endpoint.py", "main.py", "predict.py")


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


def describe(where: str) -> dict[str, Any]:
    """Describes `PATH` or `PATH:object`. Imports its code, and does not call `setup()`."""
    target = find(where)
    planned, inputs = plan(target.value)
    output_schema = result_schema(planned.call, yields=planned.called.yields, is_batched=planned.batch is not None)
    options = target.options
    return {
        "name": options.name or default_name(target.value),
        "entry": target.entry,
        "kind": "python",
        "options": options.to_json(),
        "input_schema": inputs.schema,
        "output_schema": output_schema,
    }


def prepare(load: Load, wait: Callable[[Any], Any]) -> Handler:
    """Returns the handler, ready to run. Instantiates a class and calls its `setup()`."""
    file, _, name = load.entry.partition(":")
    target = _in_module(Path.cwd() / file, name).value
    if not inspect.isclass(target):
        return _handler(target, target)[0]
    _predict_of(target, target.__name__)
    instance: Any = target()
    setup = getattr(instance, "setup", None)
    if setup is not None:
        started = setup()
        if inspect.isawaitable(started):
            wait(started)
    return _handler(target, _predict_of(instance, target.__name__))[0]


def find(where: str) -> Target:
    """Finds the handler for `PATH` or `PATH:object`."""
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
            raise HandlerNotFound(
                f"{text} has {found}; name the file of the handler endpoint.py, or pass FILE.py:object"
            )
    return _in_module(files[0], name)


def plan(target: Any) -> tuple[Handler, Inputs]:
    """Returns the handler without running its code."""
    if not inspect.isclass(target):
        return _handler(target, target)
    is_plain = inspect.isfunction(inspect.getattr_static(target, "predict", None))
    return _handler(target, _predict_of(target, target.__name__), bound=is_plain)


def _handler(target: Any, call: Callable[..., Any], *, bound: bool = False) -> tuple[Handler, Inputs]:
    """bound: `call` is the `predict` of a class, and has no `self` yet."""
    is_batched = (options_of(target) or Options()).max_batch_size > 1
    inputs = Inputs(call, bound=bound, is_batched=is_batched)
    return Handler(call, inputs, batch=inputs if is_batched else None), inputs


def _predict_of(owner: Any, name: str) -> Callable[..., Any]:
    predict: Any = getattr(owner, "predict", None)
    if not callable(predict):
        raise HandlerNotFound(f"class {name} has no predict(), which runs for each job")
    found: Callable[..., Any] = predict
    return found


def _in_module(path: Path, name: str) -> Target:
    module = import_file(path)
    name = name or _only_endpoint(module, path)
    value = getattr(module, name, None)
    if not callable(value):
        there = "is not callable" if hasattr(module, name) else "does not exist"
        raise HandlerNotFound(f"{path.name}:{name} {there}; name a function, or a class with predict()")
    return Target(path.parent, path.name, name, value)


def _only_endpoint(module: ModuleType, path: Path) -> str:
    """The name of the only object that is marked with `@endpoint`, defined in the module or imported."""
    marked = {id(value): name for name, value in vars(module).items() if options_of(value) is not None}
    names = list(marked.values())
    if len(names) != 1:
        raise HandlerNotFound(
            f"{path.name} has {_listed(names)}; mark one function or class with @endpoint, or pass {path.name}:object"
        )
    return names[0]


def _listed(names: Iterable[str]) -> str:
    text = ", ".join(names)
    return f"several endpoints ({text})" if text else "no @endpoint"
