"""docs/reference/stoke-toml.md: every field of `stoke.toml`, from the schema of the API."""

from __future__ import annotations

import json

from generate import manifest, shapes
from generate.schema import Document, Field, Type
from source import ROOT
from text import header, page, table, wrapped

# The fields that the packager itself reads: type, default, meaning. The API does not have them.
READ = {
    "name": ("text", "the name of the handler, else of the folder", "Name of the endpoint."),
    "kind": (
        "`python`, `cog`, `runpod`, `server`, `command`",
        "`python`, or `cog` if there is a `cog.yaml`",
        "What the folder contains.",
    ),
    "handler": (
        "`FILE:OBJECT`",
        "the object that `@endpoint` marks",
        "The function or class that runs jobs; for a RunPod script only the file.",
    ),
    "command": (
        "list of text",
        "",
        "Program and arguments of a server or a command. `{port}`, `{weights}` and `{vram_fraction}` are replaced.",
    ),
    "server": ("table", "", "How a server is used; see [`[server]`](#server)."),
    "python": ("text", "that of the worker", "Python version, e.g. `3.11`."),
    "requirements": (
        "list of text, or a file",
        "`requirements.lock`, else `requirements.txt`",
        "Packages that the environment contains.",
    ),
    "input_schema": ("file", "from the type hints", "JSON Schema of the input, for kinds without type hints."),
    "output_schema": ("file", "from the type hints", "JSON Schema of the result, for kinds without type hints."),
    "weights": (
        "tables",
        "",
        "Files that a worker downloads once; see [`[[weights]]`](#weights) and [Weights](../how-to/weights.md).",
    ),
}

WEIGHTS = {
    "source": ("text", "required", "`hf://org/model@revision/file`, `https://...`, `s3://bucket/key` or `file:path`."),
    "path": ("text", "the last part of the source", "Path in the folder of the weights."),
    "sha256": ("text", "pinned by the first deploy", "SHA-256 of the file, in lower-case hex."),
}

INTRO = (
    "For authors of models: every field of `stoke.toml`, the file in the folder of an endpoint. Every field is "
    "optional. Options of `stoke deploy` override the file, and the file overrides `@endpoint`. An unknown field is "
    "rejected with its line. [Deploy a model](../how-to/deploy-a-model.md) has an example of all fields."
)


def _type(type_: Type) -> str:
    if type_.kind == "words":
        return ", ".join(f"`{word}`" for word in type_.words)
    if type_.kind == "list" and type_.item:
        inner = _type(type_.item)
        return "tables" if type_.item.kind in ("object", "any") else f"list of {inner}"
    names = {"string": "text", "boolean": "true or false", "map": "table", "object": "table", "any": "table"}
    return names.get(type_.kind, type_.kind)


def _row(one: Field) -> tuple[str, str, str, str, str]:
    link = {"retry": " See [`[retry]`](#retry).", "before": " See [steps](#steps).", "after": " See [steps](#steps)."}
    return (f"`{one.name}`", _type(one.type), one.bounds(), one.default_text(), one.meaning() + link.get(one.name, ""))


def pages() -> dict[str, str]:
    document = Document(json.loads((ROOT / "api/openapi.json").read_text(encoding="utf-8")))
    if missing := sorted(set(manifest.READ) ^ set(READ)):
        raise SystemExit(f"docs/reference/stoke-toml.md: describe {missing} in tests/docs/manifest.py")
    skip = (*manifest.READ, *shapes.PACKAGED, "demands", "traffic_percent")
    deployed = document.object("DeployRequest")
    demands = document.object(next(one.type.ref for one in deployed.fields if one.name == "demands")).fields
    head = ("Field", "Type", "Bounds", "Default", "Meaning")
    short = ("Field", "Type", "Default", "Meaning")
    runner = {one.name: one for one in document.object("Runner").fields}
    server = [_row(runner[name]) for name in ("ready_path", "path", "port", "busy")]
    return {
        "stoke-toml.md": page(
            "# stoke.toml",
            header("the code and api/openapi.json"),
            wrapped(INTRO),
            "## What to run",
            table(short, [(f"`{name}`", *texts) for name, texts in READ.items()]),
            "## How to run it",
            table(head, [_row(one) for one in deployed.without(*skip).fields]),
            "## Where to run it",
            wrapped("A worker that does not meet one of these does not get jobs of the endpoint."),
            table(head, [_row(one) for one in demands]),
            "## Tables",
            wrapped("In TOML, every field below the header of a table belongs to it: put tables last."),
            "### `[retry]`",
            table(head, [_row(one) for one in document.object("RetryPolicy").fields]),
            "### Steps",
            wrapped("Entries of `before` and `after`."),
            table(head, [_row(one) for one in document.object("Step").fields]),
            "### `[server]`",
            table(head, server),
            "### `[[weights]]`",
            table(short, [(f"`{name}`", *texts) for name, texts in WEIGHTS.items()]),
        )
    }
