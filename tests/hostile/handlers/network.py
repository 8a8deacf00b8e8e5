"""Attacks over the network and Unix sockets."""

import socket
import subprocess
from typing import Any

from tally import Tally


def try_network(targets: list[str], _canary: str) -> Any:
    """Connects to foreign servers: `host:port`, a path of a socket, or `@name` of an abstract one."""
    tally = Tally()
    for target in targets:
        if target.startswith(("/", "@")):
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
                tally.tried(f"connect {target} {kind}", lambda: _unix(target, kind))
            continue
        host, port = target.rsplit(":", 1)
        host = host.strip("[]")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        tally.tried(f"tcp {target}", lambda: _tcp(family, host, int(port)))
        tally.tried(f"udp {target}", lambda: _udp(family, host, int(port)))
        tally.tried(f"fast open {target}", lambda: _fast_open(family, host, int(port)))
        tally.tried(f"by bash {target}", lambda: _by_bash(host, port))
        tally.tried(f"raw {target}", lambda: socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_ICMP))
    tally.tried("name lookup", lambda: socket.getaddrinfo("example.com", 80))
    return tally.report()


def _tcp(family: int, host: str, port: int) -> str:
    with socket.socket(family, socket.SOCK_STREAM) as one:
        one.settimeout(2)
        one.connect((host, port))
    return "connected"


def _udp(family: int, host: str, port: int) -> str:
    if host in ("127.0.0.1", "::1", "0.0.0.0", "::ffff:127.0.0.1"):
        return ""  # The sandbox's own loopback, which has no listener.
    with socket.socket(family, socket.SOCK_DGRAM) as one:
        one.settimeout(2)
        return f"sent {one.sendto(b'x', (host, port))}"


def _fast_open(family: int, host: str, port: int) -> str:
    with socket.socket(family, socket.SOCK_STREAM) as one:
        one.settimeout(2)
        return f"sent {one.sendto(b'x', 0x20000000, (host, port))}"


def _by_bash(host: str, port: str) -> str:
    code = f"exec 3<>/dev/tcp/{host}/{port} && echo reached"
    done = subprocess.run(["bash", "-c", code], capture_output=True, timeout=5, check=False)
    return "connected" if b"reached" in done.stdout else ""


def _unix(target: str, kind: int) -> str:
    address = "\0" + target[1:] if target.startswith("@") else target
    with socket.socket(socket.AF_UNIX, kind) as one:
        one.settimeout(2)
        one.connect(address)
    return "connected"


def try_redis(targets: list[str], _canary: str) -> Any:
    """Sends commands to a Redis on these sockets, without its password and with guessed ones."""
    tally = Tally()
    guesses = ["", "AUTH redis\r\n", "AUTH default default\r\n", "AUTH ''\r\n", "HELLO 3\r\n", "HELLO 3 AUTH default x\r\n", "RESET\r\n", "QUIT\r\n"]
    wishes = ["KEYS *", "GET x", "CONFIG GET requirepass", "ACL LIST", "DEBUG SLEEP 0", "EVAL 'return 1' 0", "SAVE", "MONITOR", "REPLICAOF NO ONE", "FUNCTION LIST"]
    for target in targets:
        for guess in guesses:
            for wish in wishes:
                tally.tried(f"{guess.strip()} {wish}", lambda: _asked(target, guess + wish + "\r\n"))
    return tally.report()


def _asked(path: str, text: str) -> str:
    with socket.socket(socket.AF_UNIX) as redis:
        redis.settimeout(2)
        redis.connect(path)
        redis.sendall(text.encode())
        answers = [line for line in redis.recv(4096).decode("utf-8", "replace").splitlines() if line]
    good = [line for line in answers if not line.startswith(("-", "+RESET", "+OK"))]
    return good[0] if good else ""
