"""Checks the source: `python3 tests/tidy` prints the module graph of each crate, and fails on new findings.

Checks: cycles of more than three modules, crates that depend upwards, files of more than 500 lines, public types with
names that were replaced, implementations for the state of the API outside its file, errors of HTTP in code that
answers no requests, banned words in doc comments and messages, words of Vast.ai outside `crates/vast`, lines of
Markdown over 100 columns, paths in Markdown that do not exist, dead links between pages, pages that no index lists,
dependencies that `stoke` and the tests do not share.

`baseline.json` has the findings that existed when their check was added. Its numbers may only fall: the program fails
if a number is higher, and also if one is lower until `python3 tests/tidy --update` has written it.

    python3 tests/tidy                  the graphs in figures, then the checks
    python3 tests/tidy --edges api      each use of a module by another in a crate
    python3 tests/tidy --words          each use of a banned word
    python3 tests/tidy --update         lower the baseline
"""

from __future__ import annotations

import json
import sys
from collections import Counter

import features
import links
import markdown
import paths
import structure
import vast
import words
from source import ROOT

PRINTED_MAX = 40
BASELINE = ROOT / "tests/tidy/baseline.json"
CHECKS = {
    "cycles of modules": structure.cycle_findings,
    "crates that depend upwards": structure.crate_findings,
    "lines beyond 500 in a file": structure.size_findings,
    "old names": structure.name_findings,
    "implementations for the state of the API": structure.app_findings,
    "errors of HTTP in the domain": structure.problem_findings,
    "banned words": words.findings,
    "words of Vast.ai outside crates/vast": vast.findings,
    "lines of Markdown over 100 columns": markdown.findings,
    "paths in Markdown that do not exist": paths.findings,
    "dead links in Markdown": links.findings,
    "pages that the index or the navigation lacks": links.unlisted,
    "dependencies that are built twice": features.findings,
}


def compare(name: str, now: Counter, before: Counter) -> list[str]:
    """Returns the differences from the baseline, as lines to print."""
    rose = (where for where in sorted(now) if now[where] > before[where])
    risen = [f"{name}: {where}: {now[where]}, was {before[where]}" for where in rose]
    fallen = [where for where in sorted(before) if now[where] < before[where]]
    if fallen and not risen:
        risen.append(f"{name}: {len(fallen)} numbers fell, e.g. of {fallen[0]}: run python3 tests/tidy --update")
    return risen


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--edges"] and len(arguments) == 2:
        print(structure.edges_of(arguments[1]))
        return 0
    if arguments == ["--words"]:
        for path, line, word, text in words.uses():
            print(f"{path}:{line}: {word}: {text}")
        return 0
    now = {name: check() for name, check in CHECKS.items()}
    if arguments == ["--update"]:
        BASELINE.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return 0
    if arguments:
        print(__doc__)
        return 2
    print(structure.describe())
    before = json.loads(BASELINE.read_text(encoding="utf-8"))
    wrong = [line for name in CHECKS for line in compare(name, now[name], Counter(before.get(name, {})))]
    for name, found in now.items():
        print(f"{name}: {found.total()} in {len(found)} places")
    for line in wrong[:PRINTED_MAX]:
        print(line, file=sys.stderr)
    if len(wrong) > PRINTED_MAX:
        print(f"and {len(wrong) - PRINTED_MAX} more", file=sys.stderr)
    return 1 if wrong else 0


sys.exit(main(sys.argv[1:]))
