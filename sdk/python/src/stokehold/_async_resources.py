"""The resources of the asynchronous client: batches, schedules, webhooks, feedback, pipelines."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from stokehold import _batches, _feedback, _schedules, _webhooks
from stokehold._api import job_path
from stokehold._batches import BatchOptions, BatchRecord, BatchState, Lines
from stokehold._feedback import Feedback, FeedbackStats
from stokehold._models import FileInfo, JobRecord
from stokehold._options import JobOptions, list_query
from stokehold._pipeline import Plans, Unsent
from stokehold._progress import progress_for
from stokehold._schedules import Missed, ScheduleRecord
from stokehold._transfer import OnProgress
from stokehold._webhooks import Delivery, DeliveryState, WebhookSecret

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from stokehold._async_client import AsyncClient
    from stokehold._async_job import AsyncJob


class AsyncBatches:
    """`client.batches`: many jobs from one file of lines."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

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
        """Makes a job of each line. `options` are those of `BatchOptions`.

        `lines` is a path, an open file, or any iterable of dicts such as `{"custom_id": "a", "input": {...}}`: it is
        streamed and never in memory as a whole, a `pathlib.Path` in a dict is uploaded, and `on_progress(sent_bytes,
        total_bytes)` is called as it goes. Instead, `input_file` names an uploaded file and `input_key` one that lies
        in the object store already. Repeating with the same `idempotency_key` and lines gives the same batch.
        """
        plan = _batches.create(
            self._client._api, endpoint, lines, input_file, input_key, options, idempotency_key, on_progress
        )
        return AsyncBatch(self._client, await self._client._run(plan))

    async def retrieve(self, batch_id: str) -> AsyncBatch:
        """A batch by its id."""
        return AsyncBatch(self._client, await self._client._run(_batches.get(self._client._api, batch_id)))

    async def list(self, *, state: BatchState | None = None, page_size: int = 100) -> AsyncIterator[AsyncBatch]:
        """Batches, newest first, fetched page by page as they are looked at."""
        query = list_query({"state": state}, page_size, ("state",))
        async for raw in self._client._pages(_batches.PATH, "batches", query):
            yield AsyncBatch(self._client, BatchRecord(raw))


class AsyncBatch(BatchRecord):
    """A batch as it was when last looked at; `refresh` and `wait` look again."""

    __slots__ = ("_client",)

    def __init__(self, client: AsyncClient, record: BatchRecord) -> None:
        super().__init__(record.raw)
        self._client = client

    def __repr__(self) -> str:
        return f"AsyncBatch({self.id!r}, endpoint={self.endpoint!r}, state={self.state!r})"

    async def refresh(self) -> AsyncBatch:
        """Looks again; returns itself."""
        self.raw = (await self._client._run(_batches.get(self._client._api, self.id))).raw
        return self

    async def wait(self, timeout: float | None = None, *, progress: bool = False) -> AsyncBatch:
        """Until it has ended, well or not; returns itself.

        `progress` shows how far it is, in a terminal or a notebook; elsewhere it shows nothing. Raises `WaitTimeout`
        after `timeout` seconds; the batch runs on.
        """
        show = progress_for() if progress else None
        try:
            self.raw = (await self._client._run(_batches.wait(self._client._api, self, timeout, show))).raw
        finally:
            if show is not None:
                show.done()
        return self

    def results(self) -> AsyncIterator[dict[str, Any]]:
        """The lines that succeeded, streamed, at any time: those there are so far.

        Each is `{"line", "custom_id", "job_id", "result"}`, in no certain order. Files in a result are `AsyncFileRef`s.
        A line with a large result has `result_url` instead: `await (await client.get(line["job_id"])).result()` fetches
        that.
        """
        return self._client._lines(_batches.lines(self._client._api, self.id, "results"))

    def errors(self) -> AsyncIterator[dict[str, Any]]:
        """The lines that have no result, streamed: `{"line", "custom_id", "job_id", "state", "error"}`.

        `state` is failed, expired, cancelled, or invalid for a line that never was a job.
        """
        return self._client._lines(_batches.lines(self._client._api, self.id, "errors"))

    async def cancel(self) -> AsyncBatch:
        """Ends what has not ended; returns itself. What succeeded before keeps its result."""
        self.raw = (await self._client._run(_batches.cancel(self._client._api, self.id))).raw
        return self

    async def retry_failed(self) -> AsyncBatch:
        """A new batch of the lines that failed or expired; raises `NothingToRetry`, or `Conflict` while it runs."""
        return AsyncBatch(self._client, await self._client._run(_batches.retry_failed(self._client._api, self.id)))


