"""Relative links in Markdown whose file or anchor does not exist.

Anchors are compared with the headings of the target, as GitHub and `make docs` derive them. Links to other hosts are
not followed: this check needs no network.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath

from markdown import FENCE, FIXTURES
from source import ROOT, read, tracked

# `[text](target)` and `![text](target "title")`; the text may be an image.
INLINE = re.compile(r"\]\(\s*<?([^)<>\s]+)>?(?:\s+\"[^\"]*\")?\s*\)")
DEFINITION = re.compile(r"^\s{0,3}\[[^\]^]+\]:\s+<?(\S+?)>?\s*$")
HTML = re.compile(r"""<(?:a|img|source)\s[^>]*?(?:href|src|srcset)="([^"\s]+)""")
HEADING = re.compile(r"^\s{0,3}#{1,6}\s+(.*?)\s*#*\s*$")
HTML_ANCHOR = re.compile(r"""<a\s[^>]*?(?:id|name)="([^"]+)""")
CODE = re.compile(r"(`+)(?:.+?)\1")
SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*:")


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line outside fenced code."""
    fence = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if match := FENCE.match(line):
            marker, rest = match.groups()
            if not fence:
                fence = marker
            elif marker[0] == fence[0] and len(marker) >= len(fence) and not rest.strip():
                fence = ""
        elif not fence:
            yield number, line


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub derives it."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    text = re.sub(r"<[^>]+>|`|\*+", "", text).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page. A heading that occurs again is numbered from 1."""
    seen: Counter = Counter()
    found = set()
    for _, line in prose(read(page)):
        found.update(HTML_ANCHOR.findall(line))
        if match := HEADING.match(line):
            name = slug(match[1])
            found.add(f"{name}-{seen[name]}" if seen[name] else name)
            seen[name] += 1
    return frozenset(found)


def targets(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the target of each relative link of a page."""
    lines = {number: CODE.sub(lambda match: "`" * len(match[0]), line) for number, line in prose(text)}
    for number, line in lines.items():
        found = [*INLINE.findall(line), *HTML.findall(line)]
        if match := DEFINITION.match(line):
            found.append(match[1])
        for target in found:
            if not SCHEME.match(target) and not target.startswith("//"):
                yield number, target


def problem(page: Path, target: str) -> str | None:
    """Returns why a link of this page is dead, if it is."""
    path, _, anchor = target.partition("#")
    if path.startswith("/"):
        return "is absolute"
    there = ROOT / page
    if path:
        there = (ROOT / page).parent / PurePosixPath(path)
    if not there.exists():
        return "does not exist"
    inside = there.resolve()
    if not inside.is_relative_to(ROOT.resolve()):
        return "lies outside of the repository"
    if anchor and inside.suffix == ".md" and anchor not in anchors(inside.relative_to(ROOT.resolve())):
        return "has no such heading"
    return None


def findings() -> Counter:
    found: Counter = Counter()
    for page in tracked(".md"):
        if str(page) in FIXTURES:
            continue
        for number, target in targets(read(page)):
            if reason := problem(page, target):
                found[f"{page}:{number}: {target} {reason}"] += 1
    return found


def unlisted() -> Counter:
    """Pages of the documentation that the navigation of the site or the index does not name."""
    navigation = read(Path("mkdocs.yml"))
    index = {target.partition("#")[0] for _, target in targets(read(Path("docs/index.md")))}
    found: Counter = Counter()
    for page in tracked(".md"):
        name = page.as_posix().removeprefix("docs/")
        if not page.as_posix().startswith("docs/") or name.startswith("adr/") or name == "index.md":
            continue
        if not re.search(rf"[ -]{re.escape(name)}$", navigation, re.MULTILINE):
            found[f"{page}: add it to nav in mkdocs.yml"] += 1
        # The pages of the HTTP API have an index of their own.
        if name not in index and not re.match(r"reference/http/(?!index)", name):
            found[f"{page}: add it to docs/index.md"] += 1
    return found
