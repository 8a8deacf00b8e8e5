"""The public API, route by route, as plans (see `_request.py`). Nothing here does I/O."""

from __future__ import annotations

import json
import math
import mimetypes
import platform
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path, PurePath
from typing import Any, Callable, TypeVar, Union
from urllib.parse import quote, urlencode, urljoin

import httpx

from stokehold import __version__
from stokehold._config import Settings
from stokehold._errors import PartlySubmitted, StokeholdError, WaitTimeout, job_error
from stokehold._events import EventReader
from stokehold._files import FileNames, hydrate
from stokehold._models import Endpoint, FileInfo, JobRecord, Worker, encode_time
from stokehold._request import OK, Call, Pause, Plan, Reply, Work, ask
from stokehold._retry import Retry
from stokehold._transfer import Body, FileSink, MemorySink, OnProgress, Sink, digest

# One long poll: below the 60 s that the API allows and that many proxies cut at.
POLL_S = 30

# As many as the API takes at once, and a little less than the 8 MiB.
BULK_JOBS_MAX = 1_000
BULK_BYTES_MAX = 7 << 20

# How much later than it was asked to a held request may answer before the connection counts as dead.
LATE_S = 10.0

REDIRECTS_MAX = 5

J = TypeVar("J")
Source = Union[str, PurePath, bytes, bytearray, memoryview]


