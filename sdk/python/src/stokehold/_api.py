"""The routes of the API, as plans (see `_request.py`). Does no I/O."""

from __future__ import annotations

import json
import math
import mimetypes
import platform
import sys
import tempfile
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, Callable, TypeVar, Union
from urllib.parse import quote

from stokehold import __version__
from stokehold._calls import Calls, Pairs, encode_json
from stokehold._errors import PartlySubmitted, StokeholdError, job_error
from stokehold._events import EventReader
from stokehold._files import InputEncoder, hydrate
from stokehold._models import TERMINAL_STATES, Endpoint, FileInfo, JobRecord, Retried
from stokehold._options import SELECTED_JOBS_MAX
from stokehold._request import Plan, Work
from stokehold._trace import call_headers
from stokehold._transfer import Body, FileSink, MemorySink, OnProgress, digest

# The most jobs that the API accepts with one request, and a little less than its limit of 8 MiB.
BULK_JOBS_MAX = 1_000
BULK_BYTES_MAX = 7 << 20

J = TypeVar("J")
Source = Union[str, PurePath, bytes, bytearray, memoryview]


class Api(Calls):
    """Builds the calls and decodes the responses."""

    # Jobs

    def submit(
        self,
        endpoint: str,
        value: Any,
        options: Mapping[str, Any],
        idempotency_key: str | None,
        wait_s: float,
    ) -> Plan[JobRecord]:
        headers = call_headers()
        body = yield from self.encode({"endpoint": endpoint, "input": value, **options}, InputEncoder())
        if wait_s > 0:
            headers["Prefer"] = f"wait={_hold_s(wait_s)}"
        reply = yield from self.post("/v1/jobs", body, idempotency_key, headers=headers, hold_s=wait_s)
        return JobRecord(reply.json())

    def submit_many(
        self,
        endpoint: str,
        inputs: Iterable[Any],
        options: Mapping[str, Any],
        idempotency_key: str | None,
        make: Callable[[JobRecord], J],
    ) -> Plan[list[J]]:
        """Submits in chunks, each all or nothing. A failure after the first accepted chunk raises `PartlySubmitted`."""
        jobs: list[J] = []
        called = call_headers()
        key = idempotency_key or str(uuid.uuid4())
        names = InputEncoder()
        shared = {"endpoint": endpoint, **options}
        bodies = []
        for value in inputs:
            bodies.append((yield from self.encode({**shared, "input": value}, names)))
        try:
            for number, chunk in enumerate(_chunks(bodies)):
                ids = yield from self._bulk(chunk, f"{key}-{number}", called)
                jobs += [make(_accepted(job, shared, names.named_jobs)) for job in ids]
        except StokeholdError as error:
            if jobs:
                raise PartlySubmitted(jobs, len(bodies)) from error
            raise
        return jobs

    def submit_planned(
        self, bodies: Sequence[Mapping[str, Any]], planned: Sequence[JobRecord], idempotency_key: str | None
    ) -> Plan[list[JobRecord]]:
        """Submits the jobs of a pipeline, all or none, with one request: they refer to each other by position."""
        if not bodies:
            return []
        called = call_headers()
        names = InputEncoder(planned)
        encoded, blocked = [], []
        for body in bodies:
            names.named_jobs = False
            encoded.append((yield from self.encode(body, names)))
            blocked.append(names.named_jobs)
        if len(encoded) > BULK_JOBS_MAX or sum(map(len, encoded)) + len(encoded) > BULK_BYTES_MAX:
            raise ValueError(
                f"a pipeline is sent as one request, with at most {BULK_JOBS_MAX} jobs and {BULK_BYTES_MAX >> 20} MiB; "
                "upload large inputs as files, or split it and let the second part depend on jobs of the first"
            )
        ids = yield from self._bulk(encoded, idempotency_key or str(uuid.uuid4()), called)
        return [_accepted(*each) for each in zip(ids, bodies, blocked)]

    def get(self, job_id: str) -> Plan[JobRecord]:
        return JobRecord((yield from self.get_json(job_path(job_id))))

    def wait(self, record: JobRecord, timeout_s: float | None) -> Plan[JobRecord]:
        """Waits until the job has ended."""
        raw = yield from self.wait_until_ended(job_path(record.id), record.raw, TERMINAL_STATES, timeout_s)
        return JobRecord(raw)

    def result(self, record: JobRecord, make_file: Callable[[FileInfo], Any]) -> Plan[Any]:
        """Returns the result of a job that has ended, or raises its error."""
        if record.state != "succeeded":
            raise job_error(record.id, record.state, record.error)
        value = record.raw.get("result")
        if value is None:  # too large for the record, or null: fetch it to find out
            sink = MemorySink()
            yield from self.fetch(f"{job_path(record.id)}/result", sink)
            value = json.loads(sink.finish(None))
        return self.hydrate(value, make_file)

    def hydrate(self, value: Any, make_file: Callable[[FileInfo], Any]) -> Any:
        return hydrate(value, self.settings.base_url, make_file)

    def cancel(self, job_id: str) -> Plan[JobRecord]:
        return JobRecord((yield from self.post_json(f"{job_path(job_id)}/cancel")))

    def retry_job(self, job_id: str, same_version: bool) -> Plan[JobRecord]:
        query = "?same_version=true" if same_version else ""
        return JobRecord((yield from self.post_json(f"{job_path(job_id)}/retry{query}")))

    def retry_jobs(self, selected: Mapping[str, Any], limit: int | None, same_version: bool) -> Plan[list[Retried]]:
        """Sends requests until no jobs are left or a request retries no new job, even if it reports more."""
        retried: dict[str, Retried] = {}
        while limit is None or len(retried) < limit:
            asked = _selection(selected, limit, len(retried))
            if same_version:
                asked["same_version"] = True
            reply = yield from self.post_json("/v1/jobs/retry", asked)
            known = len(retried)
            retried.update((pair["id"], Retried(pair["id"], pair["new_id"])) for pair in reply["retried"])
            if not reply["more"] or len(retried) == known:
                break
        return list(retried.values())

    def cancel_jobs(self, selected: Mapping[str, Any], limit: int | None) -> Plan[int]:
        """Sends requests until no jobs are left to cancel."""
        cancelled = 0
        while limit is None or cancelled < limit:
            reply = yield from self.post_json("/v1/jobs/cancel", _selection(selected, limit, cancelled))
            cancelled += reply["cancelled"]
            if not reply["more"] or not reply["cancelled"]:
                break
        return cancelled

    def page(self, path: str, member: str, query: Pairs, cursor: str | None) -> Plan[tuple[list[Any], str | None]]:
        """Returns a page of a listing and the cursor of the next page."""
        page = yield from self.get_json(path, [*query, ("cursor", cursor)] if cursor else query)
        following = page.get("next_cursor")
        return page[member], following if following != cursor else None

    def events(self, job_id: str, make_file: Callable[[FileInfo], Any]) -> EventReader:
        call = self.call("GET", f"{job_path(job_id)}/events")
        return EventReader(call.url, self.headers, self.retry, lambda value: self.hydrate(value, make_file))

    # Files

    def upload(
        self, source: Source, name: str | None, content_type: str | None, on_progress: OnProgress | None
    ) -> Plan[FileInfo]:
        origin = bytes(source) if isinstance(source, (bytes, bytearray, memoryview)) else Path(source)
        name = name or (origin.name if isinstance(origin, Path) else "file")
        content_type = content_type or mimetypes.guess_type(name)[0] or "application/octet-stream"
        sha256, size_bytes = yield Work(lambda: digest(origin))
        asked = {"name": name, "size_bytes": size_bytes, "sha256": sha256, "content_type": content_type}
        file = yield from self.post_json("/v1/files", asked)
        yield from self.put(file["upload_url"], file["headers"], Body(origin, size_bytes, on_progress))
        url = f"{self.settings.base_url}/v1/files/{quote(file['id'], safe='')}"
        return FileInfo(name, url, file["id"], size_bytes, sha256, content_type)

    def read(self, file: FileInfo) -> Plan[bytes]:
        sink = MemorySink()
        yield from self.fetch((yield from self._file_url(file)), sink)
        return sink.finish(file.sha256)

    def save(self, file: FileInfo, path: str | PurePath) -> Plan[Path]:
        """Downloads to `path`, or into `path` under the name of the file if `path` is a folder."""
        target = Path(path)
        if target.is_dir():
            # The name is controlled by the model. Use its last part only, so that it stays within the folder.
            name = file.name.replace("\\", "/").rpartition("/")[2]
            target /= name if name not in ("", ".", "..") else "file"
        url = yield from self._file_url(file)
        sink: FileSink = yield Work(lambda: FileSink(target))
        try:
            yield from self.fetch(url, sink)
            saved: Path = yield Work(lambda: sink.finish(file.sha256))
            return saved
        finally:
            sink.discard()

    # Endpoints and workers

    def endpoint(self, name: str) -> Plan[Endpoint]:
        return Endpoint.decode((yield from self.get_json(f"/v1/endpoints/{quote(name, safe='')}")))

    def versions(self, name: str) -> Plan[list[Endpoint]]:
        page = yield from self.get_json(f"/v1/endpoints/{quote(name, safe='')}/versions")
        return [Endpoint.decode(raw) for raw in page["versions"]]

    def traffic(self, name: str) -> Plan[dict[int, int]]:
        return _parts((yield from self.get_json(f"/v1/endpoints/{quote(name, safe='')}/traffic")))

    def set_traffic(self, name: str, version: int, percent: int) -> Plan[dict[int, int]]:
        body = {"version": version, "percent": percent}
        return _parts((yield from self.put_json(f"/v1/endpoints/{quote(name, safe='')}/traffic", body)))

    def weights_url(self, source: str) -> Plan[str]:
        """A presigned URL for a file in a bucket that the API can read."""
        url: str = (yield from self.get_json("/v1/weights/url", [("source", source)]))["url"]
        return url

    def upload_weights(self, path: Path, sha256: str, size_bytes: int, on_progress: OnProgress | None) -> Plan[None]:
        """Uploads a file of weights unless the API has it."""
        place = yield from self.post_json("/v1/weights", {"sha256": sha256, "size_bytes": size_bytes})
        if not place["exists"]:
            yield from self.put(place["upload_url"], place["headers"], Body(path, size_bytes, on_progress))

    def deploy(self, body: Mapping[str, Any], package: Path, on_progress: OnProgress | None) -> Plan[Endpoint]:
        """Uploads a package unless the API has it, then creates the version that runs it."""
        size_bytes = body["package_size_bytes"]
        place = yield from self.post_json("/v1/packages", {"sha256": body["package_sha256"], "size_bytes": size_bytes})
        if not place["exists"]:
            yield from self.put(place["upload_url"], place["headers"], Body(package, size_bytes, on_progress))
        return Endpoint.decode((yield from self.post_json("/v1/endpoints", body)))

    # Parts

    def _bulk(self, bodies: Sequence[bytes], key: str, called: Mapping[str, str]) -> Plan[list[str]]:
        reply = yield from self.post("/v1/jobs/bulk", b'{"jobs":[' + b",".join(bodies) + b"]}", key, headers=called)
        ids: list[str] = reply.json()["ids"]
        return ids

    def _file_url(self, file: FileInfo) -> Plan[str]:
        if file.id is None:
            return file.url[len(self.settings.base_url) :]
        url: str = (yield from self.get_json(f"/v1/files/{quote(file.id, safe='')}"))["url"]
        return url

    def encode(self, body: Any, names: InputEncoder) -> Plan[bytes]:
        """Encodes JSON and uploads the files in it. Without files, this is a single pass."""
        encoded = encode_json(body, names)
        missing = names.take_missing()
        if not missing:
            return encoded
        for file in missing:
            if isinstance(file, FileInfo):
                uploaded = yield from self._upload_again(file)
            else:
                uploaded = yield from self.upload(file, None, None, None)
            names.uploaded(file, uploaded)
        return encode_json(body, names)

    def _upload_again(self, file: FileInfo) -> Plan[FileInfo]:
        """Uploads a file of a result, to use it in an input. Only uploaded files have an id."""
        with tempfile.TemporaryDirectory(prefix="stokehold-") as folder:
            path = yield from self.save(file, Path(folder))
            return (yield from self.upload(path, None, file.content_type, None))


