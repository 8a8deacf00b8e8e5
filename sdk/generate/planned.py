"""The operations that delete, as the API has them from this release on.

They are added to a document that lacks the schema `Deletion`. With one that has it, this module changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PREFIX = "#/components/schemas/"
_KINDS = ("job", "step", "schedule", "batch", "endpoint", "version", "traffic", "rollback")
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
        ("/v1/requirement-sets/{id}", "delete_requirement_set", "The set's id."),
    ):
        paths[path] = {**paths.get(path, {}), "delete": _deletion(path, operation, what)}
    answer = {"content": {"application/json": {"schema": {"$ref": f"{_PREFIX}RequirementSetList"}}}}
    paths["/v1/requirement-sets"] = {"get": {"operationId": "list_requirement_sets", "responses": {"200": answer}}}
    return {**raw, "paths": paths, "components": {**raw["components"], "schemas": schemas}}


def _deletion(path: str, operation: str, what: str) -> dict[str, Any]:
    named: list[Mapping[str, Any]] = []
    for name in ("name", "version", "id"):
        if f"{{{name}}}" in path:
            kind = "integer" if name == "version" else "string"
            doc = "The version's number." if name == "version" else what
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
            "The outcome of a deletion.",
            deleted={"type": "boolean", "description": "Whether it was deleted; false after a dry run."},
            dependents=_list("Dependent", "What depended on it."),
            freed_bytes={
                **number,
                "description": "The size of the stored files that were deleted with it, or that would be.",
            },
        ),
        "Dependent": _object(
            "What depends on a resource, of one kind.",
            kind={"$ref": f"{_PREFIX}DependentKind", "description": "The kind."},
            count={**number, "description": "How many there are."},
            examples={
                "type": "array",
                "items": {"type": "string"},
                "description": "Up to five of them: ids, or names.",
            },
        ),
        "RequirementSet": _object(
            "A requirement set: all that endpoints require of workers besides memory.",
            id={"type": "string", "description": "The id. It follows from the requirements."},
            demands={"$ref": f"{_PREFIX}Requirements"},
            versions={"type": "array", "items": {"type": "string"}, "description": "The versions, as `name@version`."},
        ),
        "DependentKind": {"type": "string", "description": "A kind of dependents.", "enum": list(_KINDS)},
        "RequirementSetList": _object("Every set.", requirement_sets=_list("RequirementSet", "The sets.")),
    }


def _list(schema: str, doc: str) -> dict[str, Any]:
    return {"type": "array", "items": {"$ref": f"{_PREFIX}{schema}"}, "description": doc}


def _object(doc: str, **members: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "description": doc, "required": list(members), "properties": members}
