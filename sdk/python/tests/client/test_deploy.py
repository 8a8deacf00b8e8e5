"""From a folder to an endpoint."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stokehold import Client, DeployError, JobRetry, ServerError, Step
from stokehold._package import describe, open_package, resolve

from .conftest import Exchange, Server, data, ok, problem

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
        "runner": {"kind": "python"},
        "weights": [],
        "traffic_percent": 100,
    }
    with tarfile.open(fileobj=io.BytesIO(put.body)) as tar:
        assert tar.getnames() == ["main.py"]


def test_deploy_overrules_and_sends_a_known_package_never_again(
    api: Server, store: Server, client: Client, folder: Path
) -> None:
    _accept(api, store, exists=True)
    (folder / "requirements.lock").write_text("numpy==2.0.0\n")
    client.deploy(
        f"{folder / 'main.py'}:greet", name="hello", python="3.12", timeout_s=5, vram_gib=8, traffic_percent=10
    )
    assert store.requests == []
    sent = api.seen("POST /v1/endpoints")[0].json()
    assert (sent["name"], sent["python"], sent["timeout_s"], sent["vram_gib"]) == ("hello", "3.12", 5, 8)
    assert sent["traffic_percent"] == 10
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


def test_a_model_that_cannot_be_imported_is_reported_with_its_traceback(
    api: Server, client: Client, folder: Path
) -> None:
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


def test_deploy_reads_the_manifest_and_options_override_it(
    api: Server, store: Server, client: Client, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _accept(api, store, exists=True)
    (folder / "stoke.toml").write_text('name = "mine"\nvram_gib = 4\ngpus = 2\n[env]\nA_TOKEN = "1"\nB = "1"\n')
    client.deploy(
        folder,
        name="yours",
        min_cuda="12.4",
        env={"B": "2"},
        secrets=["HF_TOKEN"],
        after=[Step("image-check")],
        retry=JobRetry(backoff_s=3),
    )
    sent = api.seen("POST /v1/endpoints")[0].json()
    assert (sent["name"], sent["vram_gib"], sent["secrets"]) == ("yours", 4, ["HF_TOKEN"])
    assert sent["demands"] == {"gpus": 2, "min_cuda": "12.4"}
    assert sent["env"] == {"A_TOKEN": "1", "B": "2"}
    assert (sent["after"], sent["retry"]) == ([{"endpoint": "image-check"}], {"backoff_s": 3})
    assert "stoke secret set A_TOKEN" in caplog.text


def test_deploy_checks_its_options(client: Client, folder: Path) -> None:
    with pytest.raises(DeployError, match="timeout_s: use a whole number from 1 to 604800"):
        client.deploy(folder, timeout_s=0)
    with pytest.raises(TypeError, match="unexpected argument 'vram_gb'"):
        client.deploy(folder, vram_gb=3)  # type: ignore[call-arg]
    (folder / "stoke.toml").write_text("vram_gb = 3\n")
    with pytest.raises(DeployError, match=r"stoke.toml: .*line 1, column 1[^?]*did you mean `vram_gib`"):
        client.deploy(folder)


def test_deploy_pins_and_uploads_weights(api: Server, store: Server, client: Client, folder: Path) -> None:
    """A local file, one of a web server, one of a model hub, and one of a bucket."""
    _accept(api, store)
    api.on("POST /v1/weights", ok({"exists": False, "upload_url": f"{store.url}/weights", "headers": {}}))
    api.on("GET /v1/weights/url", ok({"url": f"{store.url}/bucket?sig=s"}))
    store.on("PUT /weights", data(b""))
    store.on("GET /a.safetensors", data(b"web"))
    store.on("GET /bucket", data(b"bucket"))
    commit = "c0ffee"
    store.on("HEAD /org/model/resolve/main/h.safetensors", _hub_file(commit))
    store.on(f"GET /org/model/resolve/{commit}/h.safetensors", data(b"hub"))
    (folder / "l.safetensors").write_bytes(b"local")
    sources = [
        "file:l.safetensors",
        f"{store.url}/a.safetensors",
        "s3://models/b.safetensors",
        "hf://org/model/h.safetensors",
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", store.url)
        client.deploy(folder, weights=[{"source": source} for source in sources])
    sent = api.seen("POST /v1/endpoints")[0].json()["weights"]
    hashes = [hashlib.sha256(content).hexdigest() for content in (b"local", b"web", b"bucket", b"hub")]
    assert [one["sha256"] for one in sent] == hashes
    assert sent[3]["source"] == f"hf://org/model@{commit}/h.safetensors"
    assert [one["url"] for one in sent] == [
        None,
        *sources[1:3],
        f"{store.url}/org/model/resolve/{commit}/h.safetensors",
    ]
    assert api.seen("GET /v1/weights/url")[0].query == {"source": "s3://models/b.safetensors"}
    assert [put.body for put in store.seen("PUT /weights")] == [b"local"]
    with tarfile.open(fileobj=io.BytesIO(store.seen("PUT /package")[0].body)) as tar:
        assert tar.getnames() == ["main.py", "weights.lock"]
    assert all(
        "accept-encoding" not in got.headers or got.headers["accept-encoding"] == "identity"
        for got in store.seen("GET /a.safetensors")
    )


def _hub_file(commit: str) -> Any:
    def answer(exchange: Exchange) -> None:
        exchange.send_response(200)
        exchange.send_header("X-Repo-Commit", commit)
        exchange.send_header("content-length", "3")
        exchange.end_headers()

    return answer


def test_weights_that_cannot_be_reached_are_named(client: Client, folder: Path, store: Server) -> None:
    store.on("GET /a.bin", problem(403, "forbidden", "no"))
    with pytest.raises(DeployError, match=r"weights: a.bin: the server returned 403; .*HF_TOKEN"):
        client.deploy(folder, weights=[{"source": f"{store.url}/a.bin"}])


@pytest.mark.parametrize("where", ["before the response", "in the body"])
def test_an_interrupt_stops_the_download_of_weights(folder: Path, where: str) -> None:
    def interrupted() -> Iterator[bytes]:
        yield b"part"
        raise KeyboardInterrupt

    calls: list[str] = []

    def send(method: str, url: str, headers: Any) -> Any:
        calls.append(f"{method} {url}")
        if where == "in the body":
            return 200, [], interrupted()
        raise KeyboardInterrupt

    package = open_package(str(folder), {"weights": [{"source": "https://example.org/a.bin"}]})
    with pytest.raises(KeyboardInterrupt):
        package.pin(send, calls.append, {})
    assert calls == ["GET https://example.org/a.bin"]


@pytest.mark.parametrize("name", ["python", "cog", "runpod", "server", "command", "everything"])
def test_the_request_is_that_of_stoke_deploy(
    name: str, api: Server, store: Server, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The goldens are those of `crates/package`, whose code the CLI uses."""
    if name in ("cog", "runpod"):
        pytest.importorskip(name)
    root = Path(__file__).resolve().parents[4]
    golden = json.loads((root / "crates/package/tests/goldens" / f"{name}.json").read_text())
    folder = root / ("crates/package/tests/folders/everything" if name == "everything" else f"cli/src/init/{name}")
    tools = tmp_path / "tools"
    tools.mkdir()
    _program(tools / "uv", f"printf '%s' '{golden['lock']}'")
    _program(tools / "python3", "echo 3.11")
    monkeypatch.delenv("STOKE_UV", raising=False)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    _accept(api, store)
    api.on("POST /v1/weights", ok({"exists": True}))
    client.deploy(folder)
    sent = api.seen("POST /v1/endpoints")[0].json()
    assert sent == golden["request"]
    body = store.seen("PUT /package")[0].body
    assert (hashlib.sha256(body).hexdigest(), len(body)) == (sent["package_sha256"], sent["package_size_bytes"])


