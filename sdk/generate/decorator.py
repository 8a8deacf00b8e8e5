"""The options of `@endpoint`, with their defaults and bounds, for the runner."""

from __future__ import annotations

from collections.abc import Sequence

from generate import shapes
from generate.python import HEADER, Python, block, docstring, members_doc
from generate.schema import Document, Field, Type

IMPORTS = '''
"""The options of `@endpoint`, of its steps and of its retries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

from stokehold.runner.bounds import Bounds

if TYPE_CHECKING:
    from stokehold.runner.policy import JobRetry, Step
'''

NAME = Field("name", Type("string"), "The name of the endpoint.", is_required=False, is_nullable=True)

# What the decorator takes for objects of the API.
OBJECTS = {"Step": "Step", "RetryPolicy": "JobRetry"}

# The members that come first, in the order of positional arguments.
STEP_ORDER = ("endpoint", "name", "version", "thresholds", "timeout_s")
RETRY_ORDER = ("backoff_s", "backoff_max_s", "jitter", "on")


def module(document: Document, python: Python) -> str:
    """The text of the module."""
    options = (NAME, *shapes.decorator_fields(document))
    steps = _ordered(document.object("Step").fields, STEP_ORDER)
    retries = _ordered(document.object("RetryPolicy").fields, RETRY_ORDER)
    demands = ", ".join(f'"{one.name}"' for one in document.object("Requirements").fields)
    typed = [f"{one.name}: {_annotation(one, python)}" for one in options]
    doc = docstring("The options of `@endpoint`.", members_doc(options))
    return "\n".join(
        [
            HEADER + IMPORTS,
            f"# The options that are requirements for workers.\nDEMANDS = frozenset({{{demands}}})\n",
            _bounds("ENDPOINT_BOUNDS", options),
            _bounds("STEP_BOUNDS", steps),
            _bounds("RETRY_BOUNDS", retries),
            block("class EndpointOptions(TypedDict, total=False):", [doc, "", *typed]),
            _dataclass(
                "OptionsFields", "The options of an endpoint, with their defaults.", options, python, docs=False
            ),
            _dataclass("StepFields", document.doc("Step"), steps, python),
            _dataclass("RetryFields", document.doc("RetryPolicy"), retries, python),
        ]
    )


def _ordered(fields: Sequence[Field], first: Sequence[str]) -> list[Field]:
    return sorted(fields, key=lambda one: first.index(one.name) if one.name in first else len(first))


def _annotation(one: Field, python: Python) -> str:
    item = one.type.item or one.type
    if item.ref in OBJECTS:
        found = OBJECTS[item.ref]
        found = f"Sequence[{found}]" if item is not one.type else found
    elif one.type.kind == "words":
        found = "str"
    else:
        found = python.annotation(one.type, many="Sequence", is_input=True)
    return f"{found} | None" if not one.is_required and _default(one) == "None" else found


def _default(one: Field) -> str:
    """The default as code. A default that is prose is left to the API."""
    if one.default is not None and one.default != []:
        return repr(one.default)
    if one.type.kind in ("integer", "number") and one.name in shapes.NUMBERED_DEFAULTS:
        return one.default_text()
    if one.is_nullable or one.type.kind not in ("list", "map"):
        return "None"
    return "()" if one.type.kind == "list" else "field(default_factory=dict)"


def _bounds(name: str, fields: Sequence[Field]) -> str:
    found = []
    for one in fields:
        if one.type.kind == "words":
            found.append(f'"{one.name}": Bounds("words", words={one.type.words}),')
        elif one.most is not None or one.above is not None:
            limits = {"least": one.least, "most": one.most, "above": one.above}
            given = "".join(f", {limit}={value}" for limit, value in limits.items() if value is not None)
            found.append(f'"{one.name}": Bounds("{one.type.kind}"{given}),')
    return block(f"{name}: Mapping[str, Bounds] = {{", found) + "\n}\n"


def _dataclass(name: str, doc: str, fields: Sequence[Field], python: Python, *, docs: bool = True) -> str:
    lines = []
    for one in fields:
        default = "" if one.is_required else f" = {_default(one)}"
        lines.append(f"{one.name}: {_annotation(one, python)}{default}")
    text = docstring(doc, members_doc(fields) if docs else "")
    return "@dataclass(frozen=True)\n" + block(f"class {name}:", [text, "", *lines])
