"""The Python models: a module for each group of shapes, and one for the options."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import replace

from generate import shapes
from generate.schema import Document, Field, Object, Type
from generate.shapes import Options, Shape

WIDTH = 120
IMPORTS = """
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

from stokehold._read import decode_time, optional, word"""
TYPING_IMPORTS = """
if TYPE_CHECKING:
    from stokehold._references import Dependency
    from stokehold.runner.policy import JobRetry, Step
    from typing_extensions import Self
"""
HEADER = "# Generated from api/openapi.json by `make models`; do not edit."

_PLAIN = {
    "string": "str",
    "strings": "str | Sequence[str]",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "time": "datetime",
    "any": "Any",
}
_EMPTY = {"string": '""', "integer": "0", "number": "0.0"}
_EMPTY_FIELD = {"list": "()", "map": "field(default_factory=dict)", "boolean": "False"}

# What the SDK takes for objects of the API.
_OBJECTS = {
    "DependencyRequest": "Dependency",
    "Step": "Step | Mapping[str, Any]",
    "RetryPolicy": "JobRetry | Mapping[str, Any]",
}

# The members that tell an object of the API from other JSON: a response without one is an error.
_KEYS = frozenset({"id", "state", "job", "new_id", "secret", "tenant", "attempt", "line"})


class Python:
    """Writes modules. Words are defined in the first module that uses them, and imported by the others."""

    def __init__(self, document: Document, package: str, parameters: Sequence[Field] = ()) -> None:
        """`parameters` are those of the generated methods, whose words are defined beside the options."""
        self._document = document
        self._package = package
        self._parameters = parameters
        self._homes: dict[str, str] = {}
        for module, found in shapes.MODULES.items():
            self._homes.update((shape.python, module) for shape in found if shape.python)

    def modules(self) -> dict[str, str]:
        """The text of each module, by its name."""
        texts = {}
        for module, found in shapes.MODULES.items():
            ours = [shape for shape in found if shape.python]
            words = self._words(module, [one for shape in ours for one in shape.read(self._document).fields])
            texts[module] = self._module(module, [self._shape(shape) for shape in ours], words)
        # After the others, which may define words that it uses.
        bodies = [self._options(one) for one in shapes.OPTIONS if one.python]
        given = [one for options in shapes.OPTIONS if options.python for one in options.read(self._document).fields]
        words = self._words("options", [*given, *self._parameters])
        texts["options"] = self._module("options", bodies, words)
        return texts

    def homes(self) -> dict[str, list[str]]:
        """The names of each module that others may import."""
        homes: dict[str, list[str]] = {}
        for name, home in self._homes.items():
            homes.setdefault(home, []).append(name)
        return homes

    def _words(self, module: str, found: Iterable[Field]) -> str:
        """The definitions of the words that this module is the first to use."""
        lines = []
        for one in found:
            for part in one.type.parts():
                if part.kind != "words" or not part.ref or part.ref in shapes.OPEN_WORDS:
                    continue
                name = shapes.word_name(part.ref)
                if name not in self._homes:
                    self._homes[name] = module
                    doc = docstring(self._document.doc(part.ref), "")
                    lines.append(f"{name} = {_literal(part.words)}\n{doc}\n")
        return "\n".join(lines)

    def _module(self, module: str, bodies: Sequence[str], words: str) -> str:
        """The text of a module. It imports all that a module may need; `ruff` removes what it does not use."""
        title = "The options of the calls." if module == "options" else f"The {module} of the API."
        homes = self.homes()
        homes.pop(module, None)
        imports = [f"from {self._package}.{home} import {', '.join(names)}" for home, names in homes.items()]
        body = "\n".join(one for one in (words, *bodies) if one)
        typing = TYPING_IMPORTS if "Self" in body or "Dependency" in body else ""
        return "\n".join([HEADER, f'"""{title}"""', IMPORTS, *imports, typing, "", body])

    # Types

    def annotation(self, type_: Type, *, many: str = "tuple", is_input: bool = False) -> str:
        """The annotation of a value. `many` is the annotation of a list: list, tuple or Sequence."""
        if type_.kind == "words":
            if type_.ref in shapes.OPEN_WORDS:
                return "str"
            return shapes.word_name(type_.ref) if type_.ref else _literal(type_.words)
        if type_.kind == "object":
            shape = shapes.python_shape(type_.ref)
            if is_input or shape is None:
                return "Mapping[str, Any]"
            return shape.python
        if type_.kind == "map":
            item = self.annotation(type_.item or Type("any"), many=many, is_input=is_input)
            return f"{'Mapping' if many != 'list' else 'dict'}[str, {item}]"
        if type_.kind == "list":
            item = self.annotation(type_.item or Type("any"), many=many, is_input=is_input)
            return f"tuple[{item}, ...]" if many == "tuple" else f"{many}[{item}]"
        return _PLAIN[type_.kind]

    # Shapes

    def _shape(self, shape: Shape) -> str:
        found = shape.read(self._document).without(*shape.python_skip)
        if shape.form == "record":
            return self._record(shape, found)
        if shape.form == "dict":
            # A TypedDict is the JSON itself, in which a time is a text.
            times = {one.name: replace(one, type=Type("string")) for one in found.fields if one.type.kind == "time"}
            lines = [f"{one.name}: {self._optional(times.get(one.name, one), 'list')}" for one in found.fields]
            head = f"class {shape.python}(TypedDict, total=False):"
            return block(head, [docstring(found.doc, members_doc(found.fields)), "", *lines])
        names = {one.name: shape.rename.get(one.name, one.name) for one in found.fields}
        doc = docstring(found.doc, members_doc(found.fields, names))
        lines = [self._member(shape, one, names[one.name]) for one in found.fields]
        if shape.has_raw:
            lines.append("raw: Mapping[str, Any] = field(default_factory=dict, repr=False)")
        reads = [f"    {names[one.name]}={self._read(shape, one, 'raw', 'tuple')}," for one in found.fields]
        reads += ["    raw=raw,"] if shape.has_raw else []
        raw = "raw: Mapping[str, Any] | None" if shape.is_zero else "raw: Mapping[str, Any]"
        decode = ["@classmethod", f"def decode(cls, {raw}) -> Self:"]
        decode += ["    raw = raw or {}"] if shape.is_zero else []
        decode += ["    return cls(", *(f"    {line}" for line in reads), "    )"]
        head = f"class {shape.python}(NamedTuple):" if shape.form == "tuple" else f"class {shape.python}:"
        mark = [] if shape.form == "tuple" else ["@dataclass(frozen=True)"]
        return "\n".join([*mark, block(head, [doc, "", *lines, "", *decode])])

    def _member(self, shape: Shape, one: Field, name: str) -> str:
        default = self._default(shape, one)
        if one.name in shape.secret:
            default = f"field({f'default={default}, ' if default else ''}repr=False)"
        return f"{name}: {self._annotated(shape, one, 'tuple')}{f' = {default}' if default else ''}"

    def _default(self, shape: Shape, one: Field) -> str:
        """The default of a member of a dataclass, as code; an empty text for a member that must be given."""
        if one.name in shape.first or shape.form == "tuple":
            return ""
        if one.name in shape.empty:
            return _EMPTY.get(one.type.kind, _EMPTY["string"])
        if one.is_required:
            return _EMPTY[one.type.kind] if shape.is_zero else ""
        if self._is_zero(one):
            return f"{self.annotation(one.type)}()"
        return "None" if one.is_optional else _EMPTY_FIELD.get(one.type.kind, "None")

    def _annotated(self, shape: Shape, one: Field, many: str) -> str:
        if one.name in shape.empty and one.type.kind == "words":
            return "str"
        if one.name in shape.empty or self._is_zero(one):
            return self.annotation(one.type, many=many)
        return self._optional(one, many)

    def _optional(self, one: Field, many: str) -> str:
        found = self.annotation(one.type, many=many)
        return f"{found} | None" if found != "Any" and (one.is_optional or one.type.kind == "time") else found

    def _is_zero(self, one: Field) -> bool:
        shape = shapes.python_shape(one.type.ref) if one.type.kind == "object" else None
        return shape is not None and shape.is_zero

    def _read(self, shape: Shape, one: Field, raw: str, many: str) -> str:
        """The code that reads a member of decoded JSON."""
        found = f'{raw}.get("{one.name}")'
        if one.type.kind == "time":
            return f"decode_time({found})"
        if one.type.kind == "object":
            item = shapes.python_shape(one.type.ref)
            if item is None or item.form == "dict":
                return found if item is None or one.is_optional else f"{found} or {item.python}()"
            if one.is_optional and not item.is_zero:
                return f"optional({item.python}.decode, {found})"
            return f"{item.python}.decode({found})" if item.is_zero else f"{item.python}.decode({found} or {{}})"
        if one.type.kind == "list":
            item = shapes.python_shape(one.type.item.ref) if one.type.item else None
            each = f"{item.python}.decode(each) for each in {found} or ()" if item else f"{found} or ()"
            return f"{many}({each})" if many == "tuple" or not item else f"[{each}]"
        if one.type.kind == "map":
            return f"dict({found} or {{}})"
        if one.name in shape.defaults:
            return f'{found} or "{shape.defaults[one.name]}"'
        if one.name in shape.empty:
            return f"{found} or {_EMPTY.get(one.type.kind, _EMPTY['string'])}"
        if one.is_optional or one.type.kind == "any":
            return found
        if one.name in _KEYS:
            return f'{raw}["{one.name}"]'
        if one.type.kind == "boolean":
            return f"bool({found})"
        if one.type.kind == "words" and one.type.ref not in shapes.OPEN_WORDS:
            return f'word({raw}, "{one.name}")'
        return f"{found} or {_EMPTY.get(one.type.kind, _EMPTY['string'])}"

    def _record(self, shape: Shape, found: Object) -> str:
        lines: list[str] = []
        for one in found.fields:
            annotation = self._annotated(shape, one, "list")
            code = self._read(shape, one, "self.raw", "list")
            name = shape.rename.get(one.name, one.name)
            doc = self._doc_of(shape, one)
            lines += ["@property", f"def {name}(self) -> {annotation}:", *([f"    {doc}"] if doc else [])]
            bare = annotation in ("str", "int", "float") and not one.is_optional
            if one.type.kind == "words" and not one.is_optional:
                lines += [f"    value: {annotation} = {code}", "    return value", ""]
            else:
                bare = bare or one.name in shape.empty
                lines += [f"    return {annotation}({code})" if bare else f"    return {code}", ""]
        doc = f"{found.doc.rstrip('.')}, with the members of the API. Members are decoded when they are read."
        head = [docstring(doc, ""), "", '__slots__ = ("raw",)', "", "def __init__(self, raw: dict[str, Any]) -> None:"]
        return block(f"class {shape.python}:", [*head, "    self.raw = raw", "", *lines[:-1]])

    def _doc_of(self, shape: Shape, one: Field) -> str:
        doc = one.doc
        if one.name in shape.pending:
            doc = f"{doc} None until the first `refresh` after `submit_many`."
        return docstring(doc, "", indent=8)

    # Options

    def _options(self, options: Options) -> str:
        found = options.read(self._document, *options.python_skip)
        lines = [f"{one.name}: {self.option(one)} | None" for one in found.fields]
        doc = docstring(options.doc, members_doc(found.fields))
        return block(f"class {options.python}(TypedDict, total=False):", [doc, "", *lines])

    def option(self, one: Field) -> str:
        """The annotation of an option, which can be an object of the SDK where the API has JSON."""
        item = one.type.item or one.type
        ours = _OBJECTS.get(item.ref)
        if ours is not None:
            return ours if item is one.type else f"Sequence[{ours}]"
        return self.annotation(one.type, many="Sequence", is_input=True)


def members_doc(fields: Iterable[Field], names: dict[str, str] | None = None, indent: int = 4) -> str:
    """A paragraph that describes each member."""
    lines = []
    for one in fields:
        doc = option_doc(one)
        if doc:
            name = (names or {}).get(one.name, one.name)
            lines += wrap(f"{name}: {python_words(doc)}", indent, "    ")
    return "\n".join(lines)


def option_doc(one: Field) -> str:
    """The description of a member, with its bounds before its default, unless the description has the bounds."""
    bounds = one.bounds()
    if not bounds or _numbers(bounds) <= _numbers(one.doc):
        return one.doc
    head, default, rest = one.doc.partition(" Default")
    return f"{head} {bounds[0].upper()}{bounds[1:]}.{default}{rest}"


def _numbers(text: str) -> set[str]:
    return {number.replace(",", "") for number in re.findall(r"\d+(?:[.,]\d+)*", text)}


def wrap(text: str, indent: int, later: str = "") -> list[str]:
    """The lines of a text that is indented, the later ones even more."""
    return textwrap.wrap(text, WIDTH - indent, subsequent_indent=later, break_on_hyphens=False)


def python_words(doc: str) -> str:
    """A description in the words of Python, without the format of a time, which is decoded."""
    doc = re.sub(r",? RFC 3339(?=[.;,:])", "", doc)
    doc = re.sub(r"\b[nN]ull\b", "None", doc)
    return re.sub(r"\bfalse\b", "False", re.sub(r"\btrue\b", "True", doc))


def docstring(text: str, members: str, indent: int = 4) -> str:
    """A docstring of a sentence or more, and of a paragraph of members."""
    text = python_words(text)
    if not text and not members:
        return ""
    if not members and len(text) + indent + 6 <= WIDTH:
        return f'"""{text}"""'
    first, _, rest = text.partition(". ")
    first = first if first.endswith(".") or not first else f"{first}."
    parts = wrap(first, indent + 3)
    if rest:
        parts += ["", *wrap(rest, indent)]
    if members:
        parts += ["", *members.splitlines()]
    return '"""' + "\n".join(parts) + '\n"""'


def block(head: str, lines: Iterable[str]) -> str:
    """A head and its indented lines, each of which may have several."""
    body = "\n".join(lines)
    return head + "\n" + textwrap.indent(body, "    ")


def _literal(words: Iterable[str]) -> str:
    return f"Literal[{', '.join(chr(34) + word + chr(34) for word in words)}]"
