"""The objects of `api/openapi.json`, as far as the SDKs and the reference pages use them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

_PREFIX = "#/components/schemas/"

# A default in a description, e.g. "Default 600." or "default: the current one."
_VALUE = r"(`[^`]*`(?=[.;:])|(?:[^.;:]|\.(?=\d))+)"
_DEFAULT = re.compile(rf"\b[Dd]efault:? {_VALUE}")
_DEFAULT_SENTENCE = re.compile(rf"(?:^| )Default:? {_VALUE}\.$")


@dataclass(frozen=True)
class Type:
    """The type of a value.

    kind: string, strings (one or a list), time, integer, number, boolean, any, words (one of `words`), list or map
        (of `item`), or object.
    ref: the name of the schema of an object, or of words that have a name.
    """

    kind: str
    ref: str = ""
    words: tuple[str, ...] = ()
    item: Type | None = None

    def parts(self) -> Iterator[Type]:
        """This type and those of its items."""
        yield self
        if self.item is not None:
            yield from self.item.parts()


@dataclass(frozen=True)
class Field:
    """A member of an object. `most` limits a number, or the items of a list; `above` excludes itself."""

    name: str
    type: Type
    doc: str
    is_required: bool
    is_nullable: bool
    least: float | None = None
    most: float | None = None
    above: float | None = None
    length: tuple[int, int] | None = None
    default: Any = None

    @property
    def is_optional(self) -> bool:
        """Whether the member can be absent or null and its type has no empty value."""
        if self.type.kind in ("list", "map"):
            return False
        return self.is_nullable or not (self.is_required or self.type.kind == "boolean")

    def bounds(self) -> str:
        """The allowed values, e.g. "1 to 100", or an empty text."""
        if self.type.kind == "list":
            return "" if self.most is None else f"at most {number(self.most)}"
        if self.length is not None:
            return f"{number(self.length[0])} to {number(self.length[1])} characters"
        if self.above is not None:
            return f"above {number(self.above)}" + ("" if self.most is None else f", at most {number(self.most)}")
        if self.most is not None:
            return f"{number(self.least or 0)} to {number(self.most)}"
        return f"at least {number(self.least)}" if self.least else ""

    def default_text(self) -> str:
        """The default as the schema or the description gives it, or an empty text."""
        if isinstance(self.default, bool):
            return f"`{str(self.default).lower()}`"
        if isinstance(self.default, (int, float)):
            return number(self.default)
        found = _DEFAULT.search(self.doc)
        return "" if found is None else found[1].strip()

    def meaning(self) -> str:
        """The description, without a last sentence that gives the default only."""
        return _DEFAULT_SENTENCE.sub("", self.doc) if self.default_text() else self.doc


@dataclass(frozen=True)
class Object:
    """A schema with members. Required members come first, in the order of the code of the API."""

    name: str
    doc: str
    fields: tuple[Field, ...]

    def without(self, *names: str) -> Object:
        return replace(self, fields=tuple(field for field in self.fields if field.name not in names))


class Document:
    """The schemas of an OpenAPI document."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._schemas: Mapping[str, Any] = raw["components"]["schemas"]

    def words(self, name: str) -> tuple[str, ...]:
        """The values of a schema that lists them; empty for another schema."""
        return tuple(self._schemas[name].get("enum", ()))

    def has_members(self, name: str) -> bool:
        """Whether a schema is an object with members."""
        return "properties" in self._schemas[name] or any(
            "properties" in one for one in self._schemas[name].get("oneOf", ())
        )

    def doc(self, name: str) -> str:
        return _plain(self._schemas[name].get("description", ""))

    def object(self, name: str) -> Object:
        """Reads a schema. Of alternatives, all members are read: a member is required if each alternative does."""
        raw = self._schemas[name]
        kinds = raw.get("oneOf") or [raw]
        properties: dict[str, Any] = {}
        for kind in kinds:
            for member, schema in kind["properties"].items():
                known = properties.setdefault(member, schema)
                if "enum" in schema and known is not schema:
                    properties[member] = {**known, "enum": [*known["enum"], *schema["enum"]]}
        required = [member for member in kinds[0].get("required", ()) if all(member in k["required"] for k in kinds)]
        order = [*required, *(member for member in properties if member not in required)]
        fields = tuple(self.field(member, properties[member], member in required) for member in order)
        return Object(name, _plain(raw.get("description", "")), fields)

    def field(self, name: str, raw: Mapping[str, Any], is_required: bool) -> Field:
        """Reads a member of a schema, or a parameter."""
        choices = [choice for choice in raw.get("oneOf", [raw]) if choice.get("type") != "null"]
        doc = _plain(raw.get("description") or choices[0].get("description", ""))
        if not doc and "$ref" in choices[0]:
            doc = self.doc(choices[0]["$ref"][len(_PREFIX) :])
        types = raw.get("type", "")
        is_nullable = len(choices) < len(raw.get("oneOf", [raw])) or "null" in types
        lengths = (raw.get("minLength"), raw.get("maxLength"))
        return Field(
            name,
            self._type({**raw, "description": doc} if "oneOf" not in raw else choices[0]),
            doc,
            is_required,
            is_nullable,
            least=raw.get("minimum"),
            most=raw.get("maximum", raw.get("maxItems")),
            above=raw.get("exclusiveMinimum"),
            length=None if lengths[1] is None else (lengths[0] or 0, lengths[1]),
            default=raw.get("default"),
        )

    def _type(self, raw: Mapping[str, Any]) -> Type:
        if "$ref" in raw:
            name = raw["$ref"][len(_PREFIX) :]
            words = self.words(name)
            return Type("words", name, words) if words else Type("object", name)
        if "enum" in raw:
            return Type("words", words=tuple(raw["enum"]))
        types = raw.get("type", "any")
        kind = types if isinstance(types, str) else next(one for one in types if one != "null")
        if kind == "array":
            return Type("list", item=self._type(raw["items"]))
        if kind == "object":
            values = raw.get("additionalProperties")
            return Type("map", item=self._type(values) if values else Type("any"))
        if kind == "string" and (raw.get("format") == "date-time" or "RFC 3339" in raw.get("description", "")):
            return Type("time")
        return Type(kind)


def number(value: float | None) -> str:
    """A number for people to read: 604,800 or 0.5."""
    return f"{value:,.0f}" if value is not None and value == int(value) else f"{value:,}"


def _plain(text: str) -> str:
    return " ".join(text.split())
