# Generated from _async_client.py by `make sync-client`; do not edit.
"""The synchronous client."""

from __future__ import annotations

import builtins
import random
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from stokehold._api import Api, Source, user_agent
from stokehold._calls import Pairs
from stokehold._catalog import Endpoints, Files, Jobs, LimitsResource, Workers
from stokehold._config import load_settings
from stokehold._deploy import deploy
from stokehold._errors import StokeholdError
from stokehold._events import Event
from stokehold._generated._routes import (
    Audit,
    CostsRoutes,
    FleetRoutes,
    QuarantineRoutes,
    RequirementSets,
    Secrets,
    Tenants,
    Tokens,
)
from stokehold._job import FileRef, Job
from stokehold._lines import LineReader
from stokehold._models import Endpoint, FileInfo, JobRecord, Retried
from stokehold._options import DeployOptions, JobFilter, JobOptions, deploy_options, job_filter, job_options, list_query
from stokehold._request import OK, Call, Pause, Plan, Reply
from stokehold._resources import (
    Batches,
    FeedbackRoutes,
    Pipeline,
    Schedules,
    Webhooks,
)
from stokehold._retry import Retry
from stokehold._streams import stream_error, stream_errors
from stokehold._transfer import OnProgress
from stokehold._transport import Transport

if TYPE_CHECKING:
    import httpx
    from typing_extensions import Unpack

T = TypeVar("T")


