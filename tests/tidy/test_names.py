"""Compares the names of all tests with those of another commit: `python3 tests/tidy/test_names.py COMMIT`.

Prints the names that COMMIT has and the working commit lacks, then those that are new. A renamed test is in both lists.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

from source import ROOT

RUST_TEST = re.compile(
    r"#\[(?:tokio::)?test[^\]]*\](?:\s*#\[[^\]]*\]|\s*//[^\n]*)*\s*(?:pub(?:\([^)]*\))?\s+)?(?:async\s+)?fn\s+(\w+)"
)
# The conformance suite of the queue: each is a test of every implementation.
CONFORMANCE = re.compile(r"pub\(crate\) async fn (\w+)<")
PROPERTIES = re.compile(r"proptest!\s*\{(.*?)\n\}", re.DOTALL)
FUNCTION = re.compile(r"\bfn (\w+)\(")
PYTHON_TEST = re.compile(r"^\s*(?:async )?def (test_\w+)", re.MULTILINE)
JS_TEST = re.compile(r"""\b(?:test|it)\(\s*["'`](.+?)["'`]\s*,""")


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def tests_of(path: str, text: str) -> Iterator[str]:
    """The names of the tests of one file."""
    if path.endswith(".rs"):
        yield from RUST_TEST.findall(text)
        if "/conformance/" in path:
            yield from CONFORMANCE.findall(text)
        for properties in PROPERTIES.findall(text):
            yield from FUNCTION.findall(properties)
    elif path.endswith(".py"):
        yield from PYTHON_TEST.findall(text)
    else:
        yield from JS_TEST.findall(text)


def names(commit: str) -> Counter[str]:
    """The names of all tests of a commit."""
    found: Counter[str] = Counter()
    for path in git("ls-tree", "-r", "--name-only", commit).splitlines():
        if path.endswith(".rs") or ("test" in path and path.endswith((".py", ".mjs", ".ts", ".tsx"))):
            found.update(tests_of(path, git("show", f"{commit}:{path}")))
    return found


def main() -> None:
    before, after = names(sys.argv[1]), names("HEAD")
    print(f"{before.total()} before, {after.total()} after")
    for title, found in (("gone", before - after), ("new", after - before)):
        print(f"\n{title}: {found.total()}")
        print("\n".join(sorted(found.elements())))


if __name__ == "__main__":
    main()
