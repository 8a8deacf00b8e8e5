"""What `import stokehold` gives a model, and what it costs."""

from __future__ import annotations

import subprocess
import sys

RUNNER_NAMES = [
    "Cancelled",
    "Field",
    "JobRetry",
    "Reject",
    "Step",
    "allow",
    "current_job",
    "endpoint",
    "progress",
    "reject",
    "rewrite",
]


def _python(source: str) -> str:
    process = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False, timeout=60)
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_a_model_imports_neither_the_client_nor_the_rust_half() -> None:
    loaded = _python(
        f"import sys; from stokehold import {', '.join(RUNNER_NAMES)}\n"
        "print([name for name in ('httpx', 'asyncio', 'stokehold._client', 'stokehold._wire') if name in sys.modules])"
    )
    assert loaded == "[]\n"


def test_it_serves_where_there_is_no_httpx() -> None:
    _python("import sys; sys.modules['httpx'] = None\nimport stokehold.runner.serve, stokehold.runner.describe")


def test_an_unknown_name_is_an_attribute_error() -> None:
    _python("import stokehold\ntry: stokehold.nothing\nexcept AttributeError as error: assert 'nothing' in str(error)")
