"""The generated synchronous client matches the asynchronous client that it is generated from."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
GENERATED = {
    "_catalog.py": "_async_catalog.py",
    "_client.py": "_async_client.py",
    "_job.py": "_async_job.py",
    "_resources.py": "_async_resources.py",
}


def unasync(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(project / "tools" / "unasync.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the client's sources and of the generator, for a test to change."""
    for name in ("src/stokehold", "tools"):
        (tmp_path / name).mkdir(parents=True)
        for path in (PROJECT / name).glob("*.py"):
            shutil.copy(path, tmp_path / name)
    shutil.copy(PROJECT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_generated_files_are_up_to_date() -> None:
    check = unasync(PROJECT, "--check")
    assert check.returncode == 0, check.stderr
    for name, source in GENERATED.items():
        header = (PROJECT / "src" / "stokehold" / name).read_text(encoding="utf-8").partition("\n")[0]
        assert header == f"# Generated from {source} by `make sync-client`; do not edit."


@pytest.mark.parametrize("name", [*GENERATED, *GENERATED.values()])
def test_a_change_to_one_side_alone_fails_the_check_until_it_is_generated(copy: Path, name: str) -> None:
    path = copy / "src" / "stokehold" / name
    path.write_text(path.read_text(encoding="utf-8") + "\nCHANGED = True\n", encoding="utf-8")
    check = unasync(copy, "--check")
    generated = name.replace("_async_", "_")
    assert check.returncode == 1
    assert check.stderr == f"{generated} does not match {GENERATED[generated]}: run `make sync-client`\n"
    assert unasync(copy).returncode == 0
    assert unasync(copy, "--check").returncode == 0


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_file_reads_as_if_it_was_written_synchronous(name: str) -> None:
    text = (PROJECT / "src" / "stokehold" / name).read_text(encoding="utf-8")
    code = text.partition("\n")[2]
    assert re.findall(r"(?i).*(?:async|await|\ban [`(]*(?:sync|with|job|client|file|batch)).*", code) == []
