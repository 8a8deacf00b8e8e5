"""`python -m stokehold.runner serve`, `describe PATH[:object]`, and `probe`."""

from __future__ import annotations

import argparse
import json
import os
import sys


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m stokehold.runner")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("serve", help="run jobs for the worker that started this process")
    describing = commands.add_parser("describe", help="print a handler's schema as JSON")
    describing.add_argument("path", metavar="PATH[:object]", help="a folder, or a .py file")
    describing.add_argument("--kind", default="python", help="python (the default), cog or runpod")
    commands.add_parser("probe", help="test the GPUs that this process may use; exits with code 3 if one does not work")
    arguments = parser.parse_args()
    if arguments.command == "probe":
        return _probe()
    if arguments.command == "describe":
        return _describe(arguments.kind, arguments.path)
    return _serve(parser)


def _serve(parser: argparse.ArgumentParser) -> int:
    from stokehold.runner.serve import WIRE_FD, serve

    if not os.environ.get(WIRE_FD, "").isdigit():
        parser.error(
            f"{WIRE_FD} is not a socket; only a worker starts `serve`. To inspect a handler, use `describe PATH`"
        )
    return serve()


def _probe() -> int:
    from stokehold.runner.probe import probe

    wrong = probe()
    if wrong is not None:
        sys.stderr.write(f"{wrong}\n")
    return 0 if wrong is None else 3


def _describe(kind: str, path: str) -> int:
    from stokehold.runner.describe import describe

    # The package may print while it is imported, so stdout is reserved for the document.
    document = os.dup(1)
    os.dup2(2, 1)
    found, code = describe(kind, path)
    sys.stdout.flush()
    with os.fdopen(document, "w", encoding="utf-8") as stdout:
        stdout.write(json.dumps(found) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
