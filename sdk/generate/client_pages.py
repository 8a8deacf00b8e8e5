"""The reference pages of the clients: their methods with signatures and descriptions, and the objects they return."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from generate import shapes
from generate.python import Python
from generate.schema import Document, Field
from generate.typescript import TypeScript

WIDTH = 100

# What examples use of the package, besides its client.
PUBLIC_NAMES = frozenset({"WaitTimeout"})

# Words of annotations that a reader does not need.
_UNPACKED = re.compile(r"builtins[.]|Unpack\[(\w+)\]")


class Method(NamedTuple):
    """A method with its description."""

    signature: str
    doc: str


# The classes of a page: what a user calls an instance of it, and its name.
PYTHON_CLASSES = {
    "client": "Client",
    "job": "Job",
    "client.jobs": "Jobs",
    "client.batches": "Batches",
    "batch": "Batch",
    "client.schedules": "Schedules",
    "schedule": "Schedule",
    "client.files": "Files",
    "file": "FileRef",
    "pipeline": "Pipeline",
    "client.webhooks": "Webhooks",
    "client.feedback": "FeedbackRoutes",
    "client.endpoints": "Endpoints",
    "client.workers": "Workers",
    "client.fleet": "FleetRoutes",
    "client.costs": "CostsRoutes",
    "client.limits": "LimitsResource",
    "client.secrets": "Secrets",
    "client.tokens": "Tokens",
    "client.tenants": "Tenants",
    "client.audit": "Audit",
    "client.quarantine": "QuarantineRoutes",
    "client.requirement_sets": "RequirementSets",
}
PYTHON_FILES = ("_client.py", "_job.py", "_resources.py", "_catalog.py", "_generated/_routes.py")
TYPESCRIPT_CLASSES = {
    "client": "Stokehold",
    "job": "Job",
    "file": "FileRef",
    "pipeline": "Pipeline",
    "client.feedback": "FeedbackResource",
    "client.workers": "WorkerRoutes",
    "client.requirementSets": "RequirementSets",
    **{
        f"client.{name}": name.capitalize()
        for name in ("jobs", "batches", "schedules", "files", "webhooks", "endpoints", "secrets", "tokens", "tenants")
    },
    "client.fleet": "FleetRoutes",
    "client.costs": "CostsRoutes",
    "client.limits": "LimitsResource",
    "client.audit": "Audit",
    "client.quarantine": "QuarantineRoutes",
}

PYTHON_HEAD = """# Python client

<!-- Generated from sdk/python/src by `make models`; do not edit. -->

`pip install stokehold`, then `from stokehold import Client`. `AsyncClient` has the same methods as
coroutines and asynchronous iterators. The objects below are in `stokehold.types`, and those of jobs
and batches also in `stokehold`. A method raises `ApiError` with the problem's `code` if the API
refuses the request, `ConnectionFailed` or `TimedOut` if it does not answer; `StokeholdError` is the
base of all. A request that may succeed later is repeated, at most 5 times. The members of
`JobOptions` are in [Options of a job](submit-options.md), those of `DeployOptions` in
[Options of an endpoint](endpoint-options.md).
"""
JAVASCRIPT_HEAD = """# JavaScript client

<!-- Generated from sdk/js/src by `make models`; do not edit. -->

