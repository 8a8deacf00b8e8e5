"""The endpoint that workers run under chaos. It records each run itself, in a file with no other writer."""

import asyncio
import json
import os
import time
from typing import Any, Optional
from uuid import uuid4

from stokehold import current_job, endpoint

FOLDER = "@FOLDER@"
NAME = f"{os.getpid()}-{uuid4().hex[:12]}"


class Journal:
    """Lines of this process. A line is one write: a kill leaves it complete or absent."""

    def __init__(self) -> None:
        self.lines = 0
        self.file: Optional[int] = None

    def write(self, kind: str, event: str, job: Any, **v: Any) -> None:
        if self.file is None:
            self.file = os.open(f"{FOLDER}/{NAME}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.lines += 1
        line = {"i": self.lines, "t": time.monotonic_ns(), "p": f"runner-{NAME}", "type": kind, "f": event}
        line.update(job=job.id, attempt=job.attempt, v=v)
        os.write(self.file, json.dumps(line).encode() + b"\n")


journal = Journal()


class Requested(Exception):
    """The failure that the job requests."""


@endpoint(name="chaos", max_concurrency=@SLOTS@, max_attempts=@ATTEMPTS@, timeout_s=60)
async def chaos(tag: str, ms: int = 0, fails: int = 0, fill: int = 0) -> dict:
    """Takes `ms`, fails in its first `fails` attempts, and returns a result with `fill` additional characters."""
    job = current_job()
    run = f"{NAME}-{journal.lines}"
    journal.write("ok", "run_start", job, run=run, tag=tag)
    try:
        if ms:
            await asyncio.sleep(ms / 1000)
        if job.attempt <= fails:
            raise Requested(tag)
    except BaseException as error:
        why = "told to" if isinstance(error, Requested) else type(error).__name__
        journal.write("fail", "run_end", job, run=run, why=why)
        raise
    journal.write("ok", "run_end", job, run=run)
    return {"tag": tag, "run": run, "fill": "x" * fill}
