"""The kind `command`: a program is run once per job."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from .peer import Peer

Run = Callable[..., Peer]


@pytest.fixture
def command(package: Callable[..., Path], start: Callable[[Path], Peer]) -> Run:
    """Starts a runner whose command is a shell script."""

    def command(script: str, max_concurrency: int = 1) -> Peer:
        peer = start(package(script, "run.sh"))
        report = peer.load("", max_concurrency, "command", {"command": ["sh", "run.sh", "word"]})
        assert report.type == "ready", report.header
        return peer

    return command


@pytest.mark.parametrize(
    ("script", "output"), [("cat; test $1 = word", {"a": [1]}), ("echo plain words", "plain words\n")]
)
def test_the_input_comes_on_standard_input_and_the_answer_is_json_or_text(
    command: Run, script: str, output: object
) -> None:
    assert command(script).run({"a": [1]}).json == {"output": output, "files": []}


def test_it_is_told_of_the_job_and_its_files_are_the_result_s(command: Run) -> None:
    peer = command(
        """
        echo $STOKE_JOB_ID $STOKE_ATTEMPT
        mkdir $STOKE_OUTPUT_DIR/deep
        echo one > $STOKE_OUTPUT_DIR/a.txt; echo two > $STOKE_OUTPUT_DIR/deep/b.txt
        ln -s /etc/hostname $STOKE_OUTPUT_DIR/link
        """
    )
    report = peer.run()
    assert report.json == {"output": "job-1 1\n", "files": [{"$file": "a.txt"}, {"$file": "b.txt"}]}
    assert [Path(file["path"]).read_text() for file in report.header["files"]] == ["one\n", "two\n"]


def test_files_of_the_input_are_paths(command: Run, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("from afar")
    report = command("cat").run({"list": [{"$file": "f1"}]}, {"f1": str(tmp_path / "note.txt")})
    assert report.json["output"] == {"list": [str(tmp_path / "note.txt")]}


def test_standard_error_is_the_job_s_log(command: Run) -> None:
    peer = command("echo careful >&2")
    peer.run()
    assert peer.log(1, "stderr") == "careful\n"


@pytest.mark.parametrize(
    ("script", "code", "message"),
    [
        ("echo first >&2; echo last words >&2; exit 3", "handler_error", "exit code 3: first last words"),
        ("echo no face found >&2; exit 65", "rejected", "no face found"),
        ("kill -9 $$", "handler_error", "signal SIGKILL"),
    ],
)
def test_how_it_ended_is_what_became_of_the_job(command: Run, script: str, code: str, message: str) -> None:
    error = command(script).run().header["error"]
    assert (error["code"], error["message"]) == (code, message)


def test_it_may_ignore_its_input(command: Run) -> None:
    report = command("exec 0<&-; echo 1").run({"long": "x" * 1_000_000})
    assert report.json["output"] == 1


def test_too_much_output_is_refused(command: Run) -> None:
    error = command("yes").run().header["error"]
    assert error["code"] == "bad_output"
    assert "STOKE_OUTPUT_DIR" in error["message"]


def test_a_cancelled_one_ends_with_what_it_has_started(command: Run, tmp_path: Path) -> None:
    gate = tmp_path / "pids"
    os.mkfifo(gate)
    peer = command(f"sleep 600 & echo $$ $! > {gate}; wait")
    run = peer.start()
    pids = gate.read_text().split()
    peer.cancel(run)
    assert peer.end(run).header["error"]["code"] == "cancelled"
    assert not any(_runs(pid) for pid in pids)


def test_what_it_leaves_behind_ends_with_the_job(command: Run) -> None:
    peer = command("sleep 600 >/dev/null 2>&1 & (sleep 601 & echo $!); setsid sleep 602 & echo $!")
    printed = peer.run().json["output"]
    assert not any(_runs(pid) for pid in printed.split())


def test_one_that_ignores_being_asked_is_killed(command: Run, tmp_path: Path) -> None:
    gate = tmp_path / "pid"
    os.mkfifo(gate)
    peer = command(f"trap '' TERM; echo $$ > {gate}; while :; do sleep 600; done")
    run = peer.start()
    pid = gate.read_text().strip()
    peer.cancel(run)
    assert peer.end(run).header["error"]["code"] == "cancelled"
    assert not _runs(pid)


def test_several_run_at_once(command: Run, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    # Each waits for the other: the one reads what the other writes.
    peer = command(f"read input; case $input in *read*) cat {gate};; *) echo 7 > {gate};; esac", max_concurrency=2)
    first, second = peer.start({"do": "read"}), peer.start({"do": "write"})
    assert (peer.end(first).json["output"], peer.end(second).type) == (7, "done")


def test_a_program_that_is_not_there_is_named(package: Callable[..., Path], start: Callable[[Path], Peer]) -> None:
    peer = start(package("", "run.sh"))
    error = peer.load("", kind="command", settings={"command": ["./run.sh"]}).header["error"]
    assert "./run.sh: no executable program of this name" in error["message"]


def _runs(pid: str) -> bool:
    """Whether it is there, and not only as a zombie whose parent has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
