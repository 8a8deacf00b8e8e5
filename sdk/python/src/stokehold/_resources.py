# Generated from _async_resources.py by `make sync-client`; do not edit.
"""The resources of the synchronous client: batches, schedules, webhooks, feedback, pipelines."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from stokehold import _batches, _feedback, _schedules, _webhooks
from stokehold._api import job_path
from stokehold._batches import BatchOptions, BatchRecord, BatchState, Lines
from stokehold._feedback import Feedback, FeedbackStats, Rating
from stokehold._generated._routes import BatchRoutes
from stokehold._models import FileInfo, JobRecord
from stokehold._options import JobOptions, list_query
from stokehold._pipeline import Plans, Unsent
from stokehold._progress import progress_for
from stokehold._schedules import ScheduleOptions, ScheduleRecord
from stokehold._transfer import OnProgress
from stokehold._webhooks import Delivery, DeliveryState, WebhookSecret

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from stokehold._client import Client
    from stokehold._job import Job


class Batches(BatchRoutes):
    """`client.batches`: many jobs from one file of lines."""

    def create(
        self,
        endpoint: str,
        lines: Lines | None = None,
        *,
        input_file: FileInfo | str | None = None,
        input_key: str | None = None,
        idempotency_key: str | None = None,
        on_progress: OnProgress | None = None,
        **options: Unpack[BatchOptions],
    ) -> Batch:
        """Creates a batch, with a job for each line. `options` are the members of `BatchOptions`.

        Exactly one of `lines`, `input_file` and `input_key` is required.

        lines: a path, an open file, or an iterable of dicts, e.g. `{"custom_id": "a", "input": {...}}`. Lines are
            streamed and never held in memory as a whole. A `pathlib.Path` in a dict is uploaded.
        input_file: an uploaded file, or its id.
        input_key: the key of a file in the object store.
        idempotency_key: a second call with the same key and the same lines returns the same batch.
        on_progress: called with `(sent_bytes, total_bytes)` while `lines` are sent.

        ```python
        batch = client.batches.create("embed", pathlib.Path("lines.jsonl"), deadline_s=86_400)
        batch.wait(progress=True)
        ```
        """
        plan = _batches.create(
            self._client._api, endpoint, lines, input_file, input_key, options, idempotency_key, on_progress
        )
        return Batch(self._client, self._client._run(plan))

    def retrieve(self, batch_id: str) -> Batch:
        """Returns a batch by its id."""
        return Batch(self._client, self._client._run(_batches.get(self._client._api, batch_id)))

    def list(self, *, state: BatchState | None = None, page_size: int = 100) -> Iterator[Batch]:
        """Lists batches, newest first, fetched page by page."""
        query = list_query({"state": state}, page_size, ("state",))
        for raw in self._client._pages(_batches.PATH, "batches", query):
            yield Batch(self._client, BatchRecord(raw))


class Batch(BatchRecord):
    """A batch in the state that was last fetched. `refresh` and `wait` update it."""

    __slots__ = ("_client",)

    def __init__(self, client: Client, record: BatchRecord) -> None:
        super().__init__(record.raw)
        self._client = client

    def __repr__(self) -> str:
        return f"Batch({self.id!r}, endpoint={self.endpoint!r}, state={self.state!r})"

    def refresh(self) -> Batch:
        """Fetches the current state; returns itself."""
        self.raw = self._client._run(_batches.get(self._client._api, self.id)).raw
        return self

    def wait(self, timeout: float | None = None, *, progress: bool = False) -> Batch:
        """Waits until the batch has ended, in any state; returns itself.

        Raises `WaitTimeout` after `timeout` seconds; the batch continues. `progress` shows a progress bar in a terminal
        or a notebook, and nothing elsewhere.
        """
        show = progress_for() if progress else None
        try:
            self.raw = self._client._run(_batches.wait(self._client._api, self, timeout, show)).raw
        finally:
            if show is not None:
                show.done()
        return self

    def results(self) -> Iterator[dict[str, Any]]:
        """Streams the lines that have succeeded so far, in no particular order.

        Each is `{"line", "custom_id", "job_id", "result"}`. Files in a result are `FileRef`s. A line with a large
        result has `result_url` instead; fetch that result with `client.get(line["job_id"]).result()`.
        """
        return self._client._lines(_batches.lines(self._client._api, self.id, "results"))

    def errors(self) -> Iterator[dict[str, Any]]:
        """Streams the lines that have no result, each as `{"line", "custom_id", "job_id", "state", "error"}`.

        `state` is failed, expired or cancelled, or invalid for a line that did not become a job.
        """
        return self._client._lines(_batches.lines(self._client._api, self.id, "errors"))

    def cancel(self) -> Batch:
        """Cancels the jobs that have not ended; returns itself. Results of earlier jobs are kept."""
        self.raw = self._client._run(_batches.cancel(self._client._api, self.id)).raw
        return self

    def retry_failed(self) -> Batch:
        """Creates a batch of the lines that failed or expired.

        Raises `NothingToRetry` if there are none, or `Conflict` while this batch runs.
        """
        return Batch(self._client, self._client._run(_batches.retry_failed(self._client._api, self.id)))


class Schedules:
    """`client.schedules`: jobs submitted at set times."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def create(
        self,
        *,
        cron: str,
        endpoint: str,
        input: Any = None,  # noqa: A002 (the API's word)
        idempotency_key: str | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """Creates a schedule, which submits a job at each time that matches `cron`.

        `options` are the members of `ScheduleTiming`, and those of `JobOptions`, which apply to every job.

        cron: five fields, or six with seconds first.
        idempotency_key: a second call with the same key and the same arguments, within a day, returns the same
            schedule.

        ```python
        client.schedules.create(cron="0 6 * * 1-5", time_zone="Europe/Berlin", endpoint="report", input={})
        ```
        """
        plan = _schedules.create(self._client._api, cron, endpoint, input, options, idempotency_key)
        return Schedule(self._client, self._client._run(plan))

    def retrieve(self, schedule_id: str) -> Schedule:
        """Returns a schedule by its id."""
        return Schedule(self._client, self._client._run(_schedules.get(self._client._api, schedule_id)))

    def list(self, *, page_size: int = 100) -> Iterator[Schedule]:
        """Lists every schedule, fetched page by page."""
        for raw in self._client._pages(_schedules.PATH, "schedules", list_query({}, page_size)):
            yield Schedule(self._client, ScheduleRecord(raw))

    def pause(self, schedule_id: str) -> Schedule:
        """Pauses a schedule: it submits no job until it is resumed."""
        return Schedule(self._client, self._client._run(_schedules.change(self._client._api, schedule_id, "pause")))

    def resume(self, schedule_id: str) -> Schedule:
        """Resumes a schedule from the next time that matches its `cron`."""
        return Schedule(self._client, self._client._run(_schedules.change(self._client._api, schedule_id, "resume")))

    def delete(self, schedule_id: str) -> None:
        """Deletes a schedule. Jobs that it has submitted continue."""
        self._client._run(_schedules.delete(self._client._api, schedule_id))


