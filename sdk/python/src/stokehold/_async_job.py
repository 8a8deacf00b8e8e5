"""The jobs and files of the asynchronous client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from stokehold import _feedback
from stokehold._api import job_path
from stokehold._events import DoneEvent, Event
from stokehold._feedback import Feedback
from stokehold._models import NO_OWNER, FileInfo, JobRecord

if TYPE_CHECKING:
    from stokehold._async_client import AsyncClient


class AsyncJob(JobRecord):
    """A job as it was when last looked at; `refresh`, `wait`, `result` and `events` look again."""

    __slots__ = ("_client",)

    def __init__(self, client: AsyncClient, record: JobRecord) -> None:
        super().__init__(record.raw)
        self._client = client

    def __repr__(self) -> str:
        return f"AsyncJob({self.id!r}, endpoint={self.endpoint!r}, state={self.state!r})"

    async def refresh(self) -> AsyncJob:
        """Looks again; returns itself."""
        self.raw = (await self._client._run(self._client._api.get(self.id))).raw
        return self

    async def wait(self, timeout: float | None = None) -> AsyncJob:
        """Until it has ended, well or not; returns itself.

        Raises `WaitTimeout` after `timeout` seconds; the job runs on.
        """
        self.raw = (await self._client._run(self._client._api.wait(self, timeout))).raw
        return self

    async def result(self, timeout: float | None = None) -> Any:
        """Waits as `wait` does, then gives the result; files in it are `AsyncFileRef`s.

        Raises `JobFailed`, `JobCancelled` or `JobExpired`.
        """
        await self.wait(timeout)
        return await self._client._run(self._client._api.result(self, self._client._file))

    async def cancel(self) -> AsyncJob:
        """Ends it without a result; returns itself. Raises `Conflict` when it has already ended otherwise."""
        self.raw = (await self._client._run(self._client._api.cancel(self.id))).raw
        return self

    async def retry(self, *, same_version: bool = False) -> AsyncJob:
        """Does it again, as a new job whose `retry_of` is this one's id. Raises `NotRetryable`.

        Only for one that failed, expired or was cancelled. Until the new one has ended, asking again gives the same.
        It runs on the endpoint's current version, unless this one was submitted for a version or `same_version` is set.
        """
        return await self._client.retry(self.id, same_version=same_version)

    async def feedback(
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
        return await self._client._run(plan)

    async def events(self) -> AsyncIterator[Event]:
        """Everything it tells from its start, live, to its end. A lost connection is taken up again where it broke."""
        async for event in self._client._events(self.id):
            if isinstance(event, DoneEvent):
                self.raw = event.job.raw
            yield event


@dataclass(frozen=True)
class AsyncFileRef(FileInfo):
    """A file that can be fetched, and may stand in an input."""

    client: AsyncClient | None = field(default=None, repr=False, compare=False)

    async def read(self) -> bytes:
        """The whole file, in memory."""
        client = self._owner()
        return await client._run(client._api.read(self))

    async def save(self, path: str | PurePath) -> Path:
        """Writes it to `path`, or below it under its own name when `path` is a folder; returns where it is.

        It is there whole or not at all.
        """
        client = self._owner()
        return await client._run(client._api.save(self, path))

    def _owner(self) -> AsyncClient:
        if self.client is None:
            raise ValueError(NO_OWNER)
        return self.client