def user_agent(half: str) -> str:
    """The `User-Agent` header, for the log of the server."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return f"stokehold-python/{__version__} ({half}; Python {python}; {platform.system()})"


def _chunks(bodies: Sequence[bytes]) -> Iterable[Sequence[bytes]]:
    start = size = 0
    for index, body in enumerate(bodies):
        if index > start and (index - start >= BULK_JOBS_MAX or size + len(body) > BULK_BYTES_MAX):
            yield bodies[start:index]
            start, size = index, 0
        size += len(body) + 1
    if start < len(bodies):
        yield bodies[start:]


def _accepted(job_id: str, body: Mapping[str, Any], names_jobs: bool) -> JobRecord:
    """The record of a job that was accepted with others. It is incomplete until `refresh`."""
    state = "scheduled" if "run_after" in body else "blocked" if names_jobs or "depends_on" in body else "queued"
    return JobRecord({"id": job_id, "endpoint": body["endpoint"], "state": state})


def _selection(selected: Mapping[str, Any], limit: int | None, done: int) -> dict[str, Any]:
    return {"filter": selected, "limit": SELECTED_JOBS_MAX if limit is None else min(limit - done, SELECTED_JOBS_MAX)}


def job_path(job_id: str) -> str:
    return f"/v1/jobs/{quote(job_id, safe='')}"


def _hold_s(seconds: float) -> int:
    """Rounds up to whole seconds, at most the 60 s for which the API holds a request."""
    return min(60, math.ceil(seconds))


def _parts(raw: Mapping[str, Any]) -> dict[int, int]:
    return {part["version"]: part["percent"] for part in raw["versions"]}
