"""The settings of the autoscaler's decisions, from the type that holds them."""

from __future__ import annotations

import re

from source import ROOT
from text import table, wrapped

SOURCE = ROOT / "crates/planner/src/policy.rs"
INTRO = (
    "Limits and weights of decisions, in the table `[policy]` of the file. All have a default. A limit of 0 allows "
    "nothing. `stoke simulate --set NAME=VALUE` tries another value on a trace of jobs."
)
TYPES = {"u32": "integer", "f64": "number", "bool": "true or false", "AtBudget": '`"drain"` or `"stop"`'}


def _source() -> str:
    return SOURCE.read_text(encoding="utf-8")


def fields() -> dict[str, tuple[str, str]]:
    """Each setting with its type in Rust and its description."""
    body = re.search(r"pub struct Policy \{(.*?)\n\}", _source(), re.DOTALL)
    if body is None:
        raise SystemExit(f"{SOURCE} has no struct Policy")
    found, doc = {}, []
    for line in body[1].splitlines():
        line = line.strip()
        if line.startswith("///"):
            doc.append(line[3:].strip())
        elif match := re.match(r"pub (\w+): (.+),", line):
            found[match[1]] = (match[2], " ".join(doc))
            doc = []
    return found


def defaults() -> dict[str, str]:
    body = re.search(r"impl Default for Policy \{.*?Self \{(.*?)\n        \}", _source(), re.DOTALL)
    return dict(re.findall(r"(\w+): (.+),", body[1])) if body else {}


def bounds() -> dict[str, str]:
    """What `Policy::check` accepts."""
    texts = {"shares": "0 to 1", "positive": "above 0", "not_negative": "at least 0"}
    found = {}
    for name, text in texts.items():
        body = re.search(rf"let {name} = \[(.*?)\];", _source(), re.DOTALL)
        found.update(dict.fromkeys(re.findall(r'\("(\w+)"', body[1]), text) if body else {})
    return found


def faults() -> list[str]:
    """Settings whose default or bounds this module does not find."""
    known = fields()
    found = [f"tests/docs/policy.py finds no default of {name}" for name in known if name not in defaults()]
    unbounded = [name for name, (type_, _) in known.items() if type_ in ("f64", "Option<f64>") and name not in bounds()]
    return found + [f"{SOURCE.name}: check() has no bounds for {name}" for name in unbounded]


def _shown(value: str) -> str:
    value = value.replace("_", "")
    if value == "None":
        return "none"
    if value == "Vec::new()":
        return "`[]`"
    if value.startswith("AtBudget::"):
        return f'`"{value.partition("::")[2].lower()}"`'
    return f"`{value}`"


def parts() -> list[str]:
    limits, default = bounds(), defaults()
    rows = []
    for name, (type_, doc) in fields().items():
        inner = re.sub(r"Option<(.*)>", r"\1", type_)
        kind = "list of text" if inner.startswith("Vec") else TYPES[inner]
        bound = limits.get(name) or ("at least 0" if inner == "u32" else "")
        doc = doc.replace("`None`", "Without it")
        rows.append((f"`{name}`", f"{kind}, {bound}" if bound else kind, _shown(default[name]), doc))
    return [wrapped(INTRO), table(("Setting", "Type", "Default", "Meaning"), rows)]