`npm install stokehold`, then `import { Stokehold } from "stokehold"`. The package has the types of
all options and objects below. Options are in camel case; objects have the names of the API. Every
method takes a `signal`, which stops the call. A method throws `ApiError` with the problem's `code`
if the API refuses the request, `ConnectionFailed` or `TimedOut` if it does not answer;
`StokeholdError` is the base of all. A request that may succeed later is repeated, at most 5 times.
The members of `JobOptions` are in [Options of a job](submit-options.md), those of `DeployOptions`
in [Options of an endpoint](endpoint-options.md).
"""


def pages(document: Document, python: Python, typescript: TypeScript, files: Mapping[Path, str]) -> dict[str, str]:
    """The text of each page, by its name. `files` are the generated sources."""
    package = Path(__file__).resolve().parents[1]
    source = package / "python/src/stokehold"
    classes = {}
    for path in (source / name for name in PYTHON_FILES):
        text = files[path] if path in files else path.read_text(encoding="utf-8")
        classes.update({one.name: one for one in ast.parse(text).body if isinstance(one, ast.ClassDef)})
    parts = [PYTHON_HEAD]
    for name, kind in PYTHON_CLASSES.items():
        parts += _section(kind, name, ast.get_docstring(classes[kind]) or "", _python_methods(classes, kind, name))
    parts += _objects(document, python, typescript, is_python=True)
    found = {"python": "\n\n".join(part.strip("\n") for part in parts) + "\n"}

    paths = [*(package / "js/src/resources").glob("*.ts"), package / "js/src/client.ts"]
    routes = package / "js/src/generated/routes.ts"
    texts = [path.read_text(encoding="utf-8") for path in sorted(paths)] + [files[routes]]
    kinds = {name: one for text in texts for name, one in _typescript_classes(text)}
    parts = [JAVASCRIPT_HEAD]
    for name, kind in TYPESCRIPT_CLASSES.items():
        doc, base, methods = kinds[kind]
        more = kinds[base][2] if base else []
        parts += _section(
            kind, name, doc, [each._replace(signature=f"{name}.{each.signature}") for each in [*methods, *more]]
        )
    parts += _objects(document, python, typescript, is_python=False)
    found["javascript"] = "\n\n".join(part.strip("\n") for part in parts) + "\n"
    return found


def _section(kind: str, name: str, doc: str, methods: Iterable[Method]) -> Iterator[str]:
    yield f"## {name}" if name != "client" else f"## {kind}"
    yield markdown(doc)
    for method in methods:
        yield "### " + re.split("[(<]", method.signature)[0]
        yield f"```text\n{_broken(method.signature)}\n```"
        yield markdown(method.doc)


def _broken(signature: str) -> str:
    """A signature in lines of at most `WIDTH` columns."""
    lines = textwrap.wrap(signature, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


def markdown(doc: str) -> str:
    """A docstring as Markdown: `name: text` becomes an item of a list."""
    parts = []
    for number, block in enumerate(re.split(r"(```[\s\S]*?```)", doc)):
        if number % 2:
            parts.append(_complete(textwrap.dedent(block)))
            continue
        for paragraph in re.split(r"\n\s*\n", block):
            lines = [line for line in paragraph.splitlines() if line.strip()]
            if not lines:
                continue
            items = [] if not re.match(r"^\*{0,2}\w+: ", lines[0]) else _items(lines)
            parts.append("\n".join(items) if items else _wrapped(" ".join(line.strip() for line in lines)))
    return "\n\n".join(parts)


def _complete(block: str) -> str:
    """A block of Python with the imports, the client and the job that it uses."""
    if not block.startswith("```python\n"):
        return block
    code = block.removeprefix("```python\n")
    nodes = list(ast.walk(ast.parse(code.removesuffix("```"))))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    set_here = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    used = names - set_here
    modules = [f"import {name}" for name in sorted(used & {"pathlib"})]
    public = sorted({"Client", *(name for name in used if name in PUBLIC_NAMES)})
    head = [*modules, *([""] if modules else []), f"from stokehold import {', '.join(public)}", "", "client = Client()"]
    head += ['job = client.submit("echo", {})'] if "job" in used else []
    return "\n".join(["```python", *head, code])


def _items(lines: list[str]) -> list[str]:
    found: list[str] = []
    for line in lines:
        named = re.match(r"^(\*{0,2}\w+): (.*)$", line)
        if named:
            found.append(f"- `{named[1]}`: {named[2]}")
        elif found:
            found[-1] += f" {line.strip()}"
    return [_wrapped(item, "  ") for item in found]


def _wrapped(text: str, later: str = "") -> str:
    lines = textwrap.wrap(text, WIDTH, subsequent_indent=later, break_on_hyphens=False, break_long_words=False)
    return "\n".join(lines)


# Python


def _python_methods(classes: Mapping[str, ast.ClassDef], kind: str, name: str) -> Iterator[Method]:
    """The public methods of a class and of its generated base."""
    bases = [one.id for one in classes[kind].bases if isinstance(one, ast.Name) and one.id in classes]
    for one in (classes[kind], *(classes[base] for base in bases)):
        for each in one.body:
            if isinstance(each, ast.FunctionDef) and (not each.name.startswith("_") or each.name == "__init__"):
                marks = [ast.unparse(mark) for mark in each.decorator_list]
                doc = ast.get_docstring(each) or ""
                if each.name == "__init__":
                    if kind == "Client":
                        yield Method(f"Client{_arguments(each)}", "The settings are described above.")
                elif "property" in marks:
                    if doc and kind != "Client":
                        yield Method(f"{name}.{each.name}: {_plain(each.returns)}", doc)
                else:
                    yield Method(f"{name}.{each.name}{_arguments(each)} -> {_plain(each.returns)}", doc)


def _arguments(function: ast.FunctionDef) -> str:
    text = re.sub(r"^self(?:, )?", "", ast.unparse(function.args))
    return f"({_UNPACKED.sub(lambda found: found[1] or '', text)})"


def _plain(annotation: ast.expr | None) -> str:
    return "" if annotation is None else ast.unparse(annotation).replace("builtins.", "")


# TypeScript


def _typescript_classes(text: str) -> Iterator[tuple[str, tuple[str, str, list[Method]]]]:
    """The exported classes of a module: description, generated base, and methods."""
    lines = text.splitlines()
    doc: list[str] = []
    name, base, about, methods = "", "", "", list[Method]()
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.strip().startswith("/**"):
            start = at
            while "*/" not in lines[at]:
                at += 1
            doc = lines[start : at + 1]
        elif found := re.match(r"^export class (\w+)(?: extends (\w+Routes))?", line):
            name, base, about, methods, doc = found[1], found[2] or "", _comment(doc), [], []
        elif line == "}" and name:
            yield name, (about, base, methods)
            name = ""
        elif (
            name
            and doc
            and re.match(r"^  (?:async )?\*?[a-z]\w*[(<]", line)
            and not line.strip().startswith("constructor")
        ):
            start = at
            while not lines[at].endswith("{"):
                at += 1
            signature = " ".join(part.strip() for part in lines[start : at + 1]).removesuffix("{").strip()
            signature = re.sub(r"^(?:async )?\*?", "", signature).replace("( ", "(").replace(", )", ")")
            methods.append(Method(signature, _comment(doc)))
            doc = []
        elif line.strip():
            doc = []
        at += 1


def _comment(lines: list[str]) -> str:
    texts = (re.sub(r"^\s*(?:/\*\*|\*/|\*(?!/))? ?", "", line).replace("*/", "").rstrip() for line in lines)
    return "\n".join(texts).strip("\n")


# Objects


def _objects(document: Document, python: Python, typescript: TypeScript, *, is_python: bool) -> Iterator[str]:
    """A table of the members of each object."""
    yield "## Objects"
    seen = set()
    for shape in shapes.all_shapes():
        name = shape.python.removesuffix("Fields") if is_python else shape.typescript
        if not name or name in seen:
            continue
        seen.add(name)
        found = shape.read(document)
        rows = ["| Member | Type | Meaning |", "|---|---|---|"]
        for one in found.fields:
            if is_python and one.name in shape.python_skip:
                continue
            member = shape.rename.get(one.name, one.name) if is_python else one.name
            kind = _kind(one, python.annotation(one.type) if is_python else typescript.annotation(one.type), is_python)
            rows.append(f"| `{member}` | `{kind}` | {one.doc} |".replace(" |  |", " | |"))
        yield f"### {name}"
        yield _wrapped(found.doc)
        yield "\n".join(rows)


def _kind(one: Field, kind: str, is_python: bool) -> str:
    kind = re.sub(r"^Literal\[(.*)\]$", r"\1", kind)
    none = " or None" if is_python else " or null"
    return f"{kind}{none if one.is_nullable else ''}".replace(" | ", " or ")
