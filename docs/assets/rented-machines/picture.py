"""Draws `fleet.svg` from a recording of `stoke fleet --json` and `stoke top --once --json`: python3 picture.py recording.json > fleet.svg."""

import json
import sys
from html import escape

COLUMNS, LINE, LEFT, TOP = 96, 17, 14, 44
FRAMES, SECONDS = 14, 1.4
STATES = {"booting": "#d29922", "ready": "#3fb950", "draining": "#8b949e", "ending": "#8b949e"}


def span(text: str, colour: str = "#c9d1d9") -> str:
    return f'<tspan fill="{colour}">{escape(text)}</tspan>'


def machine(row: dict) -> str:
    loaded = " ".join(name.split("/")[1].split("@")[0] for name in row["loaded"]) or "-"
    price = f"${row['usd_micros_per_hour'] / 1e6:.3f}/h"
    busy = f"{row['running']}/{row['slots']}" if row["slots"] else "-"
    state = span(f"{row['state']:<9}", STATES.get(row["state"], "#c9d1d9"))
    return span(f"{row['id']:<20}{row['kind']:<14}") + state + span(f" {busy:<5}{price:<11}{loaded}")


def frame(moment: dict) -> list[str]:
    fleet, lanes = moment["fleet"], moment["lanes"]
    waiting = sum(lane["jobs"] for lane in lanes)
    usd = fleet["usd_micros_per_hour"] / 1e6
    lines = [span(f"{moment['t']:>4} s   ", "#8b949e") + span(f"{waiting:>3} jobs wait  ") + span("#" * (waiting // 6), "#58a6ff"), ""]
    lines += [machine(row) for row in fleet["machines"]] or [span("no machine is rented", "#8b949e")]
    lines += [""] * (6 - len(lines))
    eta = max((lane["eta_s"] for lane in lanes if lane["eta_s"] is not None), default=None)
    return [*lines, "", span(f"${usd:.3f} per hour" + (f", done in {eta} s" if eta is not None else ""), "#8b949e")]


def picked(frames: list[dict]) -> list[dict]:
    # The first and the last, and those between at even distances.
    last = len(frames) - 1
    return [frames[round(n * last / (FRAMES - 1))] for n in range(FRAMES)]


def text(lines: list[str]) -> str:
    rows = (f'<text x="{LEFT}" y="{TOP + n * LINE}" xml:space="preserve">{line}</text>' for n, line in enumerate(lines))
    return "\n".join(row for row in rows if "tspan" in row)


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        recording = json.load(file)
    shots = [frame(moment) for moment in picked(recording["frames"])]
    costs = [line.rstrip() for line in recording["costs"].splitlines() if line.strip()]
    shots.append([span("$ stoke cost", "#8b949e"), *(span(line) for line in costs[-4:-1])])
    count = len(shots)
    share = 100 / count
    height = TOP + LINE * max(len(shot) for shot in shots)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {COLUMNS * 8} {height}" width="{COLUMNS * 8}" height="{height}">')
    print("<title>300 jobs on rented machines: from none and back to none</title>")
    print("<style>text{font:13px ui-monospace,Menlo,Consolas,monospace}.f{opacity:0;animation:f")
    print(f"{count * SECONDS:.1f}s steps(1) infinite}}@keyframes f{{0%{{opacity:1}}{share:.3f}%{{opacity:0}}}}</style>")
    print('<rect width="100%" height="100%" rx="6" fill="#0d1117"/>')
    print(f'<text x="{LEFT}" y="22" xml:space="preserve">{span("$ stoke dev --fake-vast   300 jobs of 2 s, four endpoints", "#8b949e")}</text>')
    for number, shot in enumerate(shots):
        print(f'<g class="f" style="animation-delay:{number * SECONDS:.1f}s">\n{text(shot)}\n</g>')
    print("</svg>")


main()
