"""Hooks of MkDocs: links out of the folder `docs` lead to the repository, and ADRs are in the navigation."""

from __future__ import annotations

import posixpath
import re
from typing import Any

REPOSITORY = "https://github.com/stokehold/stokehold/blob/main/"
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")

# A marker in the first line of a block that only tests read.
MARKERS = re.compile(r"^(\s*```\w+) no-run$", re.MULTILINE)


def on_config(config: Any) -> Any:
    """Add the decision records, in their order."""
    from pathlib import Path

    records = sorted(path.name for path in Path(config["docs_dir"], "adr").glob("*.md"))
    config["nav"][-1]["Explanation"].append({"Decisions": [f"adr/{name}" for name in records]})
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def absolute(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, match[2]))
        if ":" in match[2] or path.startswith("docs/"):
            # A folder of the documentation has no page: its records are in the navigation.
            if path == "docs/adr":
                return f"{match[1]}{REPOSITORY.replace('/blob/', '/tree/')}{path}{match[3]}"
            return match[0]
        return f"{match[1]}{REPOSITORY}{path}{match[3]}"

    return LINK.sub(absolute, MARKERS.sub(r"\1", markdown))
