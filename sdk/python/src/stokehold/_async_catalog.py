"""The resources of the asynchronous client around jobs, endpoints and files."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Iterable
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from stokehold._api import Source, job_path
from stokehold._async_job import AsyncFileRef, AsyncJob
from stokehold._events import Event
from stokehold._feedback import Feedback, Rating, give
from stokehold._generated._async_routes import (
    AsyncEndpointRoutes,
    AsyncFileRoutes,
    AsyncJobRoutes,
    AsyncLimitRoutes,
    AsyncWorkerRoutes,
)
from stokehold._models import Endpoint, FileInfo, Limits, Retried, Worker
from stokehold._options import DeployOptions, JobFilter, JobOptions
from stokehold._transfer import OnProgress

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AsyncJobs(AsyncJobRoutes):
    """`client.jobs`: jobs, one or many at a time. The methods of the client of the same names are short forms."""

    async def submit(
        self,
        endpoint: str,
        input: Any = None,  # noqa: A002 (the API's word)
        *,
        idempotency_key: str | None = None,
        wait_s: float = 0,
        **options: Unpack[JobOptions],
    ) -> AsyncJob:
        """Submits a job; see `AsyncClient.submit`."""
        return await self._client.submit(endpoint, input, idempotency_key=idempotency_key, wait_s=wait_s, **options)

    async def submit_many(
        self,
        endpoint: str,
        inputs: Iterable[Any],
        *,
        idempotency_key: str | None = None,
        **options: Unpack[JobOptions],
    ) -> builtins.list[AsyncJob]:
        """Submits one job for each input, in order; see `AsyncClient.submit_many`."""
        return await self._client.submit_many(endpoint, inputs, idempotency_key=idempotency_key, **options)

    async def retrieve(self, job_id: str) -> AsyncJob:
        """Returns a job by its id. Raises `NotFound` if there is none."""
        return await self._client.get(job_id)

    def list(self, *, page_size: int = 100, **selected: Unpack[JobFilter]) -> AsyncIterator[AsyncJob]:
        """Lists jobs, newest first. Fetches a page of `page_size` (at most 100) jobs at a time.

        `selected` are the members of `JobFilter`. Without any, all jobs are listed.
        """
        return self._client.list(page_size=page_size, **selected)

    def dead_letters(
        self, *, endpoint: str | None = None, error_code: str | None = None, page_size: int = 100
    ) -> AsyncIterator[AsyncJob]:
        """Lists jobs that failed or expired and have not been retried, newest first, fetched page by page."""
        return self._client.dead_letters(endpoint=endpoint, error_code=error_code, page_size=page_size)

    def events(self, job_id: str) -> AsyncIterator[Event]:
        """Streams the events of a job; see `AsyncJob.events`."""
        return self._client.events(job_id)

    async def cancel(self, job_id: str) -> AsyncJob:
        """Cancels a job. Raises `Conflict` if it has already ended in another state."""
        return await self._client.cancel(job_id)

    async def cancel_many(self, *, limit: int | None = None, **selected: Unpack[JobFilter]) -> int:
        """Cancels the selected jobs that have not ended; see `AsyncClient.cancel_jobs`."""
        return await self._client.cancel_jobs(limit=limit, **selected)

    async def retry(self, job_id: str, *, same_version: bool = False) -> AsyncJob:
        """Retries a job that failed, expired or was cancelled, as a new job; see `AsyncClient.retry`."""
        return await self._client.retry(job_id, same_version=same_version)

    async def retry_many(
        self, *, limit: int | None = None, same_version: bool = False, **selected: Unpack[JobFilter]
    ) -> builtins.list[Retried]:
        """Retries the selected jobs that failed or expired; see `AsyncClient.retry_jobs`."""
        return await self._client.retry_jobs(limit=limit, same_version=same_version, **selected)

    async def feedback(self, job_id: str, **rating: Unpack[Rating]) -> Feedback:
        """Rates the result of a job. A second rating replaces the first.

        `rating` are the members of `Rating`, at least one.
        """
        return await self._client._run(give(self._client._api, job_path(job_id), rating))


class AsyncFiles(AsyncFileRoutes):
    """`client.files`: uploaded files."""

    async def upload(
        self,
        source: Source,
        *,
        name: str | None = None,
        content_type: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> AsyncFileRef:
        """Uploads a file, given as its path, or bytes; see `AsyncClient.upload`."""
        return await self._client.upload(source, name=name, content_type=content_type, on_progress=on_progress)

    async def retrieve(self, file_id: str) -> AsyncFileRef:
        """Returns an uploaded file by its id. Its bytes are not downloaded; see `AsyncFileRef.read`."""
        path = f"/v1/files/{quote(file_id, safe='')}"
        raw = await self._client._run(self._client._api.get_json(path))
        url = self._client.base_url + path
        return self._client._file(
            FileInfo(raw["name"], url, raw["id"], raw["size_bytes"], None, raw.get("content_type"))
        )


class AsyncEndpoints(AsyncEndpointRoutes):
    """`client.endpoints`: endpoints and their versions. `client.endpoints()` is short for `client.endpoints.list()`."""

    async def __call__(self) -> builtins.list[Endpoint]:
        """Returns the current version of every endpoint."""
        return await self.list()

    async def deploy(
        self,
        path: str | PurePath,
        *,
        name: str | None = None,
        python: str | None = None,
        traffic_percent: int = 100,
        on_progress: OnProgress | None = None,
        **options: Unpack[DeployOptions],
    ) -> Endpoint:
        """Deploys a folder or a `.py` file as the next version of its endpoint; see `AsyncClient.deploy`."""
        return await self._client.deploy(
            path, name=name, python=python, traffic_percent=traffic_percent, on_progress=on_progress, **options
        )

    async def traffic(self, name: str) -> dict[int, int]:
        """Returns the versions of an endpoint that new jobs run on, each with its share of them in percent."""
        return await self._client.traffic(name)

    async def set_traffic(self, name: str, version: int, percent: int = 100) -> dict[int, int]:
        """Sends a share of new jobs to a version, and the rest to the current version. 100 makes it the current one.

        Jobs that were submitted before stay on their version. Returns the same as `traffic`.
        """
        return await self._client.set_traffic(name, version, percent)


class AsyncWorkers(AsyncWorkerRoutes):
    """`client.workers`: workers that have joined. `client.workers()` is short for `client.workers.list()`."""

    async def __call__(self) -> builtins.list[Worker]:
        """Returns the workers that have joined."""
        return await self.list()


class AsyncLimitsResource(AsyncLimitRoutes):
    """`client.limits`: limits of tenants. `client.limits()` is short for `client.limits.own()`.

    Those of other tenants require the scopes `limits:read` and `limits:write`.
    """

    async def __call__(self) -> Limits:
        """Returns your limits and how much of them is used."""
        return await self.own()
