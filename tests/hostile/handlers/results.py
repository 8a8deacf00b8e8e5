"""Attacks through the files of a result: their types and their names."""

import os
import pathlib
import socket
from typing import Any, Callable

from stokehold import current_job
from stokehold.runner import outputs


def try_result(targets: list[str], _canary: str) -> Any:
    """Declares something as a file of its result, bypassing the runner's own check: `how`, and its target."""
    how, target = targets
    place = current_job().scratch / "picture.png"
    makers: dict[str, Callable[[], Any]] = {
        "symlink": lambda: place.symlink_to(target),
        "symlink to a symlink": lambda: ((place.parent / "between").symlink_to(target), place.symlink_to("between")),
        "symlinked folder": lambda: (place.parent / "folder").symlink_to(os.path.dirname(target)),
        "hard link": lambda: _try(lambda: os.link(target, place)),
        "fifo": lambda: os.mkfifo(place),
        "socket": lambda: socket.socket(socket.AF_UNIX).bind(str(place)),
        "folder": lambda: place.mkdir(),
        "descriptor": lambda: place.symlink_to("/proc/self/fd/0"),
        "root of init": lambda: place.symlink_to(f"/proc/1/root{target}"),
        "outside": lambda: None,
        "dots": lambda: None,
        "nothing": lambda: None,
    }
    makers[how]()
    named = {
        "symlinked folder": str(place.parent / "folder" / os.path.basename(target)),
        "outside": target,
        "dots": str(place.parent) + "/" + "../" * 40 + target.lstrip("/"),
    }.get(how, str(place))

    def put(self: outputs.Outputs, path: pathlib.Path) -> str:
        self.files.append(outputs.OutputFile("picture.png", named, "image/png"))
        return "picture.png"

    outputs.Outputs._place = put
    return place


def _try(attempt: Callable[[], Any]) -> None:
    try:
        attempt()
    except OSError:
        pass


def try_names(targets: list[str], _canary: str) -> Any:
    """Declares a file of its result under a name that leads elsewhere or contains control sequences."""
    place = current_job().scratch / "plain.txt"
    place.write_text("plain")
    (name,) = targets

    def put(self: outputs.Outputs, path: pathlib.Path) -> str:
        self.files.append(outputs.OutputFile(name, str(place), "text/plain"))
        return name

    outputs.Outputs._place = put
    return place
