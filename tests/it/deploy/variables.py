"""Prints the compose file as JSON, with the variables of the environment inserted: `variables.py compose.yaml`."""

import json
import os
import re
import sys
from pathlib import Path

import yaml

# $$ is a dollar sign; ${NAME:?why} is required, ${NAME:-other} has a default.
VARIABLE = re.compile(r"\$(?:(\$)|\{(\w+)(?::([?-])([^}]*))?\})")


def substitute(found: re.Match[str]) -> str:
    dollar, name, kind, text = found.groups()
    if dollar:
        return "$"
    value = os.environ.get(name, "")
    if not value and kind == "?":
        raise SystemExit(f"{name}: {text}")
    return value or (text if kind == "-" else "")


def resolved(value: object) -> object:
    if isinstance(value, str):
        return VARIABLE.sub(substitute, value)
    if isinstance(value, list):
        return [resolved(inner) for inner in value]
    if isinstance(value, dict):
        return {name: resolved(inner) for name, inner in value.items()}
    return value


json.dump(resolved(yaml.safe_load(Path(sys.argv[1]).read_text())), sys.stdout)
