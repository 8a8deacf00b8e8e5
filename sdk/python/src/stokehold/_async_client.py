"""The asynchronous client."""

from __future__ import annotations

import builtins
import random
from collections.abc import AsyncIterator, Iterable
from pathlib import PurePath
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from stokehold._api import Api, Source, user_agent
from stokehold._async_job import AsyncFileRef, AsyncJob
from stokehold._async_resources import (
    AsyncBatches,
    AsyncFeedbackRoutes,
    AsyncPipeline,
    AsyncSchedules,
    AsyncWebhooks,
)
from stokehold._async_transport import AsyncTransport
from stokehold._calls import Pairs
from stokehold._config import load_settings
from stokehold._deploy import deploy
from stokehold._errors import StokeholdError
from stokehold._events import Event
from stokehold._lines import LineReader
from stokehold._models import Endpoint, FileInfo, JobRecord, Limits, Retried, Worker
from stokehold._options import JobFilter, JobOptions, deploy_options, job_filter, job_options, list_query
from stokehold._request import OK, Call, Pause, Plan, Reply, transport_error
from stokehold._retry import Retry
from stokehold._transfer import OnProgress

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


class AsyncClient:
    """Speaks to one Stokehold API. Belongs to one event loop; close it, or use it in an `async with`.

    `base_url` falls back to STOKE_URL, then to what `stoke dev` wrote down, then to http://127.0.0.1:7070; `token` to
    STOKE_TOKEN, then to what `stoke dev` wrote down for that URL. `timeout_s` is the longest silence while an answer
    is due; what the API is asked to hold comes on top. `transport` replaces the network, for a test or your own proxy.
    """

    def __init__(
        self,
        base_url: str | None = None,
        token: str | None = None,
        *,
        timeout_s: float = 30.0,
        retry: Retry | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._api = Api(load_settings(base_url, token), retry or Retry(), timeout_s, user_agent("async"))
        self._transport = AsyncTransport(transport)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"AsyncClient({self.base_url!r})"

    @property
    def base_url(self) -> str:
        return self._api.settings.base_url

    async def aclose(self) -> None:
        """Closes its connections."""
        await self._transport.aclose()

    async def submit(
        self,
        endpoint: str,
        input: Any = None,  # noqa: A002 (the API's word)
        *,
        idempotency_key: str | None = None,
        wait_s: float = 0,
        **options: Unpack[JobOptions],
    ) -> AsyncJob:
        """Queues one job. `options` are those of `JobOptions`.

        A `pathlib.Path` or a file anywhere in `input` is uploaded first. A job in it stands for that job's result, and
        `job["boxes"][0]` for a part: the API fills it in when that job has succeeded. `wait_s` (at most 60)
        holds the answer until the job has ended, if it does by then. Repeating with the same `idempotency_key` and the
        same arguments gives the same job.
        """
        members = job_options(options)
        return AsyncJob(self, await self._run(self._api.submit(endpoint, input, members, idempotency_key, wait_s)))

    async def submit_many(
        self,
        endpoint: str,
        inputs: Iterable[Any],
        *,
        idempotency_key: str | None = None,
        **options: Unpack[JobOptions],
    ) -> builtins.list[AsyncJob]:
        """Queues one job for each input, in order, 1,000 with each request. `options` are those of `JobOptions`.

        Each request is accepted whole or not at all; when a later one fails, `PartlySubmitted` holds the earlier jobs.
        """
        members = job_options(options)
        return await self._run(
            self._api.submit_many(endpoint, inputs, members, idempotency_key, lambda record: AsyncJob(self, record))
        )

    async def get(self, job_id: str) -> AsyncJob:
        """A job by its id."""
        return AsyncJob(self, await self._run(self._api.get(job_id)))

    async def cancel(self, job_id: str) -> AsyncJob:
        """Ends a job without a result. Raises `Conflict` when it has already ended otherwise."""
        return AsyncJob(self, await self._run(self._api.cancel(job_id)))

    async def list(self, *, page_size: int = 100, **selected: Unpack[JobFilter]) -> AsyncIterator[AsyncJob]:
        """Jobs, newest first, fetched page by page (at most 100 each) as they are looked at.

        `selected` are the members of `JobFilter`; without any, all jobs.
        """
        async for raw in self._pages("/v1/jobs", "jobs", list_query(selected, page_size)):
            yield AsyncJob(self, JobRecord(raw))

    def events(self, job: JobRecord | str) -> AsyncIterator[Event]:
        """A job's events, by the job or its id; see `AsyncJob.events`."""
        return self._events(job if isinstance(job, str) else job.id)

    async def retry(self, job_id: str, *, same_version: bool = False) -> AsyncJob:
        """Does a job again that failed, expired or was cancelled: a new job, whose `retry_of` is the old one's id.

        It runs on the current version of the endpoint, unless the old one was submitted for a version or `same_version`
        is set.
        While the new one has not ended, asking again gives the same. Raises `NotRetryable`.
        """
        return AsyncJob(self, await self._run(self._api.retry_job(job_id, same_version)))

    async def retry_jobs(
        self, *, limit: int | None = None, same_version: bool = False, **selected: Unpack[JobFilter]
    ) -> builtins.list[Retried]:
        """Does again what failed or expired, and was not done again yet, of the jobs that `selected` names.

        `selected` are the members of `JobFilter`, at least one. Goes on, 1,000 with each request, until none is left or
        `limit` are done. They run on the current version of their endpoint, as with `retry`.
        """
        return await self._run(self._api.retry_jobs(job_filter(selected), limit, same_version))

    async def cancel_jobs(self, *, limit: int | None = None, **selected: Unpack[JobFilter]) -> int:
        """Cancels the jobs that `selected` names and that have not ended, at most `limit`; returns how many.

        `selected` are the members of `JobFilter`, at least one. Goes on, 1,000 with each request, until none is left or
        `limit` are done.
        """
        return await self._run(self._api.cancel_jobs(job_filter(selected), limit))

    async def dead_letters(
        self, *, endpoint: str | None = None, error_code: str | None = None, page_size: int = 100
    ) -> AsyncIterator[AsyncJob]:
        """Jobs that failed or expired and were not done again, newest first, fetched page by page."""
        query = list_query({"endpoint": endpoint, "error_code": error_code}, page_size)
        async for raw in self._pages("/v1/dead-letters", "jobs", query):
            yield AsyncJob(self, JobRecord(raw))

    def pipeline(self, *, idempotency_key: str | None = None) -> AsyncPipeline:
        """Jobs that use each other's results, sent together where its `async with` block ends; see `AsyncPipeline`."""
        return AsyncPipeline(self, idempotency_key)

    @property
    def batches(self) -> AsyncBatches:
        """Many jobs from one file of lines."""
        return AsyncBatches(self)

    @property
    def schedules(self) -> AsyncSchedules:
        """Jobs by the clock."""
        return AsyncSchedules(self)

    @property
    def webhooks(self) -> AsyncWebhooks:
        """The secret that deliveries are signed with, and what was delivered."""
        return AsyncWebhooks(self)

    @property
    def feedback(self) -> AsyncFeedbackRoutes:
        """What people thought of results."""
        return AsyncFeedbackRoutes(self)

    async def limits(self) -> Limits:
        """Your own limits, and how much of them is used."""
        return await self._run(self._api.limits())

    async def upload(
        self,
        source: Source,
        *,
        name: str | None = None,
        content_type: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> AsyncFileRef:
        """Uploads a file, named by its path, or bytes; what comes back may stand anywhere in an input.

        `on_progress(sent_bytes, total_bytes)` is called as it goes.
        """
        return self._file(await self._run(self._api.upload(source, name, content_type, on_progress)))

    async def deploy(
        self,
        path: str | PurePath,
        *,
        name: str | None = None,
        python: str | None = None,
        vram_gib: float | None = None,
        max_concurrency: int | None = None,
        timeout_s: int | None = None,
        max_attempts: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> Endpoint:
        """Deploys a folder or a `.py` file (`file.py:object` picks a handler) as the next version of its endpoint.

        The packages it needs are those in `requirements.lock`, or in `requirements.txt` resolved by uv for `python`
        ("3.11"; the running one's version when not given). The other arguments overrule what the handler says.
        """
        options = deploy_options(vram_gib, max_concurrency, timeout_s, max_attempts)
        return await self._run(deploy(self._api, str(path), name, python, options, on_progress))

    async def endpoint(self, name: str) -> Endpoint:
        """The version of an endpoint that new jobs run on."""
        return await self._run(self._api.endpoint(name))

    async def endpoints(self) -> builtins.list[Endpoint]:
        """Every endpoint's current version."""
        return await self._run(self._api.endpoints())

    async def versions(self, name: str) -> builtins.list[Endpoint]:
        """Every version of an endpoint, newest first."""
        return await self._run(self._api.versions(name))

    async def traffic(self, name: str) -> dict[int, int]:
        """The versions of an endpoint that new jobs run on, each with its part of them, percent."""
        return await self._run(self._api.traffic(name))

    async def set_traffic(self, name: str, version: int, percent: int = 100) -> dict[int, int]:
        """Gives a version this part of new jobs, and the current one the rest; with 100 it is the current one.

        Jobs that were submitted before stay with their version. Returns what `traffic` does.
        """
        return await self._run(self._api.set_traffic(name, version, percent))

    async def workers(self) -> builtins.list[Worker]:
        """The workers that have joined."""
        return await self._run(self._api.workers())

    def _file(self, info: FileInfo) -> AsyncFileRef:
        return AsyncFileRef(**vars(info), client=self)

    def _job(self, record: JobRecord) -> AsyncJob:
        return AsyncJob(self, record)

    async def _pages(self, path: str, member: str, query: Pairs) -> AsyncIterator[dict[str, Any]]:
        cursor: str | None = None
        while True:
            found, cursor = await self._run(self._api.page(path, member, query, cursor))
            for raw in found:
                yield raw
            if cursor is None:
                return

    async def _run(self, plan: Plan[T]) -> T:
        """Carries out the steps of a plan and returns its result."""
        outcome: Any = None
        try:
            while True:
                step = plan.send(outcome)
                if isinstance(step, Call):
                    outcome = await self._perform(step)
                elif isinstance(step, Pause):
                    await self._transport.sleep(step.seconds)
                else:
                    outcome = await self._transport.run_blocking(step.run)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            plan.close()

    async def _perform(self, call: Call) -> Reply | StokeholdError:
        try:
            async with self._transport.send(call) as response:
                if call.sink is None or response.status_code != OK:
                    return Reply(response.status_code, response.headers, await response.aread())
                call.sink.start()
                async for chunk in response.aiter_bytes():
                    await self._transport.run_blocking(call.sink.write, chunk)
                return Reply(response.status_code, response.headers, b"")
        except (httpx.RequestError, httpx.InvalidURL) as error:
            return transport_error(call, error)

    async def _events(self, job_id: str) -> AsyncIterator[Event]:
        reader = self._api.events(job_id, self._file)
        while not reader.done:
            outcome: Reply | StokeholdError | None = None
            call = reader.call()
            try:
                async with self._transport.send(call) as response:
                    if response.status_code == OK:
                        async for chunk in response.aiter_bytes():
                            for event in reader.feed(chunk):
                                yield event
                    else:
                        outcome = Reply(response.status_code, response.headers, await response.aread())
            except (httpx.RequestError, httpx.InvalidURL) as error:
                outcome = transport_error(call, error)
            if not reader.done:
                pause_s = reader.pause_s(outcome, random.random())  # noqa: S311 (jitter is no secret)
                await self._transport.sleep(pause_s)

    async def _lines(self, reader: LineReader) -> AsyncIterator[dict[str, Any]]:
        while not reader.done:
            call = reader.call()
            try:
                async with self._transport.send(call) as response:
                    if response.status_code == OK:
                        async for chunk in response.aiter_bytes():
                            for line in reader.feed(chunk):
                                yield self._api.hydrate(line, self._file)
                        for line in reader.end():
                            yield self._api.hydrate(line, self._file)
                        return
                    outcome: Reply | StokeholdError = Reply(
                        response.status_code, response.headers, await response.aread()
                    )
            except (httpx.RequestError, httpx.InvalidURL) as error:
                outcome = transport_error(call, error)
            pause_s = reader.pause_s(outcome, random.random())  # noqa: S311 (jitter is no secret)
            await self._transport.sleep(pause_s)