def _program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_a_package_holds_no_rubbish_and_depends_on_contents_alone(
    api: Server, store: Server, client: Client, folder: Path
) -> None:
    for rubbish in (".git/config", ".env", "__pycache__/main.pyc", "old.pyc", "venv/pyvenv.cfg", "venv/lib/x.py"):
        (folder / rubbish).parent.mkdir(exist_ok=True, parents=True)
        (folder / rubbish).write_text("x")
    (folder / "linked.py").symlink_to(folder / "main.py")
    (folder / "run.sh").write_text("#!/bin/sh")
    (folder / "run.sh").chmod(0o700)
    _accept(api, store)
    client.deploy(folder)
    for path in folder.rglob("*"):
        os.utime(path, (1, 1))
    client.deploy(folder)
    first, second = (put.body for put in store.seen("PUT /package"))
    assert first == second
    with tarfile.open(fileobj=io.BytesIO(first)) as tar:
        members = {member.name: (member.mode, member.mtime, member.uid, member.uname) for member in tar}
    assert members == {
        "linked.py": (0o644, 0, 0, ""),
        "main.py": (0o644, 0, 0, ""),
        "run.sh": (0o755, 0, 0, ""),
    }


def test_what_cannot_be_packed_is_named(client: Client, folder: Path, tmp_path: Path) -> None:
    (folder / "elsewhere").symlink_to(tmp_path)
    with pytest.raises(DeployError, match="elsewhere is a symlink to a folder"):
        client.deploy(folder)
    (folder / "elsewhere").unlink()
    (folder / "broken").symlink_to(folder / "nothing")
    with pytest.raises(DeployError, match="broken is a dangling symlink"):
        client.deploy(folder)


