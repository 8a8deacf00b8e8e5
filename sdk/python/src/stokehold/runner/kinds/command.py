"""`command`: runs an executable once per job, with JSON on standard input, a result on standard output, and files."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable

from stokehold._wire import BODY_BYTES_MAX, Load
from stokehold.runner.attempt import Attempt
from stokehold.runner.context import CURRENT
from stokehold.runner.errors import BadOutput, Reject
from stokehold.runner.handler import Handler, HandlerNotFound
from stokehold.runner.kinds.child import adopt_orphans, descendants, die_with_parent, end_orphans
from stokehold.runner.kinds.whole import Whole

# `EX_DATAERR` of sysexits.h: the input will never work.
REJECTED = 65

_STOP_GRACE_S = 3.0
_LAST_WORDS_S = 1.0
_CHUNK_BYTES = 64 * 1024
_LAST_LINES = 3


class CommandFailed(Exception):  # noqa: N818
    """The program failed."""


def prepare(load: Load, wait: Callable[[Any], Any]) -> Handler:
    """Checks that the program exists."""
    command: list[str] = json.loads(load.settings)["command"]
    if shutil.which(command[0]) is None:
        raise HandlerNotFound(f"{command[0]}: no executable program of that name in the package or on PATH")
    return Command(command, load.max_concurrency)


def describe(where: str) -> dict[str, Any]:
    raise HandlerNotFound("commands are described by stoke.toml, not by Python code")


class Command(Handler):
    """Runs the program in the package's folder, with the variables `STOKE_JOB_ID`, `STOKE_ATTEMPT`,
    `STOKE_OUTPUT_DIR` and `TRACEPARENT` (its parent span in the job's trace).

    The result is `{"output": ..., "files": [...]}`: the standard output, parsed as JSON if possible and otherwise as
    text, and the files in `STOKE_OUTPUT_DIR`. The standard error becomes the job's log. Exit code 0 means success, 65
    means that the input will never work, and any other code means failure. A cancelled program gets SIGTERM and three
    seconds to exit; its child processes are killed with it.
    """

    def __init__(self, command: list[str], max_concurrency: int) -> None:
        super().__init__(self._run, Whole())
        self._command = command
        self._threads = ThreadPoolExecutor(max_concurrency, thread_name_prefix="wait")
        self._running = 0
        adopt_orphans()

    async def _run(self, value: Any) -> Any:
        attempt = CURRENT.get()
        assert isinstance(attempt, Attempt)  # noqa: S101 - it is called for one
        job = attempt.job()
        outputs = job.scratch / "files"
        outputs.mkdir()
        told = {"STOKE_JOB_ID": job.id, "STOKE_ATTEMPT": str(job.attempt), "STOKE_OUTPUT_DIR": str(outputs)}
        if job.traceparent is not None:
            told["TRACEPARENT"] = job.traceparent
        program = Program(self._command, told, self._threads)
        self._running += 1
        try:
            said = await program.talk(json.dumps(value).encode())
            code = await program.ended
        finally:
            await program.stop()
            self._running -= 1
            if self._running == 0:
                end_orphans()
        if code != 0:
            raise _failure(code, program.log)
        return {"output": _parsed(said), "files": _files(outputs)}


class Program:
    """A program and its three pipes."""

    def __init__(self, command: list[str], environment: dict[str, str], threads: ThreadPoolExecutor) -> None:
        self.log = Tail()
        # Not asyncio's, which waits until all child processes of a program have exited too.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
            preexec_fn=die_with_parent,
        )
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().run_in_executor(threads, self._process.wait)
        self._talking: asyncio.Future[Any] | None = None
        self._transports: list[asyncio.BaseTransport] = []

    async def talk(self, body: bytes) -> bytes:
        """Sends the input and returns the standard output at the end."""
        said, errors = await self._reader(self._process.stdout), await self._reader(self._process.stderr)
        answer = bytearray()
        self._talking = asyncio.gather(self._feed(body), _all(said, answer), self._logged(errors))
        either: set[asyncio.Future[Any]] = {self._talking, self.ended}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        # Its child processes may hold the pipes open forever.
        await asyncio.wait({self._talking}, timeout=_LAST_WORDS_S)
        if self._talking.done():
            await self._talking
        return bytes(answer)

    async def stop(self) -> None:
        """Kills the program and its child processes, if it has not exited by itself."""
        family = self._family()
        if not self.ended.done():
            _signal(family, signal.SIGTERM)
            done, _ = await asyncio.wait({self.ended}, timeout=_STOP_GRACE_S)
            family |= set() if done else self._family()
        _signal(family, signal.SIGKILL)
        await self.ended
        if self._talking is not None:
            self._talking.cancel()
        for transport in self._transports:
            transport.close()

    def _family(self) -> set[int]:
        return set() if self.ended.done() else {self._process.pid, *descendants(self._process.pid)}

    async def _reader(self, pipe: Any) -> asyncio.StreamReader:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        self._transports.append(transport)
        return reader

    async def _feed(self, body: bytes) -> None:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, self._process.stdin)
        self._transports.append(transport)
        writer = asyncio.StreamWriter(transport, protocol, None, loop)
        writer.write(body)
        # A program may ignore its input.
        with suppress(ConnectionError):
            await writer.drain()
        transport.close()

    async def _logged(self, errors: asyncio.StreamReader) -> None:
        while piece := await errors.read(_CHUNK_BYTES):
            sys.stderr.buffer.write(piece)
            self.log.push(piece)
        sys.stderr.flush()


class Tail:
    """The last lines of a stream."""

    def __init__(self) -> None:
        self._bytes = b""

    def push(self, piece: bytes) -> None:
        self._bytes = (self._bytes + piece)[-2_000:]

    def text(self) -> str:
        lines = self._bytes.decode("utf-8", "replace").strip().splitlines()
        return "\n".join(lines[-_LAST_LINES:])


async def _all(stdout: asyncio.StreamReader, answer: bytearray) -> None:
    while piece := await stdout.read(_CHUNK_BYTES):
        answer += piece
        if len(answer) > BODY_BYTES_MAX:
            raise BadOutput(f"the program printed more than {BODY_BYTES_MAX} bytes: write a file into STOKE_OUTPUT_DIR")


def _failure(code: int, log: Tail) -> Exception:
    said = f": {log.text()}" if log.text() else ""
    if code == REJECTED:
        return Reject(log.text() or "the program rejected the input")
    ending = f"exit code {code}" if code > 0 else f"signal {signal.Signals(-code).name}"
    return CommandFailed(f"{ending}{said}")


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _parsed(said: bytes) -> Any:
    text = said.decode("utf-8", "replace")
    try:
        return json.loads(text)
    except ValueError:
        return text


def _files(folder: Path) -> list[Path]:
    """The files in the folder, by name; links are ignored."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