class Api:
    """Builds every call and reads every answer."""

    def __init__(self, settings: Settings, retry: Retry, timeout_s: float, user_agent: str) -> None:
        self.settings = settings
        self.retry = retry
        self.timeout_s = timeout_s
        self._headers = {"Accept": "application/json", "User-Agent": user_agent}
        if settings.token is not None:
            self._headers["Authorization"] = f"Bearer {settings.token}"

    # Jobs

    def submit(
        self,
        endpoint: str,
        value: Any,
        options: Mapping[str, Any],
        idempotency_key: str | None,
        wait_s: float,
    ) -> Plan[JobRecord]:
        body = yield from self._encode({"endpoint": endpoint, "input": value, **options}, FileNames())
        prefer = {"Prefer": f"wait={_hold_s(wait_s)}"} if wait_s > 0 else {}
        reply = yield from self._post("/v1/jobs", body, idempotency_key, headers=prefer, hold_s=wait_s)
        return JobRecord(reply.json())

    def submit_many(
        self,
        endpoint: str,
        inputs: Iterable[Any],
        options: Mapping[str, Any],
        idempotency_key: str | None,
        make: Callable[[JobRecord], J],
    ) -> Plan[list[J]]:
        """In chunks, each all or nothing. A failure after the first accepted chunk raises `PartlySubmitted`."""
        jobs: list[J] = []
        key = idempotency_key or str(uuid.uuid4())
        names = FileNames()
        bodies = []
        for value in inputs:
            bodies.append((yield from self._encode({"endpoint": endpoint, "input": value, **options}, names)))
        state = "scheduled" if "run_after" in options else "queued"
        try:
            for number, chunk in enumerate(_chunks(bodies)):
                body = b'{"jobs":[' + b",".join(chunk) + b"]}"
                reply = yield from self._post("/v1/jobs/bulk", body, f"{key}-{number}")
                records = ({"id": job, "endpoint": endpoint, "state": state} for job in reply.json()["ids"])
                jobs += [make(JobRecord(record)) for record in records]
        except StokeholdError as error:
            if jobs:
                raise PartlySubmitted(jobs, len(bodies)) from error
            raise
        return jobs

    def get(self, job_id: str) -> Plan[JobRecord]:
        reply = yield from self._get(_job_path(job_id))
        return JobRecord(reply.json())

    def wait(self, record: JobRecord, timeout_s: float | None) -> Plan[JobRecord]:
        """Until it has ended. Holds one request open at a time; the last second before a deadline is polled."""
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        early = 0
        while not record.is_terminal:
            asked = time.monotonic()
            hold_s = max(0, min(POLL_S, math.floor(min(deadline - asked, POLL_S))))
            url = f"{self.settings.base_url}{_job_path(record.id)}?wait_s={hold_s}"
            call = Call("GET", url, self._headers, read_timeout_s=hold_s + min(self.timeout_s, LATE_S))
            reply = yield from ask(call, self.retry, deadline)
            record = JobRecord(reply.json())
            now = time.monotonic()
            if record.is_terminal:
                break
            if timeout_s is not None and now >= deadline:
                raise WaitTimeout(record.id, timeout_s, record.state)
            if now - asked < hold_s / 2 or hold_s == 0:
                # Not held as asked (a proxy, a server that shuts down) or the last second: do not spin.
                yield Pause(min(0.02 * 2.0 ** min(early, 6), max(0.0, deadline - now)))
                early += 1
        return record

    def result(self, record: JobRecord, make_file: Callable[[FileInfo], Any]) -> Plan[Any]:
        """The result of a job that has ended, or its error raised."""
        if record.state != "succeeded":
            raise job_error(record.id, record.state, record.error)
        value = record.raw.get("result")
        if value is None:  # too large to ride in the record, or really null: the route tells
            sink = MemorySink()
            yield from self._fetch(f"{_job_path(record.id)}/result", sink)
            value = json.loads(sink.finish(None))
        return self.hydrate(value, make_file)

    def hydrate(self, value: Any, make_file: Callable[[FileInfo], Any]) -> Any:
        return hydrate(value, self.settings.base_url, make_file)

    def cancel(self, job_id: str) -> Plan[JobRecord]:
        reply = yield from self._post(f"{_job_path(job_id)}/cancel", b"", None)
        return JobRecord(reply.json())

    def page(self, query: Sequence[tuple[str, str]], cursor: str | None) -> Plan[tuple[list[JobRecord], str | None]]:
        pairs = [*query, ("cursor", cursor)] if cursor else query
        reply = yield from self._get(f"/v1/jobs?{urlencode(pairs)}")
        page = reply.json()
        following = page.get("next_cursor")
        return [JobRecord(raw) for raw in page["jobs"]], following if following != cursor else None

    def events(self, job_id: str, make_file: Callable[[FileInfo], Any]) -> EventReader:
        call = self._call("GET", f"{_job_path(job_id)}/events")
        return EventReader(call.url, self._headers, self.retry, lambda value: self.hydrate(value, make_file))

    # Files

    def upload(
        self, source: Source, name: str | None, content_type: str | None, on_progress: OnProgress | None
    ) -> Plan[FileInfo]:
        origin = bytes(source) if isinstance(source, (bytes, bytearray, memoryview)) else Path(source)
        name = name or (origin.name if isinstance(origin, Path) else "file")
        content_type = content_type or mimetypes.guess_type(name)[0] or "application/octet-stream"
        sha256, size_bytes = yield Work(lambda: digest(origin))
        asked = {"name": name, "size_bytes": size_bytes, "sha256": sha256, "content_type": content_type}
        reply = yield from self._post("/v1/files", encode_json(asked), None)
        file = reply.json()
        yield from self._put(file["upload_url"], file["headers"], Body(origin, size_bytes, on_progress))
        url = f"{self.settings.base_url}/v1/files/{quote(file['id'], safe='')}"
        return FileInfo(name, url, file["id"], size_bytes, sha256, content_type)

    def read(self, file: FileInfo) -> Plan[bytes]:
        sink = MemorySink()
        yield from self._fetch((yield from self._file_url(file)), sink)
        return sink.finish(file.sha256)

    def save(self, file: FileInfo, path: str | PurePath) -> Plan[Path]:
        """Into `path`, or below it under the file's own name when it is a folder."""
        target = Path(path)
        if target.is_dir():
            # A model chose this name: take its last part, so that it cannot point out of the folder.
            name = file.name.replace("\\", "/").rpartition("/")[2]
            target /= name if name not in ("", ".", "..") else "file"
        url = yield from self._file_url(file)
        sink: FileSink = yield Work(lambda: FileSink(target))
        try:
            yield from self._fetch(url, sink)
            saved: Path = yield Work(lambda: sink.finish(file.sha256))
            return saved
        finally:
            sink.discard()

    # Endpoints and workers

    def endpoint(self, name: str) -> Plan[Endpoint]:
        reply = yield from self._get(f"/v1/endpoints/{quote(name, safe='')}")
        return Endpoint.decode(reply.json())

    def endpoints(self) -> Plan[list[Endpoint]]:
        reply = yield from self._get("/v1/endpoints")
        return [Endpoint.decode(raw) for raw in reply.json()["endpoints"]]

    def versions(self, name: str) -> Plan[list[Endpoint]]:
        reply = yield from self._get(f"/v1/endpoints/{quote(name, safe='')}/versions")
        return [Endpoint.decode(raw) for raw in reply.json()["versions"]]

    def workers(self) -> Plan[list[Worker]]:
        reply = yield from self._get("/v1/workers")
        return [Worker.decode(raw) for raw in reply.json()["workers"]]

    def deploy(self, version: Mapping[str, Any], package: Path, on_progress: OnProgress | None) -> Plan[Endpoint]:
        """Sends a package unless the API has it, then registers the version that runs it."""
        sha256, size_bytes = yield Work(lambda: digest(package))
        reply = yield from self._post("/v1/packages", encode_json({"sha256": sha256, "size_bytes": size_bytes}), None)
        place = reply.json()
        if not place["exists"]:
            yield from self._put(place["upload_url"], place["headers"], Body(package, size_bytes, on_progress))
        body = {**version, "package_sha256": sha256, "package_size_bytes": size_bytes}
        reply = yield from self._post("/v1/endpoints", encode_json(body), None)
        return Endpoint.decode(reply.json())

    # Calls

    def _call(self, method: str, path: str, *, hold_s: float = 0.0, **more: Any) -> Call:
        url = self.settings.base_url + path
        return Call(method, url, more.pop("headers", self._headers), read_timeout_s=self.timeout_s + hold_s, **more)

    def _get(self, path: str) -> Plan[Reply]:
        return (yield from ask(self._call("GET", path), self.retry))

    def _post(
        self,
        path: str,
        body: bytes,
        idempotency_key: str | None,
        headers: Mapping[str, str] | None = None,
        hold_s: float = 0.0,
    ) -> Plan[Reply]:
        """Every try carries the same key, so that a create whose answer was lost is not done twice."""
        sent = {
            **self._headers,
            "Content-Type": "application/json",
            "Idempotency-Key": idempotency_key or str(uuid.uuid4()),
            **(headers or {}),
        }
        return (yield from ask(self._call("POST", path, hold_s=hold_s, headers=sent, body=body), self.retry))

    def _put(self, url: str, headers: Mapping[str, str], body: Body) -> Plan[Reply]:
        """To a presigned URL: it carries its own right, and the token stays here."""
        sent = httpx.Headers(dict(headers))  # which sees through `content-length` and `Content-Length`
        sent.update({"Content-Length": str(body.size_bytes), "User-Agent": self._headers["User-Agent"]})
        url = urljoin(f"{self.settings.base_url}/", url)
        return (yield from ask(Call("PUT", url, sent, body, self.timeout_s), self.retry))

    def _fetch(self, url: str, sink: Sink) -> Plan[None]:
        """Gets what may live in the object store. The token goes to the API's own paths and nowhere else."""
        call = self._call("GET", url, sink=sink)
        if not url.startswith("/"):
            call = Call(
                "GET", url, {"User-Agent": self._headers["User-Agent"]}, read_timeout_s=self.timeout_s, sink=sink
            )
        for _ in range(REDIRECTS_MAX):
            reply = yield from ask(call, self.retry)
            if reply.status == OK:
                return
            url = urljoin(call.url, reply.headers.get("location", ""))
            call = Call(
                "GET", url, {"User-Agent": self._headers["User-Agent"]}, read_timeout_s=self.timeout_s, sink=sink
            )
        raise StokeholdError(f"{url.partition('?')[0]} redirects again and again")

    def _file_url(self, file: FileInfo) -> Plan[str]:
        if file.id is None:
            return file.url[len(self.settings.base_url) :]
        reply = yield from self._get(f"/v1/files/{quote(file.id, safe='')}")
        url: str = reply.json()["url"]
        return url

    def _encode(self, body: Mapping[str, Any], names: FileNames) -> Plan[bytes]:
        """JSON, with the files in it uploaded. Costs one pass when there are none."""
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
        """A file of one job's result becomes an input of another: only uploaded files have an id to be named by."""
        with tempfile.TemporaryDirectory(prefix="stokehold-") as folder:
            path = yield from self.save(file, Path(folder))
            return (yield from self.upload(path, None, file.content_type, None))


