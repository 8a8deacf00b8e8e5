"""The URL and the token of the API: arguments, then the environment, then the file that `stoke dev` writes."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

DEFAULT_URL = "http://127.0.0.1:7070"


@dataclass(frozen=True)
class Settings:
    """A validated URL and token."""

    base_url: str
    token: str | None = field(repr=False)

    def is_ours(self, url: str) -> bool:
        """Whether `url` is on the origin of the API. The token is never sent to another origin."""
        return _origin(url) == _origin(self.base_url)


def load_settings(base_url: str | None, token: str | None) -> Settings:
    """Fills in what is not given. The token in the credentials file is used only for the server that wrote the file."""
    saved_url, saved_token = _read_credentials()
    url = (base_url or os.environ.get("STOKE_URL") or saved_url or DEFAULT_URL).rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is not a URL of an API, e.g. {DEFAULT_URL}; check base_url or STOKE_URL")
    chosen = token or os.environ.get("STOKE_TOKEN")
    if not chosen and saved_url is not None and _origin(saved_url) == _origin(url):
        chosen = saved_token
    if chosen and not (chosen.isascii() and chosen.isprintable() and " " not in chosen):
        raise ValueError(
            "the token contains a space, a line break or another invalid character; check token or STOKE_TOKEN"
        )
    return Settings(url, chosen or None)


def credentials_path() -> Path:
    """The file that `stoke dev` writes: STOKE_CREDENTIALS, or by default a file in the home directory."""
    named = os.environ.get("STOKE_CREDENTIALS")
    return Path(named) if named else Path.home() / ".config" / "stokehold" / "credentials.json"


def _read_credentials() -> tuple[str | None, str | None]:
    try:
        saved: Any = json.loads(credentials_path().read_text(encoding="utf-8"))
    except (OSError, ValueError, RuntimeError):  # RuntimeError: no home directory
        return None, None
    if not isinstance(saved, dict) or not isinstance(saved.get("url"), str) or not isinstance(saved.get("token"), str):
        return None, None
    return saved["url"], saved["token"]


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname
    return parts.scheme, host, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
