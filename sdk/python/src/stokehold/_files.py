"""Files and jobs inside JSON: in an input they become names, and what a result names becomes something to read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, Callable, Union

from stokehold._models import FileInfo, JobRecord
from stokehold._references import Reference, job_id

Named = Union[PurePath, FileInfo]


class InputEncoder:
    """For `json.dumps(default=...)`: names each job and file by its id, and puts down the files that have none yet."""

    def __init__(self, planned: Sequence[JobRecord] = ()) -> None:
        """planned: the jobs that are sent together with what is encoded. `named_jobs` tells whether any job was met."""
        self.named_jobs = False
        self._planned = planned
        self._missing: list[Named] = []
        self._ids: dict[Named, str] = {}

    def take_missing(self) -> list[Named]:
        """The files met since the last call that have no id, once each."""
        missing, self._missing = self._missing, []
        return missing

    def uploaded(self, file: Named, info: FileInfo) -> None:
        """`file` has an id now."""
        if info.id is not None:
            self._ids[file] = info.id

    def __call__(self, value: Any) -> Any:
        if isinstance(value, JobRecord):
            self.named_jobs = True
            return {"$job": job_id(value, self._planned)}
        if isinstance(value, Reference):
            self.named_jobs = True
            return {"$job": job_id(value.job, self._planned), "pointer": value.pointer}
        if not isinstance(value, (PurePath, FileInfo)):
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            raise TypeError(f"a {kind} cannot be sent as JSON; send plain values, a pathlib.Path, a file or a job")
        file_id = value.id if isinstance(value, FileInfo) and value.id else self._ids.get(value)
        if file_id is None and value not in self._missing:
            self._missing.append(value)
        return {"$file": file_id}


def hydrate(value: Any, base_url: str, make_file: Callable[[FileInfo], Any]) -> Any:
    """`value` with each file that it names made readable.

    Only a path of the API counts as one: a model chooses what is in its result, and must not choose where its reader
    connects to.
    """
    if isinstance(value, list):
        return [hydrate(item, base_url, make_file) for item in value]
    if not isinstance(value, dict):
        return value
    name, url = value.get("$file"), value.get("url")
    if isinstance(name, str) and isinstance(url, str) and url.startswith("/v1/"):
        return make_file(
            FileInfo(
                name=name,
                url=base_url + url,
                size_bytes=value.get("size_bytes"),
                sha256=value.get("sha256"),
                content_type=value.get("content_type"),
            )
        )
    return {key: hydrate(item, base_url, make_file) for key, item in value.items()}