def test_loose_requirements_need_uv(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_package(str(folder), {}).locked() == ""
    (folder / "requirements.txt").write_text("numpy\n")
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("STOKE_UV", raising=False)
    with pytest.raises(DeployError, match="requires uv"):
        resolve(open_package(str(folder), {}))


def test_loose_requirements_are_resolved_by_uv(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """uv itself asks a package index, so a stand-in on PATH prints its arguments."""
    tools = folder.parent / "tools"
    tools.mkdir()
    _program(tools / "uv", '[ -n "$FAIL" ] && { echo "no such package" >&2; exit 1; }\nprintf "%s " "$@"\npwd')
    monkeypatch.delenv("STOKE_UV", raising=False)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    (folder / "requirements.txt").write_text("numpy\n")
    package = open_package(str(folder), {"python": "3.12"})
    printed = resolve(package).split()
    assert printed[:2] == ["pip", "compile"]
    assert printed[-5:] == ["3.12", "--quiet", "--", str(folder.resolve() / "requirements.txt"), str(folder.resolve())]
    monkeypatch.setenv("FAIL", "1")
    with pytest.raises(DeployError, match="no such package"):
        resolve(package)


def test_a_slow_import_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **more: Any) -> None:
        raise subprocess.TimeoutExpired("x", more["timeout"])

    monkeypatch.setattr(subprocess, "run", never)
    with pytest.raises(DeployError, match=r"load weights in setup\(\)"):
        describe(open_package(str(folder), {}))


def test_a_process_that_dies_while_describing_is_reported(folder: Path) -> None:
    (folder / "main.py").write_text("import os; os._exit(3)")
    with pytest.raises(DeployError, match="exit status: 3"):
        describe(open_package(str(folder), {}))


def test_deploy_without_the_compiled_part_names_what_to_install(
    client: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "stokehold._wire", None)
    monkeypatch.delattr("stokehold._wire", raising=False)
    with pytest.raises(DeployError, match="which only the wheels for Linux contain"):
        client.deploy(folder)


def test_clients_do_not_load_the_compiled_part() -> None:
    program = (
        "import sys, stokehold; stokehold.Client; stokehold.AsyncClient; sys.exit('stokehold._wire' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
