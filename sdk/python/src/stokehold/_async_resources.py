"""The resources of the asynchronous client: batches, schedules, webhooks, feedback, pipelines."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from stokehold import _batches, _feedback, _schedules, _webhooks
from stokehold._api import job_path
from stokehold._batches import BatchOptions, BatchRecord, BatchState, Lines
from stokehold._feedback import Feedback, FeedbackStats, Rating
from stokehold._generated._async_routes import AsyncBatchRoutes
from stokehold._models import FileInfo, JobRecord
from stokehold._options import JobOptions, list_query
from stokehold._pipeline import Plans, Unsent
from stokehold._progress import progress_for
from stokehold._schedules import ScheduleOptions, ScheduleRecord
from stokehold._transfer import OnProgress
from stokehold._webhooks import Delivery, DeliveryState, WebhookSecret

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from stokehold._async_client import AsyncClient
    from stokehold._async_job import AsyncJob


class AsyncBatches(AsyncBatchRoutes):
    """`client.batches`: many jobs from one file of lines."""

    async def create(
        self,
        endpoint: str,
        lines: Lines | None = None,
        *,
        input_file: FileInfo | str | None = None,
        input_key: str | None = None,
        idempotency_key: str | None = None,
        on_progress: OnProgress | None = None,
        **options: Unpack[BatchOptions],
    ) -> AsyncBatch:
        """Creates a batch, with a job for each line. `options` are the members of `BatchOptions`.

        Exactly one of `lines`, `input_file` and `input_key` is required.

        lines: a path, an open file, or an iterable of dicts, e.g. `{"custom_id": "a", "input": {...}}`. Lines are
            streamed and never held in memory as a whole. A `pathlib.Path` in a dict is uploaded.
        input_file: an uploaded file, or its id.
        input_key: the key of a file in the object store.
        idempotency_key: a second call with the same key and the same lines returns the same batch.
        on_progress: called with `(sent_bytes, total_bytes)` while `lines` are sent.

        ```python
        batch = await client.batches.create("embed", pathlib.Path("lines.jsonl"), deadline_s=86_400)
        await batch.wait(progress=True)
        ```
        """
        plan = _batches.create(
            self._client._api, endpoint, lines, input_file, input_key, options, idempotency_key, on_progress
        )
        return AsyncBatch(self._client, await self._client._run(plan))

    async def retrieve(self, batch_id: str) -> AsyncBatch:
        """Returns a batch by its id."""
        return AsyncBatch(self._client, await self._client._run(_batches.get(self._client._api, batch_id)))

    async def list(self, *, state: BatchState | None = None, page_size: int = 100) -> AsyncIterator[AsyncBatch]:
        """Lists batches, newest first, fetched page by page."""
        query = list_query({"state": state}, page_size, ("state",))
        async for raw in self._client._pages(_batches.PATH, "batches", query):
            yield AsyncBatch(self._client, BatchRecord(raw))


class AsyncBatch(BatchRecord):
    """A batch in the state that was last fetched. `refresh` and `wait` update it."""

    __slots__ = ("_client",)

    def __init__(self, client: AsyncClient, record: BatchRecord) -> None:
        super().__init__(record.raw)
        self._client = client

    def __repr__(self) -> str:
        return f"AsyncBatch({self.id!r}, endpoint={self.endpoint!r}, state={self.state!r})"

    async def refresh(self) -> AsyncBatch:
        """Fetches the current state; returns itself."""
        self.raw = (await self._client._run(_batches.get(self._client._api, self.id))).raw
        return self

    async def wait(self, timeout: float | None = None, *, progress: bool = False) -> AsyncBatch:
        """Waits until the batch has ended, in any state; returns itself.

        Raises `WaitTimeout` after `timeout` seconds; the batch continues. `progress` shows a progress bar in a terminal
        or a notebook, and nothing elsewhere.
        """
        show = progress_for() if progress else None
        try:
            self.raw = (await self._client._run(_batches.wait(self._client._api, self, timeout, show))).raw
        finally:
            if show is not None:
                show.done()
        return self

    def results(self) -> AsyncIterator[dict[str, Any]]:
        """Streams the lines that have succeeded so far, in no particular order.

        Each is `{"line", "custom_id", "job_id", "result"}`. Files in a result are `AsyncFileRef`s. A line with a large
        result has `result_url` instead; fetch that result with `await (await client.get(line["job_id"])).result()`.
        """
        return self._client._lines(_batches.lines(self._client._api, self.id, "results"))

    def errors(self) -> AsyncIterator[dict[str, Any]]:
        """Streams the lines that have no result, each as `{"line", "custom_id", "job_id", "state", "error"}`.

        `state` is failed, expired or cancelled, or invalid for a line that did not become a job.
        """
        return self._client._lines(_batches.lines(self._client._api, self.id, "errors"))

    async def cancel(self) -> AsyncBatch:
        """Cancels the jobs that have not ended; returns itself. Results of earlier jobs are kept."""
        self.raw = (await self._client._run(_batches.cancel(self._client._api, self.id))).raw
        return self

    async def retry_failed(self) -> AsyncBatch:
        """Creates a batch of the lines that failed or expired.

        Raises `NothingToRetry` if there are none, or `Conflict` while this batch runs.
        """
        return AsyncBatch(self._client, await self._client._run(_batches.retry_failed(self._client._api, self.id)))


class AsyncSchedules:
    """`client.schedules`: jobs submitted at set times."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def create(
        self,
        *,
        cron: str,
        endpoint: str,
        input: Any = None,  # noqa: A002 (the API's word)
        idempotency_key: str | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> AsyncSchedule:
        """Creates a schedule, which submits a job at each time that matches `cron`.

        `options` are the members of `ScheduleTiming`, and those of `JobOptions`, which apply to every job.

        cron: five fields, or six with seconds first.
        idempotency_key: a second call with the same key and the same arguments, within a day, returns the same
            schedule.

        ```python
        await client.schedules.create(cron="0 6 * * 1-5", time_zone="Europe/Berlin", endpoint="report", input={})
        ```
        """
        plan = _schedules.create(self._client._api, cron, endpoint, input, options, idempotency_key)
        return AsyncSchedule(self._client, await self._client._run(plan))

    async def retrieve(self, schedule_id: str) -> AsyncSchedule:
        """Returns a schedule by its id."""
        return AsyncSchedule(self._client, await self._client._run(_schedules.get(self._client._api, schedule_id)))

    async def list(self, *, page_size: int = 100) -> AsyncIterator[AsyncSchedule]:
        """Lists every schedule, fetched page by page."""
        async for raw in self._client._pages(_schedules.PATH, "schedules", list_query({}, page_size)):
            yield AsyncSchedule(self._client, ScheduleRecord(raw))

    async def pause(self, schedule_id: str) -> AsyncSchedule:
        """Pauses a schedule: it submits no job until it is resumed."""
        return AsyncSchedule(
            self._client, await self._client._run(_schedules.change(self._client._api, schedule_id, "pause"))
        )

    async def resume(self, schedule_id: str) -> AsyncSchedule:
        """Resumes a schedule from the next time that matches its `cron`."""
        return AsyncSchedule(
            self._client, await self._client._run(_schedules.change(self._client._api, schedule_id, "resume"))
        )

    async def delete(self, schedule_id: str) -> None:
        """Deletes a schedule. Jobs that it has submitted continue."""
        await self._client._run(_schedules.delete(self._client._api, schedule_id))


