"""docs/reference/http/: every operation and every object of the API, from api/openapi.json."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from generate.schema import Document, Field, Type
from source import ROOT
from text import cell, header, page, table, wrapped

METHODS = ("get", "post", "put", "patch", "delete")
PREFIX = "#/components/schemas/"
HEADER = header("api/openapi.json")

# A description of this many operations is not repeated for each.
MANY = 10

ERRORS = "error codes](../errors.md)."

# Objects that have a page of their own.
HOMES = {
    **dict.fromkeys(
        ("Job", "Attempt", "Timing", "JobError", "Progress", "Waiting", "JobCost", "TokenUsage", "StepRun"), "job"
    ),
    "Dependency": "job",
    "SubmitRequest": "submit-options",
    **dict.fromkeys(("DeployRequest", "Requirements", "Step", "RetryPolicy", "Weight", "Runner"), "endpoint-options"),
    **dict.fromkeys(("BatchRequest", "Batch", "BatchCounts", "Estimate", "BatchLineError"), "batch"),
    **dict.fromkeys(("ScheduleRequest", "Schedule"), "schedule"),
}


def usual(raw: Mapping[str, Any]) -> dict[str, str | None]:
    """The description that most operations have for each status of an error, if it is one of many."""
    texts: dict[str, Counter[str]] = {}
    for operations in raw["paths"].values():
        for operation in operations.values():
            for status, answer in operation.get("responses", {}).items():
                texts.setdefault(status, Counter())[answer.get("description", "")] += 1
    found: dict[str, str | None] = {}
    for status, counts in texts.items():
        text, count = counts.most_common(1)[0]
        found[status] = text if status >= "400" and count > MANY else None
    return found


class Pages:
    def __init__(self) -> None:
        self.raw: Mapping[str, Any] = json.loads((ROOT / "api/openapi.json").read_text(encoding="utf-8"))
        self.document = Document(self.raw)
        self.schemas: Mapping[str, Any] = self.raw["components"]["schemas"]
        self.usual = usual(self.raw)

    def link(self, name: str) -> str:
        if name in HOMES:
            return f"[{name}](../{HOMES[name]}.md#{name.lower()})"
        return f"[{name}](objects.md#{name.lower()})"

    def shown(self, schema: Mapping[str, Any]) -> str:
        """A schema as a type to read."""
        if "$ref" in schema:
            return self.link(schema["$ref"][len(PREFIX) :])
        for choice in ("oneOf", "anyOf", "allOf"):
            if choice in schema:
                return " or ".join(self.shown(one) for one in schema[choice] if one.get("type") != "null")
        if "enum" in schema:
            return ", ".join(f"`{word}`" for word in schema["enum"])
        types = schema.get("type", "any JSON")
        kind = types if isinstance(types, str) else " or ".join(one for one in types if one != "null")
        if kind == "array":
            return f"list: {self.shown(schema.get('items', {}))}"
        return kind

    def operation(self, method: str, path: str, operation: Mapping[str, Any]) -> str:
        parts = [f"## {operation.get('summary', operation['operationId'])}", f"`{method.upper()} {path}`"]
        if text := operation.get("description"):
            parts += [wrapped(one) for one in text.split("\n\n")]
        if scopes := sorted(
            {scope for one in operation.get("security", []) for names in one.values() for scope in names}
        ):
            parts.append(wrapped("Scope: " + ", ".join(f"`{scope}`" for scope in scopes) + "."))
        rows = []
        for one in operation.get("parameters", []):
            schema = one.get("schema", {})
            needs = "required" if one.get("required") else (f"`{schema['default']}`" if "default" in schema else "")
            rows.append((f"`{one['name']}`", one["in"], self.shown(schema), needs, one.get("description", "")))
        if rows:
            parts.append(table(("Parameter", "In", "Type", "Default", "Meaning"), rows))
        if body := operation.get("requestBody"):
            kinds = [f"{self.shown(one.get('schema', {}))} as `{kind}`" for kind, one in body["content"].items()]
            text = " ".join(body.get("description", "").split())
            parts.append(wrapped(f"**Body**: {', or '.join(kinds)}. {text}"))
        rows, common = [], []
        for status, answer in operation["responses"].items():
            if answer.get("description") == self.usual[status]:
                common.append(status)
                continue
            contents = answer.get("content", {})
            kinds = {self.shown(one["schema"]) for one in contents.values() if "schema" in one}
            rows.append((status, ", ".join(sorted(kinds)), answer.get("description", "")))
        parts.append(table(("Status", "Body", "Meaning"), rows))
        if common:
            parts.append(wrapped(f"Errors that many operations have: {', '.join(common)}. See [{ERRORS}"))
        return "\n\n".join(parts)

    def by_tag(self) -> dict[str, list[tuple[str, str, Mapping[str, Any]]]]:
        found: dict[str, list[tuple[str, str, Mapping[str, Any]]]] = {one["name"]: [] for one in self.raw["tags"]}
        for path, operations in self.raw["paths"].items():
            for method in METHODS:
                if method in operations:
                    found[operations[method]["tags"][0]].append((method, path, operations[method]))
        return found

    def index(self) -> str:
        parts = [
            "# HTTP API",
            HEADER,
            wrapped(
                "For developers who call the API without an SDK: every operation. The API uses JSON over HTTP/1.1 or "
                "HTTP/2, with `Authorization: Bearer TOKEN`. Unknown members of a request are rejected. Times are RFC "
                "3339 in UTC. Names of durations, sizes and money contain their unit. [Rules of the "
                "API](../api-rules.md) describes what applies to every operation, and [error codes](../errors.md) "
                "every error. `/openapi.json` of a running API is the same description for programs."
            ),
        ]
        for tag in self.raw["tags"]:
            name = tag["name"]
            rows = [
                (f"`{method.upper()} {path}`", f"[{one['summary']}]({name}.md#{anchor(one['summary'])})")
                for method, path, one in self.by_tag()[name]
            ]
            parts += [f"## {name.capitalize()}", wrapped(tag["description"]), table(("Operation", ""), rows)]
        return page(*parts)

    def field(self, one: Field) -> tuple[str, str, str, str]:
        kind = self.type(one.type) + (" or null" if one.is_nullable else "")
        return (f"`{one.name}`", kind, one.bounds(), one.doc)

    def type(self, type_: Type) -> str:
        if type_.kind == "words":
            return self.link(type_.ref) if type_.ref else ", ".join(f"`{word}`" for word in type_.words)
        if type_.kind == "object":
            return self.link(type_.ref)
        if type_.kind in ("list", "map") and type_.item is not None:
            return f"{'list' if type_.kind == 'list' else 'object of values'}: {self.type(type_.item)}"
        return {"any": "any JSON"}.get(type_.kind, type_.kind)

    def objects(self) -> str:
        parts = [
            "# Objects of the API",
            HEADER,
            wrapped(
                "For developers who call the API without an SDK: the objects that have no page of their own, by name."
            ),
        ]
        for name in sorted(self.schemas):
            if name in HOMES:
                continue
            schema = self.schemas[name]
            parts += [f"## {name}", wrapped(" ".join(schema.get("description", "").split()))]
            if words := self.document.words(name):
                parts.append(wrapped("One of " + ", ".join(f"`{word}`" for word in words) + "."))
            elif "properties" in schema or all("properties" in one for one in schema.get("oneOf", [{}])):
                rows = [self.field(one) for one in self.document.object(name).fields]
                if rows:
                    parts.append(table(("Member", "Type", "Bounds", "Meaning"), rows))
            else:
                parts.append(wrapped(f"A value of the type {self.shown(schema)}."))
        return page(*parts)

    def pages(self) -> dict[str, str]:
        found = {"http/index.md": self.index(), "http/objects.md": self.objects()}
        for tag in self.raw["tags"]:
            operations = [self.operation(*one) for one in self.by_tag()[tag["name"]]]
            title = f"# HTTP API: {tag['name']}"
            found[f"http/{tag['name']}.md"] = page(title, HEADER, wrapped(tag["description"]), *operations)
        return found


def anchor(heading: str) -> str:
    from links import slug

    return slug(cell(heading))


def pages() -> dict[str, str]:
    return Pages().pages()
