"""The operations of `api/openapi.json`, as far as the SDKs' resources need them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from generate.schema import Document, Field

_PREFIX = "#/components/schemas/"
_METHODS = ("get", "post", "put", "delete")


@dataclass(frozen=True)
class Operation:
    """A request that the API answers.

    path_fields, query, body: its parameters.
    response: the schema of its answer; empty if it has none.
    is_paged: whether the answer is a page of a longer list.
    """

    name: str
    method: str
    path: str
    path_fields: tuple[Field, ...]
    query: tuple[Field, ...]
    body: tuple[Field, ...]
    has_body: bool
    response: str
    is_paged: bool


def read(document: Document, raw: Mapping[str, Any]) -> dict[str, Operation]:
    """Every operation, by its id, and by its method and path."""
    found = {}
    for path, methods in raw["paths"].items():
        for method, each in methods.items():
            if method in _METHODS:
                operation = _operation(document, path, method, each)
                found[operation.name] = found[f"{method.upper()} {path}"] = operation
    return found


def _operation(document: Document, path: str, method: str, raw: Mapping[str, Any]) -> Operation:
    body = _schema(raw.get("requestBody", {}))
    response = next((_schema(one) for status, one in raw["responses"].items() if status.startswith("2")), "")
    paged = bool(response) and any(one.name == "next_cursor" for one in _fields(document, response))
    return Operation(
        name=raw["operationId"],
        method=method,
        path=path,
        path_fields=_parameters(document, raw, "path"),
        query=_parameters(document, raw, "query"),
        body=_fields(document, body) if body else (),
        has_body="requestBody" in raw,
        response=response,
        is_paged=paged,
    )


def _parameters(document: Document, raw: Mapping[str, Any], place: str) -> tuple[Field, ...]:
    found = [one for one in raw.get("parameters", ()) if one["in"] == place]
    return tuple(
        document.field(one["name"], {**one["schema"], "description": one.get("description", "")}, one["required"])
        for one in found
    )


def _schema(raw: Mapping[str, Any]) -> str:
    schema: str = raw.get("content", {}).get("application/json", {}).get("schema", {}).get("$ref", "")
    return schema[len(_PREFIX) :]


def _fields(document: Document, schema: str) -> tuple[Field, ...]:
    return document.object(schema).fields if document.has_members(schema) else ()


def answer(document: Document, operation: Operation, member: str) -> Field:
    """A member of the answer. "*": its only list."""
    fields = document.object(operation.response).fields
    return next(one for one in fields if one.name == member or (member == "*" and one.type.kind == "list"))
