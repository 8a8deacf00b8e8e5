"""Both sides of the wire are pinned to the files in `tests/wire`, which the Rust tests write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .peer import GOLDENS, Peer, golden


def test_the_pinned_control_messages_run_a_handler(
    package: Callable[[str], Path], start: Callable[[Path], Peer], tmp_path: Path
) -> None:
    load, run = golden("control_load"), golden("control_run")
    # The one that is pinned is no place of this machine's; the runner makes it when the handler asks.
    run["scratch"] = str(tmp_path / "run-1")
    file, name = load["entry"].split(":")
    assert file == "endpoint.py"
    peer = start(
        package(
            f"""
            from pathlib import Path
            from stokehold import current_job
            def {name}(image: Path):
                job = current_job()
                return [job.id, job.attempt, str(job.scratch), str(image)]
            """
        )
    )
    peer.send(load)
    assert peer.recv().type == "ready"
    [(file_id, path)] = run["files"].items()
    peer.send(run, b'{"image": {"$file": "%s"}}' % file_id.encode())
    done = peer.end(run["run"])
    assert done.json == [run["job"], run["attempt"], run["scratch"], path]
    assert Path(run["scratch"]).is_dir()
    peer.send(golden("control_cancel"))
    peer.send(golden("control_shutdown"))
    assert peer.read_to_the_end() == 0


def test_a_runner_says_every_pinned_report(package: Callable[[str], Path], start: Callable[[Path], Peer]) -> None:
    """`Peer` compares each report with its file; here each kind comes at least once."""
    peer = start(
        package(
            """
            from stokehold import current_job, progress
            def handler(fail: bool):
                progress(0.5, "half way")
                print("text")
                if fail: raise ValueError("no")
                path = current_job().scratch / "out.png"
                path.touch()
                yield path
            """
        )
    )
    peer.load("endpoint.py:handler")
    peer.run({"fail": False})
    peer.run({"fail": True})
    peer.until(lambda report: report.type == "heartbeat")
    failing = start(package("1 / 0", file="failing.py"))  # type: ignore[call-arg]
    failing.load("failing.py:handler")
    broken = start(package(""))
    broken.send({"type": "shutdown"})
    broken.read_to_the_end()
    sent = {
        f"report_{kind}"
        for kind in ("ready", "done", "error", "progress", "log", "output", "heartbeat")
        if peer.seen(kind)
    }
    sent |= {"report_failed"} if failing.seen("failed") else set()
    sent |= {"report_fatal"} if broken.seen("fatal") else set()
    # Only servers send it: test_server.py.
    sent |= {"report_capacity"}
    assert sent == {path.stem for path in GOLDENS.glob("report_*.json")}


def test_every_pinned_control_message_is_sent_here() -> None:
    assert {path.stem for path in GOLDENS.glob("control_*.json")} == {
        "control_load",
        "control_run",
        "control_cancel",
        "control_shutdown",
    }
