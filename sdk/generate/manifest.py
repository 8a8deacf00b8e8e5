"""The fields of `stoke.toml`, for the crate that packages folders: those of a deploy and of `@endpoint`."""

from __future__ import annotations

from collections.abc import Iterable

from generate import shapes
from generate.schema import Document, Field, Type, number

HEADER = """// Generated from api/openapi.json by `make models`; do not edit.
//! The fields of `stoke.toml`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::value::{Decimal, PythonVersion, TwoNumbers, Whole};
use super::{Retry, Server, Step, WeightSource};
use crate::kind::Kind;
use crate::requirements::Declared;
"""

# The fields that the crate itself reads, with their types. The others become members of the request as they are.
READ = {
    "name": "String",
    "kind": "Kind",
    "handler": "String",
    "command": "Vec<String>",
    "server": "Server",
    "python": "PythonVersion",
    "requirements": "Declared",
    "input_schema": "PathBuf",
    "output_schema": "PathBuf",
    "weights": "Vec<WeightSource>",
}

# The types of fields whose schema is wider: a version is a string there, and an input is any JSON.
TYPES = {"min_compute_capability": "TwoNumbers", "min_cuda": "TwoNumbers", "warmup": "Vec<Map<String, Value>>"}

# What the crate takes for objects of the API.
OBJECTS = {"RetryPolicy": "Retry", "Step": "Step"}

# Fields whose empty value means that they are not set.
EMPTY = ("env",)

# Fields that the crate reads, and that become members of the request as well.
READ_AND_SENT = ("secrets", "env", "allow_pickle")


def module(document: Document) -> str:
    """The text of the module, not yet formatted."""
    skip = (*READ, *shapes.PACKAGED, "demands", "traffic_percent")
    deployed = document.object("DeployRequest")
    demands = document.object(next(one.type.ref for one in deployed.fields if one.name == "demands")).fields
    options = (*deployed.without(*skip).fields, *demands)
    fields = {**READ, **{one.name: TYPES.get(one.name) or _type(one.type, one) for one in options}}
    names = ", ".join(f'"{one.name}"' for one in demands)
    return "\n".join(
        [
            HEADER,
            "/// Fields that the deploy request groups under `demands`.",
            f"pub(super) const DEMANDS: [&str; {len(demands)}] = [{names}];",
            "",
            "/// The contents of `stoke.toml`. A missing field has the handler's value, or the default.",
            "#[derive(Debug, Default, Deserialize, Serialize)]",
            "#[serde(deny_unknown_fields)]",
            "pub(crate) struct Manifest {",
            *[line for name, type_ in fields.items() for line in _field(name, type_)],
            "}",
            "",
            "impl Manifest {",
            "    /// This manifest with the fields that it lacks from `base`. Variables are merged one by one.",
            "    pub(crate) fn over(self, base: Self) -> Self {",
            "        Self {",
            *[f"            {name}: {_merged(name)}," for name in fields],
            "        }",
            "    }",
            "}",
            *[line for name in _words(options) for line in _enum(document, name)],
            "",
        ]
    )


def _field(name: str, type_: str) -> list[str]:
    """The lines of a field."""
    is_member = name not in READ
    seen = "pub(crate)" if not is_member or name in READ_AND_SENT else "pub(super)"
    if name in EMPTY:
        skip = f'skip_serializing_if = "{type_.partition("<")[0]}::is_empty"' if is_member else "skip_serializing"
        return [f"    #[serde(default, {skip})]", f"    {seen} {name}: {type_},"]
    skip = 'skip_serializing_if = "Option::is_none"' if is_member else "skip_serializing"
    return [f"    #[serde({skip})]", f"    {seen} {name}: Option<{type_}>,"]


def _merged(name: str) -> str:
    if name == "env":
        return "base.env.into_iter().chain(self.env).collect()"
    if name in EMPTY:
        return f"if self.{name}.is_empty() {{ base.{name} }} else {{ self.{name} }}"
    return f"self.{name}.or(base.{name})"


def _type(type_: Type, one: Field) -> str:
    """The Rust type of a value, with the bounds of a number."""
    if type_.kind == "words":
        return type_.ref
    if type_.kind == "list" and type_.item:
        return f"Vec<{_type(type_.item, one)}>"
    if type_.kind == "map" and type_.item:
        return f"BTreeMap<String, {_type(type_.item, one)}>"
    if type_.kind == "object":
        return OBJECTS[type_.ref]
    if type_.kind in ("integer", "number"):
        if one.most is None:
            raise SystemExit(f"api/openapi.json: {one.name} has no maximum, which stoke.toml needs")
        bounded = "Whole" if type_.kind == "integer" else "Decimal"
        return f"{bounded}<{', '.join(number(limit or 0).replace(',', '_') for limit in (one.least, one.most))}>"
    return {"string": "String", "boolean": "bool"}[type_.kind]


def _words(options: Iterable[Field]) -> list[str]:
    """The schemas that list the values of an option."""
    return list(dict.fromkeys(one.type.ref for one in options if one.type.kind == "words"))


def _enum(document: Document, name: str) -> list[str]:
    variants = [
        line
        for word in document.words(name)
        for line in (f'    #[serde(rename = "{word}")]', f"    {word[:1].upper()}{word[1:]},")
    ]
    derive = "#[derive(Debug, Clone, Copy, Deserialize, Serialize)]"
    return ["", derive, f"pub(super) enum {name} {{", *variants, "}"]
