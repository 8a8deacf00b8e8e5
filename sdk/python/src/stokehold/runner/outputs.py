"""Converts a handler's return value into JSON and files."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import mimetypes
import re
import shutil
import types
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any, Callable, NamedTuple

from stokehold.runner.errors import BadOutput

_FILES_MAX = 1_000
_NAME_BYTES_MAX = 200  # less than what a file system takes, of UTF-8
# Separators, control characters, and halves of surrogate pairs, which represent bytes that are not UTF-8.
_UNSAFE = re.compile(r"[/\\\x00-\x1f\x7f-\x9f\ud800-\udfff]|^\.+")

_ADVICE: tuple[tuple[tuple[type, ...], str], ...] = (
    ((set, frozenset), "return a list"),
    ((bytes, bytearray, memoryview), "write it to a file and return its pathlib.Path"),
    ((types.CoroutineType,), "declare the handler `async def`, or await it"),
    ((types.GeneratorType, types.AsyncGeneratorType), "let the handler itself `yield`, or return a list"),
)


class OutputFile(NamedTuple):
    """An output file of a run, as sent over the wire."""

    name: str
    path: str
    content_type: str


def _encoder(default: Callable[[Any], Any] | None = None) -> json.JSONEncoder:
    return json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"), default=default)


# Most results are plain JSON, which is encoded without walking it in Python.
_encode_plain = _encoder().encode


class Outputs:
    """Encodes the values that one run returns or yields, and collects its files in `scratch`."""

    def __init__(self, scratch: str, body_bytes_max: int) -> None:
        self.files: list[tuple[str, str, str]] = []
        self._scratch = scratch
        self._body_bytes_max = body_bytes_max
        self._names: dict[Path, str] = {}

    def encode(self, value: Any, where: str = "result") -> bytes:
        """Encodes a value as JSON. Raises `BadOutput`, which names the place, if that is impossible."""
        try:
            body = _encode_plain(value).encode()
        except (TypeError, ValueError, RecursionError):
            body = self._encode_rich(value, where)
        return self.bounded(body, where)

    def bounded(self, body: bytes, where: str = "result") -> bytes:
        """Checks the size of a body."""
        if len(body) > self._body_bytes_max:
            raise BadOutput(
                f"{where} is {len(body)} bytes of JSON, more than {self._body_bytes_max}: "
                "write it to a file and return its pathlib.Path"
            )
        return body

    def _encode_rich(self, value: Any, where: str) -> bytes:
        try:
            return _encoder(self._simpler).encode(value).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise BadOutput(_complaint(value, where) or f"{where} cannot be represented as JSON: {error}") from None

    def _simpler(self, value: Any) -> Any:
        """Converts a value that the json module does not support."""
        if isinstance(value, PurePath):
            return {"$file": self._place(Path(value))}
        return _unfold(value)

    def _place(self, path: Path) -> str:
        """Copies a file into `scratch` unless it is there, and returns its name in the result."""
        scratch = Path(self._scratch).resolve()
        try:
            source = path.resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise BadOutput(f"cannot find the file {path}, which the result names: {error}") from None
        known = self._names.get(source)
        if known is not None:
            return known
        if not source.is_file():
            raise BadOutput(f"the result names {path}, which is not a file: pack a folder into an archive to return it")
        if len(self.files) == _FILES_MAX:
            raise BadOutput(f"the result names more than {_FILES_MAX} files: pack them into an archive to return them")
        if scratch in source.parents:
            name, placed = self._free_name(source.name, None), source
        else:
            name = self._free_name(source.name, scratch)
            placed = scratch / name
            try:
                scratch.mkdir(mode=0o700, exist_ok=True)
                shutil.copyfile(source, placed)
            except OSError as error:
                raise BadOutput(f"cannot read the file {path}, which the result names: {error}") from None
        self._names[source] = name
        self.files.append(OutputFile(name, str(placed), mimetypes.guess_type(name)[0] or "application/octet-stream"))
        return name

    def _free_name(self, wanted: str, folder: Path | None) -> str:
        """A new name in the result and in `folder`: the wanted one, in safe characters."""
        taken = set(self._names.values())
        safe = PurePath(_UNSAFE.sub(lambda found: "_" * len(found[0]), wanted) or "file")
        suffix = safe.suffix[-20:]
        room = _NAME_BYTES_MAX - len(suffix.encode()) - len(str(-_FILES_MAX))
        stem = safe.stem.encode()[:room].decode(errors="ignore")
        name, count = stem + suffix, 1
        while name in taken or (folder is not None and (folder / name).exists()):
            count += 1
            name = f"{stem}-{count}{suffix}"
        return name


def _unfold(value: Any) -> Any:
    """Converts one level of a value that the json module does not support. Raises `TypeError` if unknown."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if callable(dump := getattr(value, "model_dump", None)) and not isinstance(value, type):
        return dump()
    # numpy, torch, pandas, jax.
    if callable(tolist := getattr(value, "tolist", None)) and not isinstance(value, type):
        return tolist()
    raise TypeError(type(value).__name__)


def _complaint(value: Any, where: str) -> str | None:
    """Describes the first part of `value` that JSON cannot hold."""
    if isinstance(value, float):
        return (
            None
            if math.isfinite(value)
            else f"{where} is {value}, which JSON cannot hold: return None or a string instead"
        )
    if value is None or isinstance(value, (int, PurePath)):
        return None
    if isinstance(value, str):
        return None if _is_unicode(value) else f"{where} is a str with half a surrogate pair, which UTF-8 cannot hold"
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, (str, int, float, type(None))):
                return f"{where} has the key {key!r}: JSON keys are strings"
    try:
        children = _children(value, where)
    except Exception:
        return _unknown(value, where)
    try:
        for place, child in children:
            found = _complaint(child, place)
            if found is not None:
                return found
    except RecursionError:
        return f"{where.split('.')[0].split('[')[0]} contains itself, or is nested too deeply for JSON"
    return None


def _children(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        return ((f"{where}.{key}", child) for key, child in value.items())
    if isinstance(value, (list, tuple)):
        return ((f"{where}[{index}]", child) for index, child in enumerate(value))
    return iter([(where, _unfold(value))])


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _unknown(value: Any, where: str) -> str:
    name, module = type(value).__qualname__, type(value).__module__
    article = "an" if name[0] in "aeiou" else "a"
    kind = name if module == "builtins" else f"{module}.{name}"
    advice = next((f": {advice}" for classes, advice in _ADVICE if isinstance(value, classes)), "")
    return f"{where} is {article} {kind}, which JSON cannot hold{advice}"
