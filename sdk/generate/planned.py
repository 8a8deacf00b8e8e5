"""The operations that delete, as the API has them from this release on.

They are added to a document that lacks the schema `Deletion`. With one that has it, this module changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PREFIX = "#/components/schemas/"
_QUERY = (
    ("dry_run", "Delete nothing, and return what depends on it. Default: false."),
    ("force", "Delete it even if something depends on it. Default: false."),
)


def complete(raw: dict[str, Any]) -> dict[str, Any]:
    """The document with these operations."""
    if "Deletion" in raw["components"]["schemas"]:
        return raw
    schemas = {**raw["components"]["schemas"], **_schemas()}
    paths = dict(raw["paths"])
    for path, operation, what in (
        ("/v1/endpoints/{name}", "delete_endpoint", "The endpoint's name."),
        ("/v1/endpoints/{name}/versions/{version}", "delete_endpoint_version", "The endpoint's name."),
        ("/v1/files/{id}", "delete_file", "The file's id."),
        ("/v1/requirement-sets/{id}", "delete_requirement_set", "The id of the requirements."),
    ):
        paths[path] = {**paths.get(path, {}), "delete": _deletion(path, operation, what)}
    answer = {"content": {"application/json": {"schema": {"$ref": f"{_PREFIX}RequirementSetList"}}}}
    paths["/v1/requirement-sets"] = {"get": {"operationId": "list_requirement_sets", "responses": {"200": answer}}}
    return {**raw, "paths": paths, "components": {**raw["components"], "schemas": schemas}}


def _deletion(path: str, operation: str, what: str) -> dict[str, Any]:
    named: list[Mapping[str, Any]] = []
    for name in ("name", "version", "id"):
        if f"{{{name}}}" in path:
            is_number = name == "version" or (name == "id" and "requirement" in path)
            kind = "integer" if is_number else "string"
            doc = "The version." if name == "version" else what
            named.append({"name": name, "in": "path", "required": True, "schema": {"type": kind}, "description": doc})
    for name, doc in _QUERY:
        one = {"name": name, "in": "query", "required": False, "schema": {"type": "boolean"}, "description": doc}
        named.append(one)
    answer = {"content": {"application/json": {"schema": {"$ref": f"{_PREFIX}Deletion"}}}}
    return {"operationId": operation, "parameters": named, "responses": {"200": answer}}


def _schemas() -> dict[str, Any]:
    number = {"type": "integer", "minimum": 0}
    return {
        "Deletion": _object(
            "What was deleted, or would be.",
            deleted={"type": "boolean", "description": "Whether it was deleted; false for a dry run."},
            dependents=_list("Dependent", "What depends on it."),
            freed_bytes={**number, "description": "The bytes that are freed in the object store."},
        ),
        "Dependent": _object(
            "Things of one kind that depend on what is deleted.",
            kind={"type": "string", "description": "The kind, e.g. `jobs` or `schedules`."},
            count={**number, "description": "How many there are."},
            examples={"type": "array", "items": {"type": "string"}, "description": "The ids or names of some."},
        ),
        "RequirementSet": _object(
            "Requirements for workers that endpoints share.",
            id={**number, "description": "The id."},
            requirements={"$ref": f"{_PREFIX}Requirements", "description": "The requirements."},
        ),
        "RequirementSetList": _object("Every set.", requirement_sets=_list("RequirementSet", "The sets.")),
    }


def _list(schema: str, doc: str) -> dict[str, Any]:
    return {"type": "array", "items": {"$ref": f"{_PREFIX}{schema}"}, "description": doc}


def _object(doc: str, **members: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "description": doc, "required": list(members), "properties": members}
