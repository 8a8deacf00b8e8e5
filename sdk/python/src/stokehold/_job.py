# Generated from _async_job.py by `make sync-client`; do not edit.
"""The jobs and files of the synchronous client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from stokehold import _feedback
from stokehold._api import job_path
from stokehold._events import DoneEvent, Event
from stokehold._feedback import Feedback
from stokehold._models import NO_OWNER, FileInfo, JobRecord

if TYPE_CHECKING:
    from stokehold._client import Client


class Job(JobRecord):
    """A job as it was when last looked at; `refresh`, `wait`, `result` and `events` look again."""

    __slots__ = ("_client",)

    def __init__(self, client: Client, record: JobRecord) -> None:
        super().__init__(record.raw)
        self._client = client

    def __repr__(self) -> str:
        return f"Job({self.id!r}, endpoint={self.endpoint!r}, state={self.state!r})"

    def refresh(self) -> Job:
        """Looks again; returns itself."""
        self.raw = self._client._run(self._client._api.get(self.id)).raw
        return self

    def wait(self, timeout: float | None = None) -> Job:
        """Until it has ended, well or not; returns itself.

        Raises `WaitTimeout` after `timeout` seconds; the job runs on.
        """
        self.raw = self._client._run(self._client._api.wait(self, timeout)).raw
        return self

    def result(self, timeout: float | None = None) -> Any:
        """Waits as `wait` does, then gives the result; files in it are `FileRef`s.

        Raises `JobFailed`, `JobCancelled` or `JobExpired`.
        """
        self.wait(timeout)
        return self._client._run(self._client._api.result(self, self._client._file))

    def cancel(self) -> Job:
        """Ends it without a result; returns itself. Raises `Conflict` when it has already ended otherwise."""
        self.raw = self._client._run(self._client._api.cancel(self.id)).raw
        return self

    def retry(self, *, same_version: bool = False) -> Job:
        """Does it again, as a new job whose `retry_of` is this one's id. Raises `NotRetryable`.

        Only for one that failed, expired or was cancelled. Until the new one has ended, asking again gives the same.
        It runs on the endpoint's current version, unless this one was submitted for a version or `same_version` is set.
        """
        return self._client.retry(self.id, same_version=same_version)

    def feedback(
        self,
        *,
        accepted: bool | None = None,
        score: int | None = None,
        labels: Sequence[str] | None = None,
        comment: str | None = None,
    ) -> Feedback:
        """Says what somebody thought of its result; saying it again replaces it.

        `score` is from 1 to 5; `labels` are 1 to 20 texts; `comment` has at most 2,000 characters. At least one.
        """
        plan = _feedback.give(self._client._api, job_path(self.id), accepted, score, labels, comment)
        return self._client._run(plan)

    def events(self) -> Iterator[Event]:
        """Everything it tells from its start, live, to its end. A lost connection is taken up again where it broke."""
        for event in self._client._events(self.id):
            if isinstance(event, DoneEvent):
                self.raw = event.job.raw
            yield event


@dataclass(frozen=True)
class FileRef(FileInfo):
    """A file that can be fetched, and may stand in an input."""

    client: Client | None = field(default=None, repr=False, compare=False)

    def read(self) -> bytes:
        """The whole file, in memory."""
        client = self._owner()
        return client._run(client._api.read(self))

    def save(self, path: str | PurePath) -> Path:
        """Writes it to `path`, or below it under its own name when `path` is a folder; returns where it is.

        It is there whole or not at all.
        """
        client = self._owner()
        return client._run(client._api.save(self, path))

    def _owner(self) -> Client:
        if self.client is None:
            raise ValueError(NO_OWNER)
        return self.client
