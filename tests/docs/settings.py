"""docs/reference/settings.md: every setting of the programs, and every environment variable that they read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import policy
import structs
from source import read, tracked, without_tests
from text import header, page, table, wrapped
from variables import INTERNAL, OTHER, SECTIONS

# The programs with a file of defaults: title, folder, introduction.
PROGRAMS = (
    (
        "API",
        "api",
        "`stoke api` reads a TOML file (`--config`) and then the environment, which overrides it. Its defaults are "
        "those of [config.default.toml](../../api/src/config.default.toml). An unknown key is refused.",
    ),
    (
        "Worker",
        "worker",
        "`stoke worker run` reads only the environment; its options override it. `stoke worker check` prints what it "
        "would use.",
    ),
    (
        "Autoscaler",
        "autoscaler",
        "`stoke autoscaler run` reads a TOML file (`--config`) and then the environment, which overrides it. "
        "`stoke autoscaler run --print-config` prints the defaults. An unknown key is refused.",
    ),
)

# The structs that describe the settings of a table of the autoscaler where its file of defaults does not.
PROVIDERS = "autoscaler/src/providers"
STRUCTS = {
    "vast": (f"{PROVIDERS}/vast/settings.rs", "VastSettings"),
    "kubernetes": (f"{PROVIDERS}/kubernetes/settings.rs", "KubernetesSettings"),
    "local": ("autoscaler/src/config.rs", "LocalSettings"),
    "static": ("autoscaler/src/config.rs", "StaticSettings"),
}

# The entries of lists of tables.
ENTRIES = {
    "static.hosts": ("Each `[[static.hosts]]` is a host of your own.", (f"{PROVIDERS}/owned.rs", "Host")),
    "kubernetes.pools": (
        "Each `[[kubernetes.pools]]` is a pool of identical machines.",
        (f"{PROVIDERS}/kubernetes/settings.rs", "Pool"),
        (f"{PROVIDERS}/kubernetes/settings.rs", "PodSettings"),
    ),
}

NAME = re.compile(r"\bSTOKE_[A-Z0-9_]*[A-Z0-9]\b")

# How programs read variables of other names.
READS = (
    re.compile(r"""\benv = "([A-Z][A-Z0-9_]+)\""""),
    re.compile(r"""\bvar(?:_os)?\(\s*"([A-Z][A-Z0-9_]+)"\)"""),
    re.compile(r"""\benv\("([A-Z][A-Z0-9_]+)"\)"""),
    re.compile(r"""\bfrom_env\("([A-Z][A-Z0-9_]+)"\)"""),
    re.compile(r"""\benviron(?:\.get\(|\.pop\(|\[)\s*"([A-Z][A-Z0-9_]+)\""""),
    re.compile(r"""\bprocess\.env\.([A-Z][A-Z0-9_]+)"""),
    re.compile(r"""^\s*\("([A-Z][A-Z0-9_]+)", "[a-z_.0-9]+"\),$""", re.MULTILINE),
    re.compile(r"""\bpub(?:\(crate\))? const ([A-Z_]+): &str = "\1";"""),
)

# Files that are not installed.
UNSHIPPED = re.compile(
    r"^(tests|lab|fuzz|docs|\.ci)/|/tests/|/tests\.rs$|/benches/|/build\.rs$|^sdk/examples/|^crates/queue-model/"
    r"|^api/dashboard/(tests|playwright|vite)|^cli/src/(catalogue\.rs|documented)|/packing\.rs$"
)


@dataclass(frozen=True)
class Setting:
    """A setting of a file of defaults, with the variables that set it."""

    key: str
    default: str
    doc: str
    variables: tuple[str, ...]


def parse(text: str, mapping: dict[str, str]) -> Iterator[tuple[str, str, list[Setting]]]:
    """Yield each table of a file of defaults: its name, its description and its settings.

    `mapping` is the variables of the program with the setting that each overrides. A program without one names the
    variables in brackets, in the comment before the setting or beside it.
    """
    name, intro, found = "", "", []
    comment: list[str] = []
    shared: tuple[tuple[str, ...], str] = ((), "")
    for line in text.splitlines():
        line = line.strip()
        if match := re.match(r"^\[+([\w.]+)\]+$", line):
            yield name, intro, found
            name, intro, found = match[1], " ".join(comment), []
            comment = []
        elif line.startswith("#"):
            # An example of entries of a list is not a description.
            if comment[-1:] != ["[["]:
                text = line.lstrip("# ").rstrip()
                comment.append("[[" if text.startswith("[[") else text)
        elif match := re.match(r"""^(\w+) = ("[^"]*"|\[.*?\]|[^#]+?)\s*(?:#\s*(.*))?$""", line):
            key = f"{name}.{match[1]}" if name else match[1]
            doc = " ".join([*(text for text in comment if text != "[["), match[3] or ""]).strip()
            named = tuple(variable for variable, setting in mapping.items() if setting == key)
            if not mapping:
                named = tuple(re.findall(r"\[([A-Z][A-Z0-9_]+)\]", doc))
            brackets = tuple(re.findall(r"\[([A-Z][A-Z0-9_]+)\]", doc))
            doc = re.sub(r"\s*\[[A-Z][A-Z0-9_]+\]", "", doc).strip()
            if len(brackets) > 1:
                shared = (brackets, doc)
            elif not doc and set(named) & set(shared[0]):
                doc = shared[1]
            found.append(Setting(key, match[2].strip(), doc, named))
            comment = []
        elif not line:
            comment = []
    yield name, intro, found


