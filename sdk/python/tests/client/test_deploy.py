"""From a folder to an endpoint."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest

from stokehold import Client, DeployError, ServerError, _package
from stokehold._package import pack, requirements_lock

from .conftest import Server, data, ok, problem

MODEL = """
from stokehold import endpoint

@endpoint(timeout_s=60, max_attempts=2)
def greet(name: str) -> str:
    return f"hello {name}"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "main.py").write_text(MODEL)
    return folder


@pytest.fixture(autouse=True)
def _temporary_files_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    own = tmp_path / "tmp"
    own.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    yield
    assert list(own.iterdir()) == [], "a deploy leaves nothing behind"


def _accept(api: Server, store: Server, exists: bool = False) -> None:
    upload = {} if exists else {"upload_url": f"{store.url}/package?sig=s", "headers": {"x-sum": "1"}}
    api.on("POST /v1/packages", ok({"exists": exists, "upload_url": None, "headers": {}, **upload}))
    api.on("POST /v1/endpoints", ok({"name": "greet", "version": 1, "created_at": None, "input_schema": {}}, 201))
    store.on("PUT /package", data(b""))


def test_deploy_describes_packs_and_registers(api: Server, store: Server, client: Client, folder: Path) -> None:
    _accept(api, store)
    endpoint = client.deploy(folder)
    assert (endpoint.name, endpoint.version) == ("greet", 1)
    (put,) = store.requests
    assert "authorization" not in put.headers
    sha256 = hashlib.sha256(put.body).hexdigest()
    assert api.seen("POST /v1/packages")[0].json() == {"sha256": sha256, "size_bytes": len(put.body)}
    sent = api.seen("POST /v1/endpoints")[0].json()
    assert sent["input_schema"]["properties"]["name"]["type"] == "string"
    assert {name: sent[name] for name in sent if not name.endswith("_schema")} == {
        "name": "greet",
        "package_sha256": sha256,
        "package_size_bytes": len(put.body),
        "entry": "main.py:greet",
        "requirements_lock": "",
        "python": "",
        "vram_gib": 0,
        "max_concurrency": 1,
        "timeout_s": 60,
        "max_attempts": 2,
    }
    with tarfile.open(fileobj=io.BytesIO(put.body)) as tar:
        assert tar.getnames() == ["main.py"]


def test_deploy_overrules_and_sends_a_known_package_never_again(
    api: Server, store: Server, client: Client, folder: Path
) -> None:
    _accept(api, store, exists=True)
    (folder / "requirements.lock").write_text("numpy==2.0.0\n")
    client.deploy(f"{folder / 'main.py'}:greet", name="hello", python="3.12", timeout_s=5, vram_gib=8)
    assert store.requests == []
    sent = api.seen("POST /v1/endpoints")[0].json()
    assert (sent["name"], sent["python"], sent["timeout_s"], sent["vram_gib"]) == ("hello", "3.12", 5, 8)
    assert sent["requirements_lock"] == "numpy==2.0.0\n"


def test_deploy_carries_steps_and_retries(api: Server, store: Server, client: Client, folder: Path) -> None:
    _accept(api, store, exists=True)
    (folder / "main.py").write_text(
        "from stokehold import JobRetry, Step, endpoint\n"
        "@endpoint(before=[Step('prompt-check', thresholds={'violence': 0.5})], after=[Step('image-check')],\n"
        "    retry=JobRetry(backoff_s=1, on=['timeout']))\n"
        "def paint(prompt: str) -> str: return prompt\n"
    )
    client.deploy(folder)
    sent = api.seen("POST /v1/endpoints")[0].json()
    assert sent["before"] == [{"endpoint": "prompt-check", "thresholds": {"violence": 0.5}}]
    assert sent["after"] == [{"endpoint": "image-check"}]
    assert sent["retry"] == {"backoff_s": 1, "on": ["timeout"]}


def test_a_model_that_cannot_be_imported_is_told_with_its_traceback(api: Server, client: Client, folder: Path) -> None:
    (folder / "main.py").write_text("raise KeyError('weights')")
    with pytest.raises(DeployError, match="KeyError") as caught:
        client.deploy(folder)
    assert "main.py" in str(caught.value)
    with pytest.raises(DeployError, match="does not exist"):
        client.deploy(folder / "nothing")
    assert api.requests == []


