"""The main loop of a runner: load the handler, report it as ready, and run jobs until shutdown."""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import signal
import time
import traceback

from stokehold._wire import Load, Wire
from stokehold.runner import failure, fault, kinds, oom, streams
from stokehold.runner.batched import Batched
from stokehold.runner.concurrent import Concurrent
from stokehold.runner.serial import Serial

WIRE_FD = "STOKE_WIRE_FD"


def serve() -> int:
    """Runs jobs for the worker at the other end of the inherited socket. Returns the exit code."""
    fd = int(os.environ.pop(WIRE_FD))
    wire = Wire(fd)
    streams.redirect(wire, fd)
    # A crash in C code writes its traceback to the pipe, which outlives this process.
    faulthandler.enable(file=2)
    # The worker decides when a runner ends, even if Ctrl-C in a terminal reaches both.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return _serve(wire)
    except Exception:
        wire.fatal(traceback.format_exc())
        raise


def _serve(wire: Wire) -> int:
    load = wire.recv()
    if not isinstance(load, Load):
        wire.fatal(f"the first message must be load, not {type(load).__name__.lower()}")
        return 1
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    started = time.monotonic()
    try:
        # Before any code of the endpoint: libraries read some variables once, when they are imported.
        os.environ.update(json.loads(load.settings or "{}").get("secrets", {}))
        prepared = kinds.of(load.kind).prepare(load, loop.run_until_complete)
    except BaseException as error:
        wire.failed(
            failure.describe(error, oom.which(error) or (fault.CUDA if fault.is_one(error) else "setup_failed"))
        )
        return 1
    wire.ready(int((time.monotonic() - started) * 1000))
    prepared.begin(wire.capacity)
    try:
        if prepared.called.is_async:
            loop.run_until_complete(Concurrent(wire, prepared, load.max_concurrency).serve())
        elif prepared.batch is not None:
            Batched(wire, prepared, prepared.batch).serve()
        else:
            Serial(wire, prepared).serve()
    finally:
        prepared.close()
    return 0