def job_options(
    version: int | None,
    priority: str | None,
    timeout_s: int | None,
    max_attempts: int | None,
    run_after: datetime | None,
    metadata: Mapping[str, str] | None,
) -> dict[str, Any]:
    """The members of a submit that were given; what was not is the endpoint's to say."""
    given = {
        "version": version,
        "priority": priority,
        "timeout_s": timeout_s,
        "max_attempts": max_attempts,
        "run_after": None if run_after is None else encode_time(run_after),
        "metadata": metadata or None,
    }
    return {name: value for name, value in given.items() if value is not None}


def deploy_options(
    vram_gib: float | None, max_concurrency: int | None, timeout_s: int | None, max_attempts: int | None
) -> dict[str, Any]:
    """The options of a deploy that were given; what was not is the handler's to say."""
    given = {
        "vram_gib": vram_gib,
        "max_concurrency": max_concurrency,
        "timeout_s": timeout_s,
        "max_attempts": max_attempts,
    }
    return {name: value for name, value in given.items() if value is not None}


def list_query(
    state: str | None, endpoint: str | None, metadata: Mapping[str, str] | None, page_size: int
) -> list[tuple[str, str]]:
    """The query of a listing."""
    query = [("limit", str(page_size))]
    query += [(name, value) for name, value in (("state", state), ("endpoint", endpoint)) if value is not None]
    return query + [(f"metadata.{name}", value) for name, value in (metadata or {}).items()]


def encode_json(value: Any, names: FileNames | None = None) -> bytes:
    """Compact JSON. Raises `TypeError` or `ValueError` that names what cannot be sent."""
    try:
        text = json.dumps(value, default=names, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return text.encode()
    except RecursionError:
        raise ValueError("the input is nested too deep for JSON, or holds itself") from None
    except ValueError as error:
        raise ValueError(f"the input cannot be sent as JSON: {error}") from error


def user_agent(half: str) -> str:
    """Who asks, for the server's log."""
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


def _job_path(job_id: str) -> str:
    return f"/v1/jobs/{quote(job_id, safe='')}"


def _hold_s(seconds: float) -> int:
    """Whole seconds within what the API holds a request for."""
    return min(60, math.ceil(seconds))
