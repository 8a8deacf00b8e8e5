"""The fields of structs of Rust, with their types, descriptions and defaults."""

from __future__ import annotations

import re
from dataclasses import dataclass

from source import ROOT

# The types of settings as an operator reads them.
TYPES = {
    "String": "text",
    "PathBuf": "path",
    "Secret": "text",
    "bool": "true or false",
    "f64": "number",
    "Mode": '`"jobs"` or `"deployment"`',
    "Trust": '`"owned"`, `"datacenter"` or `"community"`',
    "Version": "number",
    "SandboxLevel": '`"L0"`, `"L1"` or `"L2"`',
    "BTreeMap<String, String>": "table of text",
    "Vec<String>": "list of text",
    "Vec<Toleration>": "tables with `key`, `value`, `effect`",
}

# The defaults of types.
DEFAULTS = {
    "text": '`""`',
    "path": '`""`',
    "number": "`0.0`",
    "integer": "`0`",
    "true or false": "`false`",
    "list of text": "`[]`",
}

# Where the enums are, whose default is a variant.
ENUMS = {
    "Mode": "autoscaler/src/providers/kubernetes/settings.rs",
    "Trust": "crates/protocol/src/requirements.rs",
    "SandboxLevel": "crates/protocol/src/requirements.rs",
}

# Functions that give a default by name.
NAMED = {"cpu": '`"CPU"`'}


@dataclass(frozen=True)
class Member:
    name: str
    type: str
    default: str
    doc: str


def members(path: str, name: str) -> list[Member]:
    """The fields of a struct, without those that are flattened."""
    text = (ROOT / path).read_text(encoding="utf-8")
    found = re.search(rf"((?:#\[[^\n]*\]\n)*)pub struct {name} \{{(.*?)\n\}}", text, re.DOTALL)
    if found is None:
        raise SystemExit(f"{path} has no struct {name}")
    is_default = "#[serde(default" in found[1]
    listed, doc, attributes = [], [], ""
    for line in found[2].splitlines():
        line = line.strip()
        if line.startswith("///"):
            doc.append(line[3:].strip())
        elif line.startswith("#["):
            attributes += line
        elif match := re.match(r"pub (\w+): (.+),", line):
            if "flatten" not in attributes:
                default = _default(text, match[2], attributes, is_default)
                listed.append(Member(match[1], _shown(match[2]), default, " ".join(doc)))
            doc, attributes = [], ""
    return listed


def _inner(type_: str) -> str:
    return re.sub(r"^Option<(.*)>$", r"\1", type_)


def _shown(type_: str) -> str:
    inner = _inner(type_)
    return TYPES.get(inner) or ("integer" if re.match(r"[ui]\d+$", inner) else inner)


def _default(text: str, type_: str, attributes: str, is_default: bool) -> str:
    """The default of a field of the source `text`."""
    if match := re.search(r'default = "(\w+)"', attributes):
        body = re.search(rf"fn {match[1]}\(\) -> \w+ \{{\s*([\d.]+)\s*\}}", text)
        return f"`{body[1]}`" if body else NAMED[match[1]]
    if type_.startswith("Option<"):
        return "none"
    if not is_default and "default" not in attributes:
        return "required"
    if type_ in ENUMS:
        source = (ROOT / ENUMS[type_]).read_text(encoding="utf-8")
        variant = re.search(rf"pub enum {type_} \{{.*?#\[default\]\s*(\w+)", source, re.DOTALL)
        return f'`"{variant[1] if variant[1][-1].isdigit() else variant[1].lower()}"`' if variant else "none"
    return DEFAULTS.get(_shown(type_), "none")
