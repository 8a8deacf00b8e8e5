"""Runs a command on a separate terminal and prints what reached the terminal, as JSON: `{bytes: hex, code}`."""

import json
import os
import pty
import select
import signal
import sys
import time

LIMIT_S = 60

pid, terminal = pty.fork()
if pid == 0:
    os.environ.update(TERM="xterm-256color", COLUMNS="200", LINES="50")
    os.execvp(sys.argv[1], sys.argv[1:])
seen, end = b"", time.monotonic() + LIMIT_S
while time.monotonic() < end:
    if select.select([terminal], [], [], 0.5)[0]:
        try:
            some = os.read(terminal, 1 << 16)
        except OSError:
            break
        if not some:
            break
        seen += some
else:
    os.kill(pid, signal.SIGKILL)
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print(json.dumps({"bytes": seen.hex(), "code": code}))
