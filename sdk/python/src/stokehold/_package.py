"""Prepares a folder for a deploy: describes its handler, locks its requirements and packs its files. Blocks."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from stokehold._errors import DeployError

# Workers download the package before the first job. Weights do not belong in it.
PACKAGE_BYTES_MAX = 256 << 20

# Importing the modules of a model can take long, and so can resolving its requirements.
DESCRIBE_TIMEOUT_S = 120
LOCK_TIMEOUT_S = 300

_SKIPPED = frozenset({"__pycache__", "node_modules"})


@dataclass(frozen=True)
class Package:
    """The content of a deploy. `archive` is a temporary file that the caller removes."""

    version: dict[str, Any]
    archive: Path


def prepare(target: str, name: str | None, python: str | None, options: dict[str, Any]) -> Package:
    """Prepares a folder or a `.py` file. `:object` after it selects one of several handlers."""
    path, _, _ = target.partition(":") if not Path(target).exists() else (target, "", "")
    source = Path(path)
    if not source.exists():
        raise DeployError(f"{source} does not exist; pass a folder or a .py file")
    described = describe(target)
    python = python or f"{sys.version_info.major}.{sys.version_info.minor}"
    lock = requirements_lock(source, python)
    version = {
        "name": name or described["name"],
        "entry": described["entry"],
        "requirements_lock": lock,
        "python": python if lock else "",
        "input_schema": described["input_schema"],
        "output_schema": described["output_schema"],
        **{option: value for option, value in described["options"].items() if value is not None},
        **options,
    }
    handle, archive = tempfile.mkstemp(prefix="stokehold-", suffix=".tar.gz")
    try:
        with os.fdopen(handle, "wb") as file:
            pack(source, file)
    except BaseException:
        Path(archive).unlink()
        raise
    return Package(version, Path(archive))


def describe(target: str) -> dict[str, Any]:
    """Describes the handler in a subprocess, because it imports the code of the model."""
    command = [sys.executable, "-m", "stokehold.runner", "describe", target]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=DESCRIBE_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise DeployError(
            f"importing {target} took more than {DESCRIBE_TIMEOUT_S} s; load weights in setup(), not at import"
        ) from None
    try:
        described: dict[str, Any] = json.loads(run.stdout)
    except ValueError:
        raise DeployError(
            f"{target} cannot be described (exit code {run.returncode}): {run.stderr.strip()[-2000:]}"
        ) from None
    error = described.get("error")
    if error is not None:
        parts = [f"{target} cannot be deployed: {error['class']}: {error['message']}", error.get("traceback") or ""]
        raise DeployError("\n".join(part for part in parts if part))
    return described


def requirements_lock(source: Path, python: str) -> str:
    """The locked requirements: `requirements.lock`, or `requirements.txt` resolved by uv; empty without either."""
    folder = source if source.is_dir() else source.parent
    lock, loose = folder / "requirements.lock", folder / "requirements.txt"
    if lock.is_file():
        return lock.read_text(encoding="utf-8")
    if not loose.is_file():
        return ""
    uv = os.environ.get("STOKE_UV") or shutil.which("uv")
    if uv is None:
        raise DeployError(
            f"{loose} must be resolved to exact versions, which requires uv: run `pip install uv`, set STOKE_UV, "
            f"or put the exact versions in {lock.name} in the same folder"
        )
    command = [uv, "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--universal", "--generate-hashes"]
    command += ["--python-version", python, str(loose)]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=LOCK_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise DeployError(
            f"uv did not resolve {loose} within {LOCK_TIMEOUT_S} s; check the connection to the package index"
        ) from None
    if run.returncode != 0:
        raise DeployError(f"uv cannot resolve {loose}:\n{run.stderr.strip()[-4000:]}")
    return run.stdout


def pack(source: Path, file: IO[bytes]) -> None:
    """Packs the files. The same files give the same bytes on every machine: sorted, without times and owners."""
    files = [(source.name, source)] if source.is_file() else sorted(_files(source))
    sizes = [(path.stat().st_size, name) for name, path in files]
    total = sum(size for size, _ in sizes)
    if total > PACKAGE_BYTES_MAX:
        largest = ", ".join(f"{name} ({size >> 20} MiB)" for size, name in sorted(sizes, reverse=True)[:3])
        raise DeployError(
            f"{source} has {total >> 20} MiB, but a package can have at most {PACKAGE_BYTES_MAX >> 20} MiB; download "
            f"weights in setup() and move data out of the folder. Largest files: {largest}"
        )
    with (
        gzip.GzipFile("", "wb", 6, file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, path in files:
            entry = tarfile.TarInfo(name)
            entry.mode = 0o755 if os.access(path, os.X_OK) else 0o644
            with path.open("rb") as content:
                entry.size = os.fstat(content.fileno()).st_size
                tar.addfile(entry, content)


def _files(root: Path) -> Iterator[tuple[str, Path]]:
    """Every file below `root`, except hidden files, caches and virtual environments. Links to files are followed."""
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        folders[:] = [name for name in folders if not _is_skipped(name) and not (here / name / "pyvenv.cfg").exists()]
        for name in folders:
            if (here / name).is_symlink():
                raise DeployError(f"{here / name} is a link to a folder; replace it with the folder")
        for name in names:
            path = here / name
            if _is_skipped(name) or name.endswith(".pyc"):
                continue
            if not path.is_file():
                raise DeployError(f"{path} is a broken link or not a regular file; remove it from the folder")
            yield path.relative_to(root).as_posix(), path


def _is_skipped(name: str) -> bool:
    return name.startswith(".") or name in _SKIPPED