class AsyncSchedule(ScheduleRecord):
    """A schedule in the state that was last fetched."""

    __slots__ = ("_client",)

    def __init__(self, client: AsyncClient, record: ScheduleRecord) -> None:
        super().__init__(record.raw)
        self._client = client

    def __repr__(self) -> str:
        return f"AsyncSchedule({self.id!r}, name={self.name!r}, cron={self.cron!r})"

    async def refresh(self) -> AsyncSchedule:
        """Fetches the current state; returns itself."""
        self.raw = (await self._client.schedules.retrieve(self.id)).raw
        return self

    async def pause(self) -> AsyncSchedule:
        """Pauses the schedule: it submits no job until it is resumed. Returns itself."""
        self.raw = (await self._client.schedules.pause(self.id)).raw
        return self

    async def resume(self) -> AsyncSchedule:
        """Resumes the schedule from the next time that matches its `cron`; returns itself."""
        self.raw = (await self._client.schedules.resume(self.id)).raw
        return self

    async def delete(self) -> None:
        """Deletes the schedule. Jobs that it has submitted continue."""
        await self._client.schedules.delete(self.id)


class AsyncWebhooks:
    """`client.webhooks`: the signing secret and the deliveries. See also `verify_webhook`."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def secret(self) -> WebhookSecret:
        """Returns the signing secret, and the previous one while deliveries are also signed with that."""
        return await self._client._run(_webhooks.secret(self._client._api))

    async def rotate_secret(self) -> WebhookSecret:
        """Replaces the signing secret. For 24 hours, deliveries are also signed with the previous one.

        The request is not repeated: a second rotation would invalidate a secret that receivers still use.
        """
        return await self._client._run(_webhooks.rotate_secret(self._client._api))

    async def deliveries(
        self,
        *,
        job: str | None = None,
        batch: str | None = None,
        state: DeliveryState | None = None,
        page_size: int = 100,
    ) -> AsyncIterator[Delivery]:
        """Lists deliveries, past and pending, newest first, fetched page by page. `job` and `batch` are ids."""
        query = list_query({"job": job, "batch": batch, "state": state}, page_size, ("job", "batch", "state"))
        async for raw in self._client._pages(_webhooks.DELIVERIES_PATH, "deliveries", query):
            yield Delivery.decode(raw)

    async def delivery(self, delivery_id: str) -> Delivery:
        """Returns a delivery by its id."""
        return await self._client._run(_webhooks.delivery(self._client._api, delivery_id))

    async def replay(self, delivery_id: str) -> Delivery:
        """Sends a delivery again, with the same `webhook-id`."""
        return await self._client._run(_webhooks.replay(self._client._api, delivery_id))


class AsyncFeedbackRoutes:
    """`client.feedback`: ratings of results."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def give(self, job_id: str, **rating: Unpack[Rating]) -> Feedback:
        """Rates the result of a job; see `AsyncJob.feedback`."""
        return await self._client._run(_feedback.give(self._client._api, job_path(job_id), rating))

    async def stats(self, endpoint: str | None = None) -> builtins.list[FeedbackStats]:
        """Returns the ratings of each version, of one endpoint or of all."""
        return await self._client._run(_feedback.stats(self._client._api, endpoint))

    def export(
        self,
        *,
        endpoint: str | None = None,
        version: int | None = None,
        sample: int | None = None,
        seed: int | None = None,
    ) -> AsyncIterator[dict[str, Any]]:
        """Streams a random sample (1 to 100,000, default 1,000) of rated jobs, with their inputs and results.

        Each is `{"job_id", "endpoint", "version", "input", "result" or "result_url", "accepted", "score", "labels",
        "comment", "at"}`. The same `seed` returns the same sample; without a seed, each call draws another.
        """
        return self._client._lines(_feedback.export(self._client._api, endpoint, version, sample, seed))