class AsyncSchedules:
    """`client.schedules`: jobs by the clock."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def create(
        self,
        *,
        cron: str,
        endpoint: str,
        input: Any = None,  # noqa: A002 (the API's word)
        name: str | None = None,
        time_zone: str | None = None,
        missed: Missed | None = None,
        grace_s: int | None = None,
        paused: bool | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[JobOptions],
    ) -> AsyncSchedule:
        """Submits a job at each time that `cron` names. `options` are those of `JobOptions`, of every job.

        cron: five fields, or six with seconds first.
        time_zone: such as "Europe/Paris"; default "UTC".
        missed: what to do about times that passed while nothing could be submitted: "skip", "run_once" (default) or
            "run_all". A time counts as missed when it is more than `grace_s` seconds (default 60) ago.
        idempotency_key: repeating with the same and the same arguments, within a day, gives the same schedule.
        """
        timing: dict[str, Any] = {"name": name, "cron": cron, "time_zone": time_zone, "missed": missed}
        timing.update(grace_s=grace_s, paused=paused)
        plan = _schedules.create(self._client._api, timing, endpoint, input, options, idempotency_key)
        return AsyncSchedule(self._client, await self._client._run(plan))

    async def retrieve(self, schedule_id: str) -> AsyncSchedule:
        """A schedule by its id."""
        return AsyncSchedule(self._client, await self._client._run(_schedules.get(self._client._api, schedule_id)))

    async def list(self, *, page_size: int = 100) -> AsyncIterator[AsyncSchedule]:
        """Every schedule, fetched page by page as they are looked at."""
        async for raw in self._client._pages(_schedules.PATH, "schedules", list_query({}, page_size)):
            yield AsyncSchedule(self._client, ScheduleRecord(raw))

    async def pause(self, schedule_id: str) -> AsyncSchedule:
        """Submits nothing until it is resumed."""
        return AsyncSchedule(
            self._client, await self._client._run(_schedules.change(self._client._api, schedule_id, "pause"))
        )

    async def resume(self, schedule_id: str) -> AsyncSchedule:
        """Goes on with the next time that its `cron` names."""
        return AsyncSchedule(
            self._client, await self._client._run(_schedules.change(self._client._api, schedule_id, "resume"))
        )

    async def delete(self, schedule_id: str) -> None:
        """Ends it. Jobs that it has submitted run on."""
        await self._client._run(_schedules.delete(self._client._api, schedule_id))


class AsyncSchedule(ScheduleRecord):
    """A schedule as it was when last looked at."""

    __slots__ = ("_client",)

    def __init__(self, client: AsyncClient, record: ScheduleRecord) -> None:
        super().__init__(record.raw)
        self._client = client

    def __repr__(self) -> str:
        return f"AsyncSchedule({self.id!r}, name={self.name!r}, cron={self.cron!r})"

    async def refresh(self) -> AsyncSchedule:
        """Looks again; returns itself."""
        self.raw = (await self._client.schedules.retrieve(self.id)).raw
        return self

    async def pause(self) -> AsyncSchedule:
        """Submits nothing until it is resumed; returns itself."""
        self.raw = (await self._client.schedules.pause(self.id)).raw
        return self

    async def resume(self) -> AsyncSchedule:
        """Goes on with the next time that its `cron` names; returns itself."""
        self.raw = (await self._client.schedules.resume(self.id)).raw
        return self

    async def delete(self) -> None:
        """Ends it. Jobs that it has submitted run on."""
        await self._client.schedules.delete(self.id)


class AsyncWebhooks:
    """`client.webhooks`: the secret that deliveries are signed with, and what was delivered. See `verify_webhook`."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def secret(self) -> WebhookSecret:
        """The secret, and the previous one while that still signs too."""
        return await self._client._run(_webhooks.secret(self._client._api))

    async def rotate_secret(self) -> WebhookSecret:
        """A new secret. For 24 hours each delivery carries the old one's signature as well."""
        return await self._client._run(_webhooks.rotate_secret(self._client._api))

    async def deliveries(
        self,
        *,
        job: str | None = None,
        batch: str | None = None,
        state: DeliveryState | None = None,
        page_size: int = 100,
    ) -> AsyncIterator[Delivery]:
        """What was delivered or is to be, newest first, fetched page by page. `job` and `batch` are ids."""
        query = list_query({"job": job, "batch": batch, "state": state}, page_size, ("job", "batch", "state"))
        async for raw in self._client._pages(_webhooks.DELIVERIES_PATH, "deliveries", query):
            yield Delivery.decode(raw)

    async def delivery(self, delivery_id: str) -> Delivery:
        """One delivery by its id."""
        return await self._client._run(_webhooks.delivery(self._client._api, delivery_id))

    async def replay(self, delivery_id: str) -> Delivery:
        """Delivers it once more, under the same `webhook-id`."""
        return await self._client._run(_webhooks.replay(self._client._api, delivery_id))


class AsyncFeedbackRoutes:
    """`client.feedback`: what people thought of results."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def give(
        self,
        job_id: str,
        *,
        accepted: bool | None = None,
        score: int | None = None,
        labels: Sequence[str] | None = None,
        comment: str | None = None,
    ) -> Feedback:
        """Says something of a job's result; see `AsyncJob.feedback`."""
        path = job_path(job_id)
        return await self._client._run(_feedback.give(self._client._api, path, accepted, score, labels, comment))

    async def stats(self, endpoint: str | None = None) -> builtins.list[FeedbackStats]:
        """How each version was rated, of one endpoint or of all."""
        return await self._client._run(_feedback.stats(self._client._api, endpoint))

    def export(
        self,
        *,
        endpoint: str | None = None,
        version: int | None = None,
        sample: int | None = None,
        seed: int | None = None,
    ) -> AsyncIterator[dict[str, Any]]:
        """A random sample (1 to 100,000, default 1,000) of rated jobs with their inputs and results, streamed.

        Each is `{"job_id", "endpoint", "version", "input", "result" or "result_url", "accepted", "score", "labels",
        "comment", "at"}`. The same `seed` draws the same sample again; without one, each call draws another.
        """
        return self._client._lines(_feedback.export(self._client._api, endpoint, version, sample, seed))


class AsyncPipeline:
    """Jobs that use each other's results, sent as one request when its `async with` block ends: all of them, or none.

    ```python
    async with client.pipeline() as p:
        check = p.submit("prompt-check", {"prompt": "dusk"})
        image = p.submit("render", {"prompt": check["prompt"]}, depends_on=[check])
    await image.result(timeout=60)
    ```

    A job in an input stands for its result, `job["a"][0]` for a part of it; either makes it a dependency, as does
    `depends_on`. The API fills it in when that job has succeeded.
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
        """Plans a job. `options` are those of `JobOptions`. It can be waited for after the block."""
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
