"""Imports files of the package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from stokehold.runner.handler import HandlerNotFound


def import_file(path: Path) -> ModuleType:
    """Imports a file as the module of its name, with its folder on the path, as `python FILE` does."""
    if not path.is_file():
        raise HandlerNotFound(f"{path.name}: no such file in {path.parent.name or path.parent}")
    name = path.stem
    if name in sys.modules:
        raise HandlerNotFound(f"{path.name}: the name conflicts with the Python module {name}: rename the file")
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise HandlerNotFound(f"{path.name}: is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # Before the module runs, like `import`: dataclasses and pickle look it up there.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
