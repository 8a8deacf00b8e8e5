"""`command`: an executable that runs once per job, with JSON on its standard input, and a result on its output."""

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

# `EX_DATAERR` of sysexits.h: the input can never succeed.
REJECTED = 65

_STOP_GRACE_S = 3.0
_LAST_WORDS_S = 1.0
_CHUNK_BYTES = 64 * 1024
_LAST_LINES = 3


class CommandFailed(Exception):  # noqa: N818
    """The program exited with a code other than 0."""


def prepare(load: Load, wait: Callable[[Any], Any]) -> Handler:
    """Checks that the program exists."""
    command: list[str] = json.loads(load.settings)["command"]
    if shutil.which(command[0]) is None:
        raise HandlerNotFound(f"{command[0]}: no executable program of this name in the package or on PATH")
    return Command(command, load.max_concurrency)


def describe(where: str) -> dict[str, Any]:
    raise HandlerNotFound("an endpoint of kind 'command' is described in stoke.toml")


class Command(Handler):
    """Runs the program in the folder of the package, with `STOKE_JOB_ID`, `STOKE_ATTEMPT`, `STOKE_OUTPUT_DIR` and
    `TRACEPARENT`, the trace context of the run.

    The result is `{"output": ..., "files": [...]}`: its standard output, as JSON or else as text, and the files in
    `STOKE_OUTPUT_DIR`. Its standard error is the log of the job. Exit code 0 is a success, 65 rejects the input for
    good, and any other code is a failure. A cancelled program receives SIGTERM, and is killed after three seconds.
    Processes that it started are killed with it.
    """

    def __init__(self, command: list[str], max_concurrency: int) -> None:
        super().__init__(self._run, Whole())
        self._command = command
        self._threads = ThreadPoolExecutor(max_concurrency, thread_name_prefix="wait")
        self._running = 0
        adopt_orphans()

    async def _run(self, value: Any) -> Any:
        attempt = CURRENT.get()
        assert isinstance(attempt, Attempt)  # noqa: S101 - called for an attempt only
        job = attempt.job()
        outputs = job.scratch / "files"
        outputs.mkdir()
        environment = {"STOKE_JOB_ID": job.id, "STOKE_ATTEMPT": str(job.attempt), "STOKE_OUTPUT_DIR": str(outputs)}
        if job.traceparent is not None:
            environment["TRACEPARENT"] = job.traceparent
        program = Program(self._command, environment, self._threads)
        self._running += 1
        try:
            output = await program.talk(json.dumps(value).encode())
            code = await program.ended
        finally:
            await program.stop()
            self._running -= 1
            if self._running == 0:
                end_orphans()
        if code != 0:
            raise _failure(code, program.log)
        return {"output": _parsed(output), "files": _files(outputs)}


class Program:
    """A program and its three pipes. It ends by itself, or by `stop`."""

    def __init__(self, command: list[str], environment: dict[str, str], threads: ThreadPoolExecutor) -> None:
        self.log = Tail()
        # Not of asyncio, for which a program ends only when all processes that it started have ended.
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
        """Sends the input, and returns the output of the program at its end."""
        output, errors = await self._reader(self._process.stdout), await self._reader(self._process.stderr)
        answer = bytearray()
        self._talking = asyncio.gather(self._feed(body), _all(output, answer), self._logged(errors))
        either: set[asyncio.Future[Any]] = {self._talking, self.ended}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        # Processes that it started may keep its pipes open forever.
        await asyncio.wait({self._talking}, timeout=_LAST_WORDS_S)
        if self._talking.done():
            await self._talking
        return bytes(answer)

    async def stop(self) -> None:
        """Ends the program and the processes that it started, if it has not ended."""
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
        # A program may close its input without reading it.
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
            raise BadOutput(
                f"the program wrote more than {BODY_BYTES_MAX} bytes; write a file to STOKE_OUTPUT_DIR instead"
            )


def _failure(code: int, log: Tail) -> Exception:
    reason = f": {log.text()}" if log.text() else ""
    if code == REJECTED:
        return Reject(log.text() or "the program rejected the input")
    ending = f"exit code {code}" if code > 0 else f"signal {signal.Signals(-code).name}"
    return CommandFailed(f"{ending}{reason}")


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _parsed(output: bytes) -> Any:
    text = output.decode("utf-8", "replace")
    try:
        return json.loads(text)
    except ValueError:
        return text


def _files(folder: Path) -> list[Path]:
    """The files in a folder, by name. Links are skipped."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
