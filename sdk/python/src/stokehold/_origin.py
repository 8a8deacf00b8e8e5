"""The server of an API, as a connection needs it, and whether connections to it can be made directly."""

from __future__ import annotations

import re
import select
import socket
import ssl
import urllib.request
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import urlsplit

# URLs that need no normalization. Others (an international name, a password, dots as a segment) are left to httpx.
_PLAIN_URL = re.compile(
    r"(?P<origin>https?://(?P<host>[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?)"
    r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._~!$&'()*+,;=:@%-]*)*"
)
_PLAIN_TARGET = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@%/?-]+")
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass
class Origin:
    """A server: its scheme, its address, and its name in requests."""

    url: str
    """E.g. `http://127.0.0.1:7070`, without a path."""
    host: str
    port: int
    header: str
    """The value of the header `Host`."""
    is_tls: bool = field(default=False)

    @cached_property
    def tls(self) -> ssl.SSLContext | None:
        """The settings of TLS: those of httpx, so that both trust the same certificates (`SSL_CERT_FILE` included)."""
        if not self.is_tls:
            return None
        import httpx

        context = httpx.create_ssl_context()
        context.set_alpn_protocols(["http/1.1"])
        return context

    def target(self, url: str) -> str | None:
        """The path and the query of a URL of this server; None for another URL, or one that needs normalization."""
        if not url.startswith(self.url):
            return None
        target = url[len(self.url) :]
        return target if target.startswith("/") and _PLAIN_TARGET.fullmatch(target) else None


def direct_origin(base_url: str) -> Origin | None:
    """The server of `base_url`; None if only httpx can reach it: the URL is unusual, or a proxy is configured."""
    plain = _PLAIN_URL.fullmatch(base_url)
    if plain is None:
        return None
    parts = urlsplit(base_url)
    scheme, host = parts.scheme, parts.hostname or ""
    try:
        port = parts.port or _DEFAULT_PORTS[scheme]
    except ValueError:  # above 65535
        return None
    if _is_proxied(scheme, host):
        return None
    header = plain["host"].lower() if port == _DEFAULT_PORTS[scheme] else f"{plain['host'].lower()}:{port}"
    return Origin(plain["origin"], host, port, header, is_tls=scheme == "https")


def _is_proxied(scheme: str, host: str) -> bool:
    """Whether a proxy might be used. Exceptions with patterns are left to httpx; only exact ones are decided here."""
    proxies = urllib.request.getproxies()
    if not (proxies.get(scheme) or proxies.get("all")):
        return False
    exceptions = [name.strip() for name in proxies.get("no", "").split(",")]
    return "*" not in exceptions and host not in exceptions


def is_readable(sock: socket.socket) -> bool:
    """Whether there is something to read, without waiting. For an idle connection, that is its end."""
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([sock], [], [], 0)[0])  # Windows
