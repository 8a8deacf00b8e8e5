"""Prepares a folder for a deploy, with the compiled code of `stoke deploy`. Blocks."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stokehold._errors import DeployError
from stokehold._transfer import CHUNK_BYTES

if TYPE_CHECKING:
    import httpx

    from stokehold import _wire

# Importing the modules of a model can take long, and so can resolving its requirements.
DESCRIBE_TIMEOUT_S = 180
LOCK_TIMEOUT_S = 600

# Time without any bytes from the server of a weights file.
SILENCE_TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 10.0

# Variables of the caller's own Python environment, which must not influence uv.
_NOT_FOR_UV = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONHOME", "UV_PROJECT_ENVIRONMENT", "UV_PYTHON")

_log = logging.getLogger("stokehold")


@dataclass(frozen=True)
class Opened:
    """A folder whose handler is described and whose requirements are locked."""

    package: _wire.Package
    description: str
    lock: str
    python: str


@dataclass(frozen=True)
class Packed:
    """The content of a deploy. `archive` is a temporary file that the caller removes."""

    body: dict[str, Any]
    archive: Path
    weights: list[tuple[str, Path, str, int]]
    """The weights on this machine: name, path, SHA-256, size in bytes."""


def prepare(target: str, overlay: Mapping[str, Any]) -> Opened:
    """Opens a folder, a `.py` file or `file.py:object`. `overlay` overrides `stoke.toml`."""
    package = open_package(target, overlay)
    for note in package.notes:
        _log.warning("%s", note)
    with _deploy_errors():
        locked = package.locked()
    lock = resolve(package) if locked is None else locked
    return Opened(package, describe(package), lock, _python(package, lock))


def sources_to_sign(opened: Opened) -> list[str]:
    """The sources of weights in buckets, for which `pack` needs a signed URL."""
    with _deploy_errors():
        return opened.package.sources_to_sign()


def pack(opened: Opened, signed: Mapping[str, str], traffic_percent: int) -> Packed:
    """Resolves the weights and packs the files. `signed` has a URL for each source in a bucket."""
    package = opened.package
    with _deploy_errors():
        with _http() as http:
            weights = package.pin(_sender(http), lambda note: _log.warning("%s", note), dict(signed))
        note = package.pickle_note(weights)
        if note is not None:
            _log.warning("%s", note)
        handle, name = tempfile.mkstemp(prefix="stokehold-", suffix=".tar.gz")
        os.close(handle)
        try:
            archive = package.pack(weights, name)
            body = package.request(opened.description, opened.python, opened.lock, weights, archive, traffic_percent)
        except BaseException:
            Path(name).unlink()
            raise
    return Packed(json.loads(body), Path(name), weights.files())


def open_package(target: str, overlay: Mapping[str, Any]) -> _wire.Package:
    try:
        from stokehold import _wire
    except ImportError as error:
        raise DeployError(
            "deploying requires the compiled part of stokehold, which only the wheels for Linux contain; deploy from "
            f"Linux, with this client or with `stoke deploy`: {error}"
        ) from error
    with _deploy_errors():
        return _wire.Package(target, json.dumps(overlay))


def describe(package: _wire.Package) -> str:
    """Describes the handler in a subprocess, because it imports the code of the model."""
    arguments = package.describe_arguments()
    if arguments is None:
        return package.description_of_program()
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        run = subprocess.run(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=DESCRIBE_TIMEOUT_S,
            check=False,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        raise DeployError(
            f"importing {package.handler} took more than {DESCRIBE_TIMEOUT_S} s; load weights in setup(), not at import"
        ) from None
    with _deploy_errors():
        return package.parse_description(run.stdout, run.stderr, f"exit status: {run.returncode}")


def resolve(package: _wire.Package) -> str:
    """Locks the requirements with uv."""
    uv = os.environ.get("STOKE_UV") or shutil.which("uv")
    if uv is None:
        raise DeployError(
            f"the requirements of {package.folder} must be resolved to exact versions, which requires uv: run "
            "`pip install uv`, set STOKE_UV, or put the exact versions in requirements.lock in the same folder"
        )
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_FOR_UV}
    with _deploy_errors(), tempfile.TemporaryDirectory(prefix="stokehold-") as scratch:
        lines, lines_file = package.lines_file(), None
        if lines is not None:
            lines_file = Path(scratch, "requirements.txt")
            lines_file.write_text(lines, encoding="utf-8")
        command = [uv, *package.uv_arguments(lines_file)]
        try:
            run = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                encoding="utf-8",
                timeout=LOCK_TIMEOUT_S,
                check=False,
                cwd=package.folder,
                env={**environment, "NO_COLOR": "1"},
            )
        except subprocess.TimeoutExpired:
            raise DeployError(
                f"uv did not resolve the requirements of {package.folder} within {LOCK_TIMEOUT_S} s; check the "
                "connection to the package index"
            ) from None
    if run.returncode != 0:
        raise DeployError(f"uv cannot resolve the requirements of {package.folder}:\n{run.stderr.strip()[-4000:]}")
    return run.stdout


def _python(package: _wire.Package, lock: str) -> str:
    """The Python version of the endpoint: the set one, else that of the `python3` that uv locks for."""
    if package.python is not None or not lock:
        return package.python or ""
    command = ["python3", "-I", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=DESCRIBE_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return f"{sys.version_info.major}.{sys.version_info.minor}"
    return run.stdout.strip()


@contextmanager
def _deploy_errors() -> Iterator[None]:
    from stokehold._wire import PackageError

    try:
        yield
    except PackageError as error:
        raise DeployError(str(error)) from None


def _http() -> httpx.Client:
    import httpx

    return httpx.Client(timeout=httpx.Timeout(SILENCE_TIMEOUT_S, connect=CONNECT_TIMEOUT_S))


def _sender(http: httpx.Client) -> _wire.Send:
    def send(
        method: str, url: str, headers: Sequence[tuple[str, str]]
    ) -> tuple[int, list[tuple[str, str]], Iterator[bytes]]:
        # The hash is that of the file, so the bytes must not be compressed on the way.
        request = http.build_request(method, url, headers=[*headers, ("accept-encoding", "identity")])
        response = http.send(request, stream=True, follow_redirects=method == "GET")
        return response.status_code, response.headers.multi_items(), _Body(response)

    return send


class _Body:
    """The body of a response. Its connection is free once the body is dropped, also if it was not read."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self._chunks = response.iter_raw(CHUNK_BYTES)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return next(self._chunks)

    def __del__(self) -> None:
        self._response.close()
