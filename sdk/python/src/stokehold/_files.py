"""Files and jobs in JSON: an input refers to them by id, and files in a result become readable objects."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, Callable, Union

from stokehold._models import FileInfo, JobRecord
from stokehold._references import Reference, job_id

Named = Union[PurePath, FileInfo]


class InputEncoder:
    """For `json.dumps(default=...)`: replaces jobs and files by their ids, and collects files that have no id yet."""

    def __init__(self, planned: Sequence[JobRecord] = ()) -> None:
        """`planned` are the jobs of the same request. `named_jobs` is set when a job is encoded."""
        self.named_jobs = False
        self._planned = planned
        self._missing: list[Named] = []
        self._ids: dict[Named, str] = {}

    def take_missing(self) -> list[Named]:
        """The files without an id that were encoded since the last call, once each."""
        missing, self._missing = self._missing, []
        return missing

    def uploaded(self, file: Named, info: FileInfo) -> None:
        """Records the id of `file`."""
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
            raise TypeError(f"a {kind} cannot be sent as JSON; use plain values, a pathlib.Path, a file or a job")
        file_id = value.id if isinstance(value, FileInfo) and value.id else self._ids.get(value)
        if file_id is None and value not in self._missing:
            self._missing.append(value)
        return {"$file": file_id}


def hydrate(value: Any, base_url: str, make_file: Callable[[FileInfo], Any]) -> Any:
    """Replaces each reference to a file in `value` by a readable file.

    Only paths of the API count as references. A model controls its result, and must not control which servers the
    client connects to.
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
