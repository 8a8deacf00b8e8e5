"""Writes the pages of docs/reference that describe the code: `python3 tests/docs --write`.

Without `--write`, it fails if a page is stale, if an environment variable that a program reads is missing, or if one
is described that no program reads. Needs no packages and no network.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "sdk"), str(ROOT / "tests/tidy")]

import errors  # noqa: E402
import http_api  # noqa: E402
import manifest  # noqa: E402
import settings  # noqa: E402

PAGES = (settings.pages, errors.pages, manifest.pages, http_api.pages)


def main() -> None:
    parser = argparse.ArgumentParser(description="Check or write the reference pages that are generated from the code.")
    parser.add_argument("--write", action="store_true", help="write the pages that are stale")
    write = parser.parse_args().write
    faults = settings.faults()
    for name, text in (item for pages in PAGES for item in pages().items()):
        path = ROOT / "docs/reference" / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if write:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        else:
            faults.append(f"docs/reference/{name} does not match the code: run `make models`")
    if faults:
        sys.exit("\n".join(faults))


main()