class Client:
    """A synchronous client of the Stokehold API.

    Safe to share between threads. Close it with `close`, or use it in a `with` block.

    base_url: the URL of the API. Default: STOKE_URL, then the URL that `stoke dev` saved, then http://127.0.0.1:7070.
    token: the API token. Default: STOKE_TOKEN, then the token that `stoke dev` saved for that URL.
    timeout_s: seconds without data from the API after which a request fails. For a request that the API holds open
        (e.g. with `wait_s`), the time that it is held is added.
    transport: replaces the network, e.g. in a test or for a proxy of your own.
    """

    def __init__(
        self,
        base_url: str | None = None,
        token: str | None = None,
        *,
        timeout_s: float = 30.0,
        retry: Retry | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._api = Api(load_settings(base_url, token), retry or Retry(), timeout_s, user_agent("sync"))
        self._transport = Transport(self.base_url, transport)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.base_url!r})"

    @property
    def base_url(self) -> str:
        return self._api.settings.base_url

    def close(self) -> None:
        """Closes the connections."""
        self._transport.close()

    def submit(
        self,
        endpoint: str,
        input: Any = None,  # noqa: A002 (the API's word)
        *,
        idempotency_key: str | None = None,
        wait_s: float = 0,
        **options: Unpack[JobOptions],
    ) -> Job:
        """Submits a job. `options` are the members of `JobOptions`.

        input: the input of the job. A `pathlib.Path` or a file anywhere in it is uploaded first. A job in it is
            replaced by the result of that job, and `job["boxes"][0]` by that part of the result, once that job has
            succeeded.
        wait_s: seconds, at most 60, to wait for the job to end before returning it.
        idempotency_key: a second call with the same key and the same arguments, within 24 hours, returns the same job.
            Default: a new key, which also covers the retries of this call.

        Raises `NotFound` if there is no such endpoint, `InvalidInput` if the input does not match its schema, and
        `QuotaExceeded` if a limit is reached.

        ```python
        job = client.submit("render", {"prompt": "a stoker"}, timeout_s=600, priority="batch")
        print(job.result(timeout=900))
        ```
        """
        members = job_options(options)
        return Job(self, self._run(self._api.submit(endpoint, input, members, idempotency_key, wait_s)))

    def submit_many(
        self,
        endpoint: str,
        inputs: Iterable[Any],
        *,
        idempotency_key: str | None = None,
        **options: Unpack[JobOptions],
    ) -> builtins.list[Job]:
        """Submits one job for each input, in order. `options` are the members of `JobOptions`.

        A request holds at most 1,000 jobs, and is accepted as a whole or not at all. If a later request fails, the call
        raises `PartlySubmitted`, which has the jobs of the earlier ones.

        ```python
        jobs = client.submit_many("embed", [{"text": "one"}, {"text": "two"}], idempotency_key="import-7")
        ```
        """
        members = job_options(options)
        return self._run(
            self._api.submit_many(endpoint, inputs, members, idempotency_key, lambda record: Job(self, record))
        )

    def get(self, job_id: str) -> Job:
        """Returns a job by its id. Raises `NotFound` if there is none."""
        return Job(self, self._run(self._api.get(job_id)))

    def cancel(self, job_id: str) -> Job:
        """Cancels a job. Raises `Conflict` if it has already ended in another state."""
        return Job(self, self._run(self._api.cancel(job_id)))

    def list(self, *, page_size: int = 100, **selected: Unpack[JobFilter]) -> Iterator[Job]:
        """Lists jobs, newest first. Fetches a page of `page_size` (at most 100) jobs at a time.

        `selected` are the members of `JobFilter`. Without any, all jobs are listed.

        ```python
        for job in client.list(endpoint="render", state="failed"):
            print(job.id, job.error)
        ```
        """
        for raw in self._pages("/v1/jobs", "jobs", list_query(selected, page_size)):
            yield Job(self, JobRecord(raw))

    def events(self, job: JobRecord | str) -> Iterator[Event]:
        """Streams the events of a job, given as a job or an id; see `Job.events`."""
        return self._events(job if isinstance(job, str) else job.id)

    def retry(self, job_id: str, *, same_version: bool = False) -> Job:
        """Retries a job that failed, expired or was cancelled, as a new job whose `retry_of` is the id of the old job.

        The new job runs on the current version of the endpoint, unless the old job was submitted for a version or
        `same_version` is set. Until it has ended, another call returns it again. Raises `NotRetryable` if the old job
        is in another state.
        """
        return Job(self, self._run(self._api.retry_job(job_id, same_version)))

    def retry_jobs(
        self, *, limit: int | None = None, same_version: bool = False, **selected: Unpack[JobFilter]
    ) -> builtins.list[Retried]:
        """Retries the selected jobs that failed or expired and have not been retried yet.

        `selected` are the members of `JobFilter`, at least one. Requests retry 1,000 jobs at a time until none is left
        or `limit` are retried. The new jobs run on the version that `retry` would choose.
        """
        return self._run(self._api.retry_jobs(job_filter(selected), limit, same_version))

    def cancel_jobs(self, *, limit: int | None = None, **selected: Unpack[JobFilter]) -> int:
        """Cancels the selected jobs that have not ended, and returns how many it cancelled.

        `selected` are the members of `JobFilter`, at least one. Requests cancel 1,000 jobs at a time until none is left
        or `limit` are cancelled.
        """
        return self._run(self._api.cancel_jobs(job_filter(selected), limit))

    def dead_letters(
        self, *, endpoint: str | None = None, error_code: str | None = None, page_size: int = 100
    ) -> Iterator[Job]:
        """Lists jobs that failed or expired and have not been retried, newest first, fetched page by page."""
        query = list_query({"endpoint": endpoint, "error_code": error_code}, page_size)
        for raw in self._pages("/v1/dead-letters", "jobs", query):
            yield Job(self, JobRecord(raw))

    def pipeline(self, *, idempotency_key: str | None = None) -> Pipeline:
        """Returns a pipeline: jobs that use each other's results and are submitted together; see `Pipeline`."""
        return Pipeline(self, idempotency_key)

    @property
    def jobs(self) -> Jobs:
        """Jobs, one or many at a time."""
        return Jobs(self)

    @property
    def batches(self) -> Batches:
        """Batches: many jobs from one file of lines."""
        return Batches(self)

    @property
    def schedules(self) -> Schedules:
        """Schedules: jobs submitted at set times."""
        return Schedules(self)

    @property
    def webhooks(self) -> Webhooks:
        """Webhooks: the signing secret and the deliveries."""
        return Webhooks(self)

    @property
    def feedback(self) -> FeedbackRoutes:
        """Feedback: ratings of results."""
        return FeedbackRoutes(self)

    @property
    def limits(self) -> LimitsResource:
        """Limits of tenants; called, your own."""
        return LimitsResource(self)

    @property
    def files(self) -> Files:
        """Uploaded files."""
        return Files(self)

    @property
    def secrets(self) -> Secrets:
        """Secrets, which endpoints get as environment variables."""
        return Secrets(self)

    @property
    def tokens(self) -> Tokens:
        """API tokens, and join tokens for workers."""
        return Tokens(self)

    @property
    def tenants(self) -> Tenants:
        """Tenants, for operators."""
        return Tenants(self)

    @property
    def audit(self) -> Audit:
        """The log of every change."""
        return Audit(self)

    @property
    def costs(self) -> CostsRoutes:
        """What was spent, and on what."""
        return CostsRoutes(self)

    @property
    def fleet(self) -> FleetRoutes:
        """Instances, the decisions of the autoscaler, and the ready jobs."""
        return FleetRoutes(self)

    @property
    def quarantine(self) -> QuarantineRoutes:
        """Jobs whose records cannot be read."""
        return QuarantineRoutes(self)

    @property
    def requirement_sets(self) -> RequirementSets:
        """What endpoints require of workers besides memory."""
        return RequirementSets(self)

    def upload(
        self,
        source: Source,
        *,
        name: str | None = None,
        content_type: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> FileRef:
        """Uploads a file, given as its path, or bytes. The returned file can be used anywhere in an input.

        name: default: the name of the file, or `file` for bytes.
        content_type: default: by the end of the name, or `application/octet-stream`.
        on_progress: called with `(sent_bytes, total_bytes)` during the upload.

        Raises `FileNotFoundError` if there is no such file, and `Conflict` if the tenant's storage is full.

        ```python
        mask = client.upload("mask.png")
        job = client.submit("inpaint", {"mask": mask})
        ```
        """
        return self._file(self._run(self._api.upload(source, name, content_type, on_progress)))

    def deploy(
        self,
        path: str | PurePath,
        *,
        name: str | None = None,
        python: str | None = None,
        traffic_percent: int = 100,
        on_progress: OnProgress | None = None,
        **options: Unpack[DeployOptions],
    ) -> Endpoint:
        """Deploys a folder or a `.py` file as the next version of its endpoint. `file.py:object` selects a handler.

        The folder is packaged like `stoke deploy` does, with its `stoke.toml` or `cog.yaml`: both create the same
        version. `options` are the members of `DeployOptions`; they override these files and the handler. The handler is
        imported by the running Python, so what it imports must be installed. Notes about the folder go to the logger
        `stokehold`. Raises `DeployError` if the folder cannot be deployed; nothing was sent then.

        name: the name of the endpoint; default: that in `stoke.toml`, of the handler, or of the folder or file.
        python: the Python version of the endpoint, e.g. "3.11"; default: that in `stoke.toml`, else of `python3`.
        traffic_percent: the percentage of new jobs for this version; the current version keeps the rest.
        on_progress: called with `(sent_bytes, total_bytes)` during each upload.

        ```python
        version = client.deploy("models/render", vram_gib=12, max_attempts=3, env={"STEPS": "30"})
        print(version.name, version.version)
        ```
        """
        overlay = {**deploy_options(options), "name": name, "python": python}
        return self._run(deploy(self._api, str(path), overlay, traffic_percent, on_progress))

    def endpoint(self, name: str) -> Endpoint:
        """Returns the version of an endpoint that new jobs run on."""
        return self._run(self._api.endpoint(name))

    @property
    def endpoints(self) -> Endpoints:
        """Endpoints and their versions; called, the current version of every endpoint."""
        return Endpoints(self)

    def versions(self, name: str) -> builtins.list[Endpoint]:
        """Returns every version of an endpoint, newest first."""
        return self._run(self._api.versions(name))

    def traffic(self, name: str) -> dict[int, int]:
        """Returns the versions of an endpoint that new jobs run on, each with its share of them in percent."""
        return self._run(self._api.traffic(name))

    def set_traffic(self, name: str, version: int, percent: int = 100) -> dict[int, int]:
        """Sends a share of new jobs to a version, and the rest to the current version. 100 makes it the current one.

        Jobs that were submitted before stay on their version. Returns the same as `traffic`.
        """
        return self._run(self._api.set_traffic(name, version, percent))

    @property
    def workers(self) -> Workers:
        """Workers that have joined; called, all of them."""
        return Workers(self)

    def _file(self, info: FileInfo) -> FileRef:
        return FileRef(**vars(info), client=self)

    def _job(self, record: JobRecord) -> Job:
        return Job(self, record)

    def _pages(self, path: str, member: str, query: Pairs) -> Iterator[dict[str, Any]]:
        cursor: str | None = None
        while True:
            found, cursor = self._run(self._api.page(path, member, query, cursor))
            yield from found
            if cursor is None:
                return

    def _run(self, plan: Plan[T]) -> T:
        """Carries out the steps of a plan and returns its result."""
        outcome: Any = None
        try:
            while True:
                step = plan.send(outcome)
                if isinstance(step, Call):
                    outcome = self._perform(step)
                elif isinstance(step, Pause):
                    self._transport.sleep(step.seconds)
                else:
                    outcome = self._transport.run_blocking(step.run)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            plan.close()

    def _perform(self, call: Call) -> Reply | StokeholdError:
        outcome = self._transport.exchange(call)
        if outcome is not None:
            return outcome
        try:
            with self._transport.send(call) as response:
                if call.sink is None or response.status_code != OK:
                    return self._transport.reply(call, response)
                call.sink.start()
                for chunk in response.iter_bytes():
                    self._transport.run_blocking(call.sink.write, chunk)
                return Reply(response.status_code, response.headers, b"")
        except stream_errors() as error:
            return stream_error(call, error)

    def _events(self, job_id: str) -> Iterator[Event]:
        reader = self._api.events(job_id, self._file)
        while not reader.done:
            outcome: Reply | StokeholdError | None = None
            call = reader.call()
            try:
                with self._transport.send(call) as response:
                    if response.status_code == OK:
                        for chunk in response.iter_bytes():
                            yield from reader.feed(chunk)
                            if reader.done:
                                return
                    else:
                        outcome = self._transport.reply(call, response)
            except stream_errors() as error:
                outcome = stream_error(call, error)
            if not reader.done:
                pause_s = reader.pause_s(outcome, random.random())  # noqa: S311 (jitter is no secret)
                self._transport.sleep(pause_s)

    def _lines(self, reader: LineReader) -> Iterator[dict[str, Any]]:
        while not reader.done:
            call = reader.call()
            try:
                with self._transport.send(call) as response:
                    if response.status_code == OK:
                        for chunk in response.iter_bytes():
                            for line in reader.feed(chunk):
                                yield self._api.hydrate(line, self._file)
                        for line in reader.end():
                            yield self._api.hydrate(line, self._file)
                        return
                    outcome: Reply | StokeholdError = self._transport.reply(call, response)
            except stream_errors() as error:
                outcome = stream_error(call, error)
            pause_s = reader.pause_s(outcome, random.random())  # noqa: S311 (jitter is no secret)
            self._transport.sleep(pause_s)
