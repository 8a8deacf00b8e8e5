"""Returns the hashes of its weights."""

import hashlib
import os
from pathlib import Path

from stokehold import endpoint


@endpoint(max_attempts=1)
def weighty(touch: bool = False) -> dict:
    folder = Path(os.environ["STOKE_WEIGHTS"])
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    refused = []
    for path in files if touch else []:
        try:
            with path.open("r+b") as file:
                file.write(b"x")
        except OSError as error:
            refused.append(error.strerror)
    return {
        "files": {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files},
        "inodes": [path.stat().st_ino for path in files],
        "refused": refused,
    }