class AsyncPipeline:
    """Jobs that use each other's results, sent as one request at the end of an `async with` block: all, or none.

    ```python
    async with client.pipeline() as p:
        check = p.submit("prompt-check", {"prompt": "dusk"})
        image = p.submit("render", {"prompt": check["prompt"]}, depends_on=[check])
    await image.result(timeout=60)
    ```

    A job in an input is replaced by its result, and `job["a"][0]` by that part of its result, once that job has
    succeeded. Either makes it a dependency, as does `depends_on`.
    """

    def __init__(self, client: AsyncClient, idempotency_key: str | None) -> None:
        self._client = client
        self._plans: Plans[AsyncJob] = Plans(idempotency_key)

    def submit(
        self,
        endpoint: str,
        input: Any = None,  # noqa: A002 (the API's word)
        **options: Unpack[JobOptions],
    ) -> AsyncJob:
        """Adds a job, which can be waited for after the block. `options` are the members of `JobOptions`."""
        return self._plans.add(endpoint, input, options, self._planned)

    async def __aenter__(self) -> AsyncPipeline:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._plans.drop()
            return
        await self._client._run(self._plans.send(self._client._api, self._adopt))

    def _planned(self, record: JobRecord) -> AsyncJob:
        unsent: Any = Unsent()
        job = self._client._job(record)
        job._client = unsent
        return job

    def _adopt(self, job: AsyncJob, record: JobRecord) -> None:
        job.raw, job._client = record.raw, self._client
