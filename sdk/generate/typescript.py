"""The TypeScript models: a module for each group of shapes, and one for the options."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

from generate import shapes
from generate.python import option_doc
from generate.schema import Document, Field, Type
from generate.shapes import Options, Shape

WIDTH = 120
HEADER = "// Generated from api/openapi.json by `make models`; do not edit."

_PLAIN = {"string": "string", "time": "string", "integer": "number", "number": "number", "boolean": "boolean"}
_EMPTY = {"string": '""', "integer": "0", "number": "0", "boolean": "false", "list": "[]", "map": "{}"}


class TypeScript:
    """Writes modules. Words are defined in the first module that uses them, and imported by the others."""

    def __init__(self, document: Document, parameters: Sequence[Field] = ()) -> None:
        """`parameters` are those of the generated methods, whose words are defined beside the options."""
        self._document = document
        self._parameters = parameters
        self._homes: dict[str, str] = {}
        for module, found in shapes.MODULES.items():
            self._homes.update((shape.typescript, module) for shape in found if shape.typescript)

    def modules(self) -> dict[str, str]:
        """The text of each module, by its name."""
        texts = {}
        for module, found in shapes.MODULES.items():
            ours = {shape.typescript: shape for shape in found if shape.typescript and self._is_first(shape)}
            if ours:
                bodies = [
                    *self._words(module, [one for shape in ours.values() for one in self._fields(shape)]),
                    *map(self._interface, ours.values()),
                ]
                texts[module] = self._module(module, f"The {module} of the API.", bodies)
        options = [one for one in shapes.OPTIONS if one.typescript]
        given = [one for each in options for one in self._option_fields(each)]
        words = self._words("options", [*given, *self._parameters])
        bodies = [*words, *map(self._options, options)]
        texts["options"] = self._module("options", "The options of the calls.", bodies)
        values = [self._empty(shape) for shape in shapes.all_shapes() if shape.typescript and shape.pending]
        values += [self._names(one) for one in options]
        texts["values"] = self._module("values", "A job without values, and the names of options in the API.", values)
        return texts

    def _is_first(self, shape: Shape) -> bool:
        """Whether no shape before has the same interface."""
        return next(one for one in shapes.all_shapes() if one.typescript == shape.typescript) is shape

    def _module(self, module: str, title: str, bodies: Sequence[str]) -> str:
        body = "\n\n".join(bodies)
        imports = self.imports(body, module)
        return "\n".join([HEADER, f"// {title}", "", *imports, *([""] if imports else []), body, ""])

    def imports(self, body: str, module: str = "") -> list[str]:
        """The imports of what a module uses."""
        code = re.sub(r"/\*\*(?:.|\n)*?\*/", "", body)
        homes: dict[str, list[str]] = {}
        for name, home in sorted(self._homes.items()):
            if home != module and re.search(rf"\b{name}\b", code):
                homes.setdefault(home, []).append(name)
        return [f'import type {{ {", ".join(names)} }} from "./{home}.js";' for home, names in sorted(homes.items())]

    def _words(self, module: str, found: Iterable[Field]) -> list[str]:
        """The definitions of the words that this module is the first to use."""
        lines = []
        for one in found:
            for part in one.type.parts():
                if part.kind != "words" or not part.ref or part.ref in shapes.OPEN_WORDS:
                    continue
                name = shapes.word_name(part.ref)
                if name not in self._homes:
                    self._homes[name] = module
                    doc = self._document.doc(part.ref)
                    lines.append(f"{comment(doc)}export type {name} = {_union(part.words)};".strip())
        return lines

    def _fields(self, shape: Shape) -> list[Field]:
        return list(shape.read(self._document).fields)

    # Shapes

    def _interface(self, shape: Shape) -> str:
        lines = []
        for one in self._fields(shape):
            is_absent = not one.is_required and (one.name in shape.leaves_out or "*" in shape.leaves_out)
            doc = one.doc
            if one.name in shape.pending:
                doc = f"{doc} Null until the first `refresh` after `submitMany`."
            found = self.annotation(one.type)
            if (one.is_optional or one.is_nullable) and not is_absent and found != "unknown":
                found = f"{found} | null"
            lines.append(f"{comment(doc)}{one.name}{'?' if is_absent else ''}: {found};")
        doc = self._document.doc(shape.schema)
        return f"{comment(doc)}export interface {shape.typescript} {{\n{indented(lines)}\n}}"

    def annotation(self, type_: Type, *, is_input: bool = False) -> str:
        if type_.kind == "words":
            if type_.ref in shapes.OPEN_WORDS:
                return "string"
            return shapes.word_name(type_.ref) if type_.ref else _union(type_.words)
        if type_.kind == "object":
            shape = shapes.typescript_shape(type_.ref)
            return "Record<string, unknown>" if shape is None else shape.typescript
        if type_.kind == "map":
            return f"Record<string, {self.annotation(type_.item or Type('any'))}>"
        if type_.kind == "list":
            item = self.annotation(type_.item or Type("any"))
            item = f"({item})" if " " in item and "<" not in item else item
            return f"{'readonly ' if is_input else ''}{item}[]"
        return _PLAIN.get(type_.kind, "unknown")

    def _empty(self, shape: Shape) -> str:
        """A function that returns an object without values."""
        lines = []
        for one in self._fields(shape):
            if one.name in shape.leaves_out:
                continue
            value = f'"{shape.defaults[one.name]}"' if one.name in shape.defaults else _EMPTY.get(one.type.kind)
            if one.is_optional or value is None:
                value = "null"
            lines.append(f"{one.name}: {value},")
        keys = ('"id"', '"endpoint"', '"state"')
        lines = [line for line in lines if f'"{line.partition(":")[0]}"' not in keys]
        doc = comment("A job without values, as of a bulk submit.")
        head = f"export function empty{shape.schema}(): Omit<{shape.typescript}, {' | '.join(keys)}> {{"
        return f"{doc}{head}\n  return {{\n{indented(lines, 4)}\n  }};\n}}"

    # Options

    def _option_fields(self, options: Options) -> list[Field]:
        return list(options.read(self._document, *options.typescript_skip).fields)

    def _options(self, options: Options) -> str:
        null = " | null" if options.takes_null else ""
        names = {one.name: camel(one.name) for one in self._document.object(options.schema).fields}
        lines = []
        for one in self._option_fields(options):
            annotation = self.annotation(one.type, is_input=True)
            doc = re.sub(r"`(\w+)`", lambda found: f"`{names.get(found[1], found[1])}`", option_doc(one))
            lines.append(f"{comment(doc)}{camel(one.name)}?: {annotation}{null};")
        return f"{comment(options.doc)}export interface {options.typescript} {{\n{indented(lines)}\n}}"

    def _names(self, options: Options) -> str:
        constant = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", options.typescript).upper()
        lines = [f'{camel(one.name)}: "{one.name}",' for one in self._option_fields(options)]
        return f"export const {constant} = {{\n{indented(lines)}\n}} as const;"


def camel(name: str) -> str:
    """The name of an option in TypeScript: `timeout_s` is `timeoutS`."""
    return re.sub(r"_([a-z0-9])", lambda found: found[1].upper(), name)


def comment(text: str) -> str:
    """A doc comment, or nothing."""
    text = text.replace("*/", "*\\/")
    if not text:
        return ""
    if len(text) + 9 <= WIDTH:
        return f"/** {text} */\n"
    lines = textwrap.wrap(text, WIDTH - 5, break_on_hyphens=False)
    return "/**\n" + "".join(f" * {line}\n" for line in lines) + " */\n"


def _union(words: Iterable[str]) -> str:
    return " | ".join(f'"{word}"' for word in words)


def indented(lines: Iterable[str], width: int = 2) -> str:
    return textwrap.indent("\n".join(lines), " " * width)
