"""Becomes a Triton server with the models of this folder: the one in nvidia-pytriton, with no image around it."""

import os
import shutil
import sys
import sysconfig
import tempfile
from importlib.util import find_spec
from pathlib import Path

spec = find_spec("pytriton")
package = Path(next(iter(spec.submodule_search_locations)))
server = package / "tritonserver"

# Triton looks for the Python backend's helper beside its library, and the environment cannot be written to.
backends = Path(tempfile.mkdtemp(prefix="triton-")) / "backends"
shutil.copytree(server / "backends", backends)
version = f"{sys.version_info.major}.{sys.version_info.minor}"
shutil.copy(
    server / "python_backend_stubs" / version / "triton_python_backend_stub",
    backends / "python",
)

libraries = [
    *package.parent.glob("nvidia_pytriton.libs"),
    Path(sysconfig.get_config_var("LIBDIR")),
]
os.environ["LD_LIBRARY_PATH"] = ":".join([*map(str, libraries), os.environ.get("LD_LIBRARY_PATH", "")])
program = server / "bin" / "tritonserver"
os.execv(  # noqa: S606 - it becomes the server
    program,
    [
        str(program),
        f"--model-repository={Path(__file__).parent / 'models'}",
        f"--backend-directory={backends}",
        "--http-address=127.0.0.1",
        f"--http-port={sys.argv[1]}",
        "--allow-grpc=false",
        "--allow-metrics=false",
    ],
)