class Schedule(ScheduleRecord):
    """A schedule in the state that was last fetched."""

    __slots__ = ("_client",)

    def __init__(self, client: Client, record: ScheduleRecord) -> None:
        super().__init__(record.raw)
        self._client = client

    def __repr__(self) -> str:
        return f"Schedule({self.id!r}, name={self.name!r}, cron={self.cron!r})"

    def refresh(self) -> Schedule:
        """Fetches the current state; returns itself."""
        self.raw = self._client.schedules.retrieve(self.id).raw
        return self

    def pause(self) -> Schedule:
        """Pauses the schedule: it submits no job until it is resumed. Returns itself."""
        self.raw = self._client.schedules.pause(self.id).raw
        return self

    def resume(self) -> Schedule:
        """Resumes the schedule from the next time that matches its `cron`; returns itself."""
        self.raw = self._client.schedules.resume(self.id).raw
        return self

    def delete(self) -> None:
        """Deletes the schedule. Jobs that it has submitted continue."""
        self._client.schedules.delete(self.id)


class Webhooks:
    """`client.webhooks`: the signing secret and the deliveries. See also `verify_webhook`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def secret(self) -> WebhookSecret:
        """Returns the signing secret, and the previous one while deliveries are also signed with that."""
        return self._client._run(_webhooks.secret(self._client._api))

    def rotate_secret(self) -> WebhookSecret:
        """Replaces the signing secret. For 24 hours, deliveries are also signed with the previous one.

        The request is not repeated: a second rotation would invalidate a secret that receivers still use.
        """
        return self._client._run(_webhooks.rotate_secret(self._client._api))

    def deliveries(
        self,
        *,
        job: str | None = None,
        batch: str | None = None,
        state: DeliveryState | None = None,
        page_size: int = 100,
    ) -> Iterator[Delivery]:
        """Lists deliveries, past and pending, newest first, fetched page by page. `job` and `batch` are ids."""
        query = list_query({"job": job, "batch": batch, "state": state}, page_size, ("job", "batch", "state"))
        for raw in self._client._pages(_webhooks.DELIVERIES_PATH, "deliveries", query):
            yield Delivery.decode(raw)

    def delivery(self, delivery_id: str) -> Delivery:
        """Returns a delivery by its id."""
        return self._client._run(_webhooks.delivery(self._client._api, delivery_id))

    def replay(self, delivery_id: str) -> Delivery:
        """Sends a delivery again, with the same `webhook-id`."""
        return self._client._run(_webhooks.replay(self._client._api, delivery_id))


class FeedbackRoutes:
    """`client.feedback`: ratings of results."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def give(self, job_id: str, **rating: Unpack[Rating]) -> Feedback:
        """Rates the result of a job; see `Job.feedback`."""
        return self._client._run(_feedback.give(self._client._api, job_path(job_id), rating))

    def stats(self, endpoint: str | None = None) -> builtins.list[FeedbackStats]:
        """Returns the ratings of each version, of one endpoint or of all."""
        return self._client._run(_feedback.stats(self._client._api, endpoint))

    def export(
        self,
        *,
        endpoint: str | None = None,
        version: int | None = None,
        sample: int | None = None,
        seed: int | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Streams a random sample (1 to 100,000, default 1,000) of rated jobs, with their inputs and results.

        Each is `{"job_id", "endpoint", "version", "input", "result" or "result_url", "accepted", "score", "labels",
        "comment", "at"}`. The same `seed` returns the same sample; without a seed, each call draws another.
        """
        return self._client._lines(_feedback.export(self._client._api, endpoint, version, sample, seed))


class Pipeline:
    """Jobs that use each other's results, sent as one request at the end of a `with` block: all, or none.

    ```python
    with client.pipeline() as p:
        check = p.submit("prompt-check", {"prompt": "dusk"})
        image = p.submit("render", {"prompt": check["prompt"]}, depends_on=[check])
    image.result(timeout=60)
    ```

    A job in an input is replaced by its result, and `job["a"][0]` by that part of its result, once that job has
    succeeded. Either makes it a dependency, as does `depends_on`.
    """

    def __init__(self, client: Client, idempotency_key: str | None) -> None:
        self._client = client
        self._plans: Plans[Job] = Plans(idempotency_key)

    def submit(
        self,
        endpoint: str,
        input: Any = None,  # noqa: A002 (the API's word)
        **options: Unpack[JobOptions],
    ) -> Job:
        """Adds a job, which can be waited for after the block. `options` are the members of `JobOptions`."""
        return self._plans.add(endpoint, input, options, self._planned)

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._plans.drop()
            return
        self._client._run(self._plans.send(self._client._api, self._adopt))

    def _planned(self, record: JobRecord) -> Job:
        unsent: Any = Unsent()
        job = self._client._job(record)
        job._client = unsent
        return job

    def _adopt(self, job: Job, record: JobRecord) -> None:
        job.raw, job._client = record.raw, self._client