def mapping(program: str) -> dict[str, str]:
    """The variables of a program, and the setting that each overrides; empty for the worker."""
    found = re.search(r"pub const ENV: \[.*?\] = \[(.*?)\];", read_source(f"{program}/src/config.rs"), re.DOTALL)
    return dict(re.findall(r'\("(\w+)", "([\w.]+)"\)', found[1])) if found else {}


def read_source(path: str) -> str:
    return read(next(one for one in tracked(path.rpartition("/")[2]) if str(one) == path))


def shipped() -> dict[str, set[str]]:
    """The variables that installed programs and scripts read, with the files that name them."""
    found: dict[str, set[str]] = {}
    for path in tracked(".rs", ".py", ".ts", ".sh", ".toml", ".yaml", ".service"):
        name = str(path)
        if UNSHIPPED.search(name):
            continue
        text = read(path)
        if name.endswith(".rs"):
            text = without_tests(text)
        named = set(NAME.findall(text))
        if name.endswith((".rs", ".py", ".ts")):
            named.update(variable for pattern in READS for variable in pattern.findall(text))
        for variable in named:
            found.setdefault(variable, set()).add(name)
    return found


def described() -> set[str]:
    """The variables that the page describes."""
    named = {name for rows in OTHER.values() for name in rows}
    for _, program, _ in PROGRAMS:
        for _, _, settings in parse(read_source(f"{program}/src/config.default.toml"), mapping(program)):
            named.update(variable for one in settings for variable in one.variables)
    return named


def faults() -> list[str]:
    """Variables that are read but not described, and variables that are described but not read."""
    read_by, on_page = shipped(), described()
    found = [
        f"{name} is missing from docs/reference/settings.md: {', '.join(sorted(read_by[name])[:3])} reads it; describe "
        "it in tests/docs/variables.py"
        for name in sorted(set(read_by) - on_page - set(INTERNAL))
    ]
    found += [
        f"docs/reference/settings.md describes {name}, which no program reads: remove it from tests/docs/variables.py"
        for name in sorted((on_page | set(INTERNAL)) - set(read_by))
    ]
    for _, program, _ in PROGRAMS:
        for name, text, settings in parse(read_source(f"{program}/src/config.default.toml"), mapping(program)):
            bare = [one.key for one in complete(name, text, settings)[1] if not one.doc]
            found += [f"{program}/src/config.default.toml does not describe {key}" for key in bare]
    return found + policy.faults()


def complete(name: str, intro: str, settings: list[Setting]) -> tuple[str, list[Setting]]:
    """The introduction and the settings of a table, each with a description."""
    known = {one.name: one.doc for one in structs.members(*STRUCTS[name])} if name in STRUCTS else {}
    done = []
    for one in settings:
        doc = one.doc
        # The comment above a table may describe its first setting.
        if not doc and any(f"[{variable}]" in intro for variable in one.variables):
            doc, intro = re.sub(r"\s*\[[A-Z][A-Z0-9_]+\]", "", intro).strip(), ""
        doc = doc or known.get(one.key.rpartition(".")[2], "")
        done.append(Setting(one.key, one.default, doc, one.variables))
    return intro, done


def _entries(key: str) -> list[str]:
    intro, *found = ENTRIES[key]
    listed = [one for place in found for one in structs.members(*place)]
    rows = [(f"`{one.name}`", one.type, one.default, one.doc) for one in listed]
    return [wrapped(intro), table(("Setting", "Type", "Default", "Meaning"), rows)]


def _rows(settings: list[Setting]) -> list[tuple[str, str, str, str]]:
    rows = []
    for one in settings:
        variables = ", ".join(f"`{name}`" for name in one.variables)
        rows.append((f"`{one.key}`", variables, f"`{one.default}`", _linked(one.doc)))
    return rows


def _linked(text: str) -> str:
    """The text with links to the pages that it names, relative to the page of settings."""

    def link(match: re.Match[str]) -> str:
        target = match[1].removeprefix("reference/") if match[1].startswith("reference/") else f"../{match[1]}"
        return f"[{match[1].rpartition('/')[2].replace('-', ' ')}]({target}.md)"

    return re.sub(r"\bdocs/([\w/-]+)\.md", link, text)


def pages() -> dict[str, str]:
    parts = [
        "# Settings",
        header("the code"),
        wrapped(
            "For operators: every setting of the programs, with its default, and every environment variable that they "
            "read. Times, sizes and money have their unit in the name. A test compares this page with the code."
        ),
    ]
    for title, program, intro in PROGRAMS:
        parts += [f"## {title}", wrapped(intro)]
        head = ("Setting", "Variable", "Default", "Meaning")
        for name, text, settings in parse(read_source(f"{program}/src/config.default.toml"), mapping(program)):
            if name == "policy":
                parts += ["### `[policy]`", *policy.parts()]
                continue
            if name:
                parts.append(f"### `[{name}]`")
            text, settings = complete(name, text, settings)
            if text and name:
                parts.append(wrapped(_linked(re.sub(r"\s*\[[A-Z][A-Z0-9_]+\]", "", text))))
            if settings:
                parts.append(table(head, _rows(settings)))
            parts += [part for one in settings if one.key in ENTRIES for part in _entries(one.key)]
    for title, intro in SECTIONS.items():
        rows = [(f"`{name}`", default, doc) for name, (default, doc) in OTHER[title].items()]
        parts += [f"## {title}", wrapped(intro), table(("Variable", "Default", "Meaning"), rows)]
    return {"settings.md": page(*parts)}
