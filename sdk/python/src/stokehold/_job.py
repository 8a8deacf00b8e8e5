# Generated from _async_job.py by `make sync-client`; do not edit.
"""The jobs and files of the synchronous client."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from stokehold import _feedback
from stokehold._api import job_path
from stokehold._events import DoneEvent, Event
from stokehold._feedback import Feedback, Rating
from stokehold._models import NO_OWNER, FileInfo, JobRecord

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from stokehold._client import Client


class Job(JobRecord):
    """A job in the state that was last fetched. `refresh`, `wait`, `result` and `events` update it."""

    __slots__ = ("_client",)

    def __init__(self, client: Client, record: JobRecord) -> None:
        super().__init__(record.raw)
        self._client = client

    def __repr__(self) -> str:
        return f"Job({self.id!r}, endpoint={self.endpoint!r}, state={self.state!r})"

    def refresh(self) -> Job:
        """Fetches the current state; returns itself."""
        self.raw = self._client._run(self._client._api.get(self.id)).raw
        return self

    def wait(self, timeout: float | None = None) -> Job:
        """Waits until the job has ended, with or without a result; returns itself.

        Raises `WaitTimeout` after `timeout` seconds; the job continues.
        """
        self.raw = self._client._run(self._client._api.wait(self, timeout)).raw
        return self

    def result(self, timeout: float | None = None) -> Any:
        """Waits like `wait`, then returns the result. Files in it are `FileRef`s.

        Raises `JobFailed`, `JobCancelled` or `JobExpired` if the job ended without a result, and `WaitTimeout` after
        `timeout` seconds; the job continues. Default: waits without a limit.

        ```python
        try:
            print(job.result(timeout=60))
        except WaitTimeout:
            print(job.refresh(), job.waiting)
        ```
        """
        self.wait(timeout)
        return self._client._run(self._client._api.result(self, self._client._file))

    def cancel(self) -> Job:
        """Cancels the job; returns itself. Raises `Conflict` if it has already ended in another state."""
        self.raw = self._client._run(self._client._api.cancel(self.id)).raw
        return self

    def retry(self, *, same_version: bool = False) -> Job:
        """Retries a job that failed, expired or was cancelled, as a new job whose `retry_of` is the id of this one.

        The new job runs on the current version of the endpoint, unless this job was submitted for a version or
        `same_version` is set. Until it has ended, another call returns it again. Raises `NotRetryable` if this job is
        in another state.
        """
        return self._client.retry(self.id, same_version=same_version)

    def feedback(self, **rating: Unpack[Rating]) -> Feedback:
        """Rates the result of the job. A second rating replaces the first.

        `rating` are the members of `Rating`, at least one.
        """
        return self._client._run(_feedback.give(self._client._api, job_path(self.id), rating))

    def events(self) -> Iterator[Event]:
        """Streams the events of the job from its start to its end. Resumes where it stopped after a lost connection.

        An event is a `StateEvent`, `ProgressEvent`, `LogEvent`, `OutputEvent`, `GapEvent` or, last, a `DoneEvent`.

        ```python
        for event in job.events():
            if event.type == "output":
                print(event.value, end="")
        ```
        """
        for event in self._client._events(self.id):
            if isinstance(event, DoneEvent):
                self.raw = event.job.raw
            yield event


@dataclass(frozen=True)
class FileRef(FileInfo):
    """A file that can be downloaded and used in an input."""

    client: Client | None = field(default=None, repr=False, compare=False)

    def read(self) -> bytes:
        """Downloads the file into memory."""
        client = self._owner()
        return client._run(client._api.read(self))

    def save(self, path: str | PurePath) -> Path:
        """Downloads the file to `path`, or into `path` under its own name if `path` is a folder; returns its path.

        A file that is only partly downloaded never appears under that path.
        """
        client = self._owner()
        return client._run(client._api.save(self, path))

    def _owner(self) -> Client:
        if self.client is None:
            raise ValueError(NO_OWNER)
        return self.client
