"""Records the quickstart: runs its commands on a real stack, and draws quickstart.svg from what they print.

    make recording

The argument is the path of `stoke`; `python3` on PATH needs the client. The times are those of the run, but no pause
is longer than two seconds.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from html import escape
from pathlib import Path

HERE = Path(__file__).resolve().parent
FILE = """from stokehold import endpoint

@endpoint(name="greet", vram_gib=0)
def greet(name: str, times: int = 1) -> list[str]:
    return [f"Hello, {name}!"] * times
"""
COMMANDS = (
    "cat greet/main.py",
    "stoke deploy greet",
    """stoke submit greet --input '{"name": "world", "times": 2}' --wait""",
    "python3 call.py",
    "stoke list",
)
CALL = """from stokehold import Client

with Client() as client:
    print(client.submit("greet", {"name": "Ada"}).result(timeout=60))
"""
LINES_MAX, COLUMNS = 26, 92
LINE, LEFT, TOP = 17, 14, 44
PAUSE_MAX_S, READ_S, END_S = 2.0, 1.2, 4.0


def run(stoke: Path) -> list[tuple[float, str, str]]:
    """Run the commands. Return each line with its time in the picture, its kind and its text."""
    lines: list[tuple[float, str, str]] = []
    now = 0.5
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "greet").mkdir()
        (home / "greet/main.py").write_text(FILE, encoding="utf-8")
        (home / "call.py").write_text(CALL, encoding="utf-8")
        environment = {
            **os.environ,
            "PATH": f"{stoke.parent}:{os.environ['PATH']}",
            "STOKE_CREDENTIALS": str(home / "credentials.json"),
            "NO_COLOR": "1",
            "PYTHONWARNINGS": "ignore",
        }
        ready = home / "ready"
        serve = ["stoke", "dev", "--listen", "127.0.0.1:0", "--ready-file", str(ready)]
        with subprocess.Popen(
            serve, cwd=home, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as dev:
            try:
                while not ready.exists():
                    if dev.poll() is not None:
                        raise SystemExit("stoke dev ended")
                    time.sleep(0.1)
                for command in COMMANDS:
                    lines.append((now, "command", command))
                    began = time.monotonic()
                    done = subprocess.run(
                        ["bash", "-c", command], cwd=home, env=environment, capture_output=True, text=True, check=True
                    )
                    now += min(PAUSE_MAX_S, max(0.6, time.monotonic() - began))
                    lines += [(now, "output", line[:COLUMNS]) for line in done.stdout.splitlines()]
                    now += READ_S
            finally:
                dev.terminate()
                dev.wait(timeout=60)
    return lines


def draw(lines: list[tuple[float, str, str]]) -> str:
    total = lines[-1][0] + END_S
    rows = min(len(lines), LINES_MAX)
    width, height = LEFT * 2 + COLUMNS * 8, TOP + rows * LINE + 14
    # A line appears at its time; when the screen is full, everything moves up.
    parts, moves = [], []
    for n, (at, kind, text) in enumerate(lines):
        shown = 100 * at / total
        fill = "#e6edf3" if kind == "command" else "#8b949e"
        prompt = '<tspan fill="#3fb950">$ </tspan>' if kind == "command" else ""
        parts.append(
            f'<text class="l" style="animation-name:l{n}" x="{LEFT}" y="{TOP + n * LINE}" fill="{fill}">'
            f"{prompt}{escape(text)}</text>"
            f"<style>@keyframes l{n}{{0%,{max(shown - 0.01, 0):.2f}%{{opacity:0}}"
            f"{shown:.2f}%,100%{{opacity:1}}}}</style>"
        )
        if n >= LINES_MAX:
            moves.append((shown, (n - LINES_MAX + 1) * LINE))
    frames, before = ["0%{transform:translateY(0)}"], 0
    for shown, up in moves:
        frames.append(f"{max(shown - 0.01, 0):.2f}%{{transform:translateY(-{before}px)}}")
        frames.append(f"{shown:.2f}%{{transform:translateY(-{up}px)}}")
        before = up
    frames.append(f"100%{{transform:translateY(-{before}px)}}")
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}">',
            "<style>text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre}"
            f".l{{animation-duration:{total:.1f}s;animation-iteration-count:infinite}}"
            f".s{{animation:s {total:.1f}s infinite}}@keyframes s{{{''.join(frames)}}}"
            "@media (prefers-reduced-motion:reduce){.l,.s{animation:none}}</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>',
            *[
                f'<circle cx="{18 + 18 * n}" cy="16" r="5" fill="{c}"/>'
                for n, c in enumerate(("#ff5f56", "#ffbd2e", "#27c93f"))
            ],
            f'<clipPath id="c"><rect x="0" y="28" width="{width}" height="{height - 28}"/></clipPath>',
            f'<g clip-path="url(#c)"><g class="s">{"".join(parts)}</g></g>',
            "</svg>",
            "",
        ]
    )


def main() -> None:
    stoke = Path(sys.argv[1]).absolute()
    lines = run(stoke)
    (HERE / "quickstart.svg").write_text(draw(lines), encoding="utf-8")
    print(json.dumps([text for _, _, text in lines], indent=1))


main()
