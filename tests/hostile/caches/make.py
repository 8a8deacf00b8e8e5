"""Writes a package whose handler returns its weights, and prints it and private weights as JSON: `{package: {path, sha256, size}, weights: {text, sha256, size}}`.

The arguments are the folder and the content of the weights.
"""

import gzip
import hashlib
import io
import json
import pathlib
import sys
import tarfile

FOLDER, TEXT = pathlib.Path(sys.argv[1]), sys.argv[2]
HANDLER = b"""import os
import pathlib

from stokehold import endpoint


@endpoint(name="weighty")
def weighty() -> list[str]:
    return [path.read_text() for path in pathlib.Path(os.environ["STOKE_WEIGHTS"]).rglob("*") if path.is_file()]
"""
buffer = io.BytesIO()
with tarfile.open(fileobj=buffer, mode="w") as tar:
    info = tarfile.TarInfo("main.py")
    info.size = len(HANDLER)
    tar.addfile(info, io.BytesIO(HANDLER))
content = gzip.compress(buffer.getvalue(), mtime=0)
path = FOLDER / "weighty.tar.gz"
path.write_bytes(content)
package = {"path": str(path), "sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
weights = {"text": TEXT, "sha256": hashlib.sha256(TEXT.encode()).hexdigest(), "size": len(TEXT.encode())}
print(json.dumps({"package": package, "weights": weights}))
