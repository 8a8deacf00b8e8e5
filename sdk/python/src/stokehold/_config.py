"""The URL and the token of the API: arguments, then the environment, then the file of `stoke dev` and `stoke login`."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

DEFAULT_URL = "http://127.0.0.1:7070"

# The profile that is used where STOKE_PROFILE names none.
DEFAULT_PROFILE = "default"


@dataclass(frozen=True)
class Settings:
    """A validated URL and token."""

    base_url: str
    token: str | None = field(repr=False)

    def is_ours(self, url: str) -> bool:
        """Whether `url` is on the origin of the API. The token is never sent to another origin."""
        return _origin(url) == _origin(self.base_url)


def load_settings(base_url: str | None, token: str | None) -> Settings:
    """Fills in what is not given. A token of the credentials file is used only for the URL it was saved with."""
    saved_url, saved_token = _read_credentials(os.environ.get("STOKE_PROFILE") or DEFAULT_PROFILE)
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
    """The file of `stoke dev` and `stoke login`: STOKE_CREDENTIALS, or by default a file in the home directory."""
    named = os.environ.get("STOKE_CREDENTIALS")
    return Path(named) if named else Path.home() / ".config" / "stokehold" / "credentials.json"


def _read_credentials(profile: str) -> tuple[str | None, str | None]:
    """The URL and the token of a profile. The default profile is at the top of the file, and may be missing."""
    saved: Any = None
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # RuntimeError: no home directory
        saved = json.loads(credentials_path().read_text(encoding="utf-8"))
    if profile != DEFAULT_PROFILE:
        profiles = saved.get("profiles") if isinstance(saved, dict) else None
        saved = profiles.get(profile) if isinstance(profiles, dict) else None
        if saved is None:
            raise ValueError(
                f"there is no profile {profile!r}; save it with `stoke login --profile {profile} --url URL`, "
                "or unset STOKE_PROFILE"
            )
    if not isinstance(saved, dict) or not isinstance(saved.get("url"), str) or not isinstance(saved.get("token"), str):
        return None, None
    return saved["url"], saved["token"]


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname
    return parts.scheme, host, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
