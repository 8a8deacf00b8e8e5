"""Scans one file for what unpickling it would call. Run as `python -I -c <this> <path>`; answers with one line of JSON.

picklescan alone lets pass what it cannot parse, such as a compressed pickle, and decides by a file's name how it
would be loaded. Here, what cannot be parsed has failed, and the file is scanned as torch.load and as pickle.load would
read it.
"""

import json
import logging
import resource
import sys
from pathlib import Path

from picklescan import scanner

# The parts of a pickle are kept in memory, several hundred bytes for each: a wicked one would take all there is.
MEMORY_BYTES_MAX = 4 << 30

# Of an old torch.save: magic number, protocol, system, object, keys.
PICKLES_MAX = 5

PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".bin", ".ckpt", ".joblib", ".dill", ".sav")


class Failures(logging.Handler):
    """Keeps what the scanner says only in its log."""

    def __init__(self):
        super().__init__()
        self.messages = []

    def emit(self, record):
        message = record.getMessage()
        if message.startswith("Invalid file "):
            self.messages.append(message)
        unparsed = message.removeprefix("WARNING: could not parse ")
        name = unparsed.split(" as pickle: ")[0]
        # In a zip, the bytes of a tensor may begin like a pickle.
        if unparsed != message and (name == "file" or name.endswith(PICKLES)):
            self.messages.append(message.removeprefix("WARNING: "))


def main(path):
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    failures = Failures()
    logger = logging.getLogger("picklescan")
    logger.addHandler(failures)
    logger.propagate = False
    found = scanner.ScanResult([])
    try:
        with path.open("rb") as file:
            is_zip = file.read(4) == b"PK\x03\x04"
            file.seek(0)
            found.merge(scanner.scan_bytes(file, "file", ".bin"))
        if not is_zip:
            with path.open("rb") as file:
                for _ in range(PICKLES_MAX):
                    found.merge(scanner.scan_pickle_bytes(file, "file", multiple_pickles=False))
        if found.scan_err:
            failures.messages.append("the file is corrupt")
    except BaseException as error:
        failures.messages.append(f"{type(error).__name__}: {error}"[:500])
    dangerous = sorted({f"{g.module}.{g.name}" for g in found.globals if g.safety is scanner.SafetyLevel.Dangerous})
    sys.stdout.write(json.dumps({"dangerous": dangerous[:20], "failed": (failures.messages or [None])[0]}))


main(Path(sys.argv[1]))