def test_a_failed_deploy_leaves_nothing_behind(api: Server, store: Server, client: Client, folder: Path) -> None:
    _accept(api, store)
    api.on("POST /v1/endpoints", problem(500, "internal", "no"))
    with pytest.raises(ServerError):
        client.deploy(folder)


def _packed(source: Path) -> bytes:
    file = io.BytesIO()
    pack(source, file)
    return file.getvalue()


def test_a_package_depends_on_contents_alone(folder: Path, tmp_path: Path) -> None:
    (folder / "run.sh").write_text("#!/bin/sh")
    (folder / "run.sh").chmod(0o700)
    (folder / "data").mkdir()
    (folder / "data" / "z.txt").write_text("z")
    first = _packed(folder)
    for path in folder.rglob("*"):
        os.utime(path, (1, 1))
    assert _packed(folder) == first
    with tarfile.open(fileobj=io.BytesIO(first)) as tar:
        members = {member.name: (member.mode, member.mtime, member.uid, member.uname) for member in tar}
    assert list(members) == ["data/z.txt", "main.py", "run.sh"]
    assert members["run.sh"] == (0o755, 0, 0, "")
    assert members["main.py"] == (0o644, 0, 0, "")


def test_a_package_holds_no_rubbish(folder: Path) -> None:
    for rubbish in (".git/config", ".env", "__pycache__/main.pyc", "old.pyc", "venv/pyvenv.cfg", "venv/lib/x.py"):
        (folder / rubbish).parent.mkdir(exist_ok=True, parents=True)
        (folder / rubbish).write_text("x")
    (folder / "linked.py").symlink_to(folder / "main.py")
    with tarfile.open(fileobj=io.BytesIO(_packed(folder))) as tar:
        assert tar.getnames() == ["linked.py", "main.py"]
        assert all(member.isreg() for member in tar)


def test_a_single_file_is_a_package(folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(_packed(folder / "main.py"))) as tar:
        assert tar.getnames() == ["main.py"]


def test_what_cannot_be_packed_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (folder / "elsewhere").symlink_to(tmp_path)
    with pytest.raises(DeployError, match="elsewhere is a link to a folder"):
        _packed(folder)
    (folder / "elsewhere").unlink()
    (folder / "broken").symlink_to(folder / "nothing")
    with pytest.raises(DeployError, match="broken"):
        _packed(folder)
    (folder / "broken").unlink()
    (folder / "weights.bin").write_bytes(b"x" * 100)
    monkeypatch.setattr(_package, "PACKAGE_BYTES_MAX", 99)
    with pytest.raises(DeployError, match=r"weights\.bin"):
        _packed(folder)


def test_loose_requirements_need_uv(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert requirements_lock(folder, "3.11") == ""
    (folder / "requirements.txt").write_text("numpy\n")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DeployError, match="requires uv"):
        requirements_lock(folder, "3.11")


def test_loose_requirements_are_resolved_by_uv(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """uv itself asks a package index, so a stand-in on PATH says what it was told."""
    tools = folder.parent / "tools"
    tools.mkdir()
    uv = tools / "uv"
    uv.write_text('#!/bin/sh\n[ -n "$FAIL" ] && { echo "no such package" >&2; exit 1; }\nprintf "%s " "$@"\n')
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    (folder / "requirements.txt").write_text("numpy\n")
    told = requirements_lock(folder, "3.12").split()
    assert told[:2] == ["pip", "compile"]
    assert told[-3:] == ["--python-version", "3.12", str(folder / "requirements.txt")]
    monkeypatch.setenv("FAIL", "1")
    with pytest.raises(DeployError, match="no such package"):
        requirements_lock(folder, "3.12")


def test_a_slow_import_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **more: Any) -> None:
        raise subprocess.TimeoutExpired("x", more["timeout"])

    monkeypatch.setattr(subprocess, "run", never)
    with pytest.raises(DeployError, match=r"load weights in setup\(\)"):
        _package.describe(str(folder))


def test_a_process_that_dies_while_describing_is_told(folder: Path) -> None:
    (folder / "main.py").write_text("import os; os._exit(3)")
    with pytest.raises(DeployError, match="exit code 3"):
        _package.describe(str(folder))
