"""The event stream: whole events only, each once, over as many connections as it takes."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from stokehold import (
    Client,
    ConnectionFailed,
    DoneEvent,
    GapEvent,
    LogEvent,
    NotFound,
    OutputEvent,
    ProgressEvent,
    StateEvent,
    StokeholdError,
)
from stokehold._events import EventReader
from stokehold._retry import Retry

from .conftest import JOB_ID, Answer, Exchange, Server, drop, job, ok, problem

ROUTE = f"GET /v1/jobs/{JOB_ID}/events"


def sse(name: str, body: Any, event_id: str = "") -> bytes:
    head = f"id: {event_id}\n" if event_id else ""
    return f"event: {name}\n{head}data: {json.dumps(body)}\n\n".encode()


STATE = sse("state", {"state": "running", "attempt": 1})
PROGRESS = sse("progress", {"fraction": 0.5, "message": "half"}, "1-0")
LOG = sse("log", {"stream": "stdout", "text": "grüß\n", "attempt": 1}, "2-0")
OUTPUT = sse("output", {"index": 0, "value": [1], "attempt": 1}, "3-0")
DONE = sse("done", job("succeeded"))

STORY = [
    StateEvent("running", 1),
    ProgressEvent(0.5, "half"),
    LogEvent("stdout", "grüß\n", 1),
    OutputEvent(0, [1], 1),
]


def stream(*chunks: bytes) -> Answer:
    return lambda exchange: exchange.stream(*chunks)


def reader() -> EventReader:
    return EventReader("http://x/events", {}, Retry(), lambda value: value)


def test_events_are_typed_and_end_with_done(api: Server, client: Client) -> None:
    api.on(f"GET /v1/jobs/{JOB_ID}", ok(job()))
    api.on(
        ROUTE, stream(b": hello\n\n", STATE, PROGRESS, LOG, OUTPUT, sse("news", {"of": "a newer server"}), DONE, LOG)
    )
    followed = client.get(JOB_ID)
    *story, done = followed.events()
    assert story == STORY
    assert isinstance(done, DoneEvent)
    assert done.type == "done"
    assert done.job.state == "succeeded"
    assert followed.state == "succeeded", "the job knows what its stream told"
    assert api.seen(ROUTE)[0].headers["accept"] == "text/event-stream"


def test_what_follows_the_end_is_dropped_however_it_is_cut(api: Server, client: Client) -> None:
    """The network decides whether bytes after `done` arrive with it or later, or whether the server closes at all."""

    def stay_open(exchange: Exchange) -> None:
        exchange.stream(STATE, DONE)
        exchange.server.released.wait(60)

    api.on(f"GET /v1/jobs/{JOB_ID}", ok(job()))
    api.on(ROUTE, stay_open)
    assert [event.type for event in client.get(JOB_ID).events()] == ["state", "done"]
    assert not api.released.is_set(), "the client left first"

    events = reader()
    assert [event.type for event in events.feed(DONE)] == ["done"]
    assert list(events.feed(LOG)) == []
    assert events.done


def test_missing_outputs_are_told_and_a_resumed_stream_goes_on_after_them(api: Server, client: Client) -> None:
    gap = sse("gap", {"attempt": 1, "from": 15, "to": 1_162}, "4-0")
    api.on(f"GET /v1/jobs/{JOB_ID}", ok(job()))
    api.on(ROUTE, stream(OUTPUT, gap), stream(DONE))
    *story, done = client.get(JOB_ID).events()
    assert story == [OutputEvent(0, [1], 1), GapEvent(15, 1_162, 1)]
    assert story[1].type == "gap"
    assert isinstance(done, DoneEvent)
    assert api.seen(ROUTE)[1].headers["last-event-id"] == "4-0"


def test_a_lost_connection_is_taken_up_where_it_broke(api: Server, client: Client) -> None:
    away = problem(503, "unavailable", "restarting")
    # The second connection breaks inside the event 2-0, the fourth says the known state again.
    api.on(ROUTE, stream(STATE, PROGRESS), stream(LOG[:-1]), drop, away, stream(STATE, LOG, OUTPUT), stream(DONE))
    api.on(f"GET /v1/jobs/{JOB_ID}", ok(job()))
    *story, done = client.get(JOB_ID).events()
    assert story == STORY
    assert isinstance(done, DoneEvent)
    resumed = [request.headers.get("last-event-id") for request in api.seen(ROUTE)]
    assert resumed == [None, "1-0", "1-0", "1-0", "1-0", "3-0"]


def test_a_stream_that_never_tells_anything_ends(api: Server, client: Client) -> None:
    api.on(f"GET /v1/jobs/{JOB_ID}", ok(job()))
    api.on(ROUTE, stream())
    with pytest.raises(ConnectionFailed, match="several times in a row"):
        list(client.get(JOB_ID).events())
    assert len(api.seen(ROUTE)) == 6


def test_a_refused_stream_raises(api: Server, client: Client) -> None:
    api.on(f"GET /v1/jobs/{JOB_ID}", ok(job()))
    api.on(ROUTE, problem(404, "not_found", "gone"))
    with pytest.raises(NotFound, match="gone"):
        list(client.get(JOB_ID).events())


NUMBERED = [
    sse("state", {"state": "queued", "attempt": None}, "s.1"),
    sse("state", {"state": "running", "attempt": 1}, "s.2"),
    sse("log", {"stream": "stdout", "text": "one", "attempt": 1}, "s.3"),
    sse("log", {"stream": "stdout", "text": "one", "attempt": 1}, "s.4"),
    sse("state", {"state": "queued", "attempt": 1}, "s.5"),
    sse("state", {"state": "running", "attempt": 2}, "s.6"),
    b'id: s.7\nevent: output\ndata: {"index": 0,\ndata: "value": 7, "attempt": 2}\n\n',
    sse("done", job("succeeded"), "s.8"),
]
NUMBERED_STORY = [
    StateEvent("queued", None),
    StateEvent("running", 1),
    LogEvent("stdout", "one", 1),
    LogEvent("stdout", "one", 1),
    StateEvent("queued", 1),
    StateEvent("running", 2),
    OutputEvent(0, 7, 2),
]


def rest(last_id: str | None) -> bytes:
    """What the server sends to one that has seen this."""
    return b"".join(NUMBERED[int(last_id.partition(".")[2]) if last_id else 0 :])


@pytest.mark.parametrize("every", [1, 2, 3])
@pytest.mark.parametrize("tail", [0, 1, 7, 20], ids=lambda tail: f"{tail}-bytes-more")
def test_nothing_is_lost_or_repeated_however_connections_drop(
    api: Server, client: Client, every: int, tail: int
) -> None:
    """Each connection brings so many events, a piece of the next one, and breaks."""

    def some(exchange: Exchange) -> None:
        left = rest(exchange.headers.get("last-event-id"))
        whole = b"".join(part + b"\n\n" for part in left.split(b"\n\n")[:every])[: len(left)]
        exchange.stream(left[: len(whole) + tail])

    api.on(f"GET /v1/jobs/{JOB_ID}", ok(job()))
    api.on(ROUTE, some)
    *story, done = client.events(JOB_ID)
    assert story == NUMBERED_STORY
    assert isinstance(done, DoneEvent)
    assert len(api.seen(ROUTE)) == -(-len(NUMBERED) // every)
    assert [event.type for event in client.events(client.get(JOB_ID))][-1] == "done"


@pytest.mark.parametrize("repeats", [False, True], ids=["as-agreed", "server-repeats-the-last"])
def test_a_connection_may_break_at_any_byte(repeats: bool) -> None:
    """In the middle of a line, between `id` and `data`, before the empty line: at every single byte."""
    whole = b"".join(NUMBERED)
    for size in range(len(whole)):
        reading = reader()
        reading.call()
        events = list(reading.feed(whole[:size]))
        reading.pause_s(None, 0.0)
        last_id = reading.call().headers.get("Last-Event-ID")
        again = rest(last_id)
        if repeats and last_id:
            again = NUMBERED[int(last_id[2:]) - 1] + again
        events += reading.feed(again)
        assert events[:-1] == NUMBERED_STORY, size
        assert reading.done


def test_comments_alone_do_not_keep_a_dropping_connection_alive(api: Server, client: Client) -> None:
    api.on(ROUTE, stream(b": hello\n\n"))
    with pytest.raises(ConnectionFailed, match="several times in a row"):
        list(client.events(JOB_ID))
    assert len(api.seen(ROUTE)) == 6


def test_a_connection_that_lived_long_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    reading = reader()
    for _ in range(100):
        reading.call()
        assert list(reading.feed(b": still here\n\n")) == []
        now += 60
        assert reading.pause_s(None, 1.0) == 0.5


def test_a_reader_may_stop_early(api: Server, client: Client) -> None:
    api.on(f"GET /v1/jobs/{JOB_ID}", ok(job()))
    api.on(ROUTE, stream(STATE, PROGRESS, DONE))
    for event in client.get(JOB_ID).events():
        assert event == STORY[0]
        break


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_events_may_come_in_any_pieces(size: int, line_end: bytes) -> None:
    text = (STATE + PROGRESS + LOG + OUTPUT + DONE).replace(b"\n", line_end)
    reading = reader()
    events = [event for start in range(0, len(text), size) for event in reading.feed(text[start : start + size])]
    assert events[:-1] == STORY
    assert reading.done


def test_data_of_several_lines_is_one_event() -> None:
    (event,) = reader().feed(b'event:progress\ndata:{"fraction": 1,\ndata: "message": ""}\n\n')
    assert event == ProgressEvent(1, "")


def test_what_is_no_event_stream_is_refused() -> None:
    with pytest.raises(StokeholdError, match="'state'"):
        list(reader().feed(b"event: state\ndata: {}\n\n"))
    with pytest.raises(StokeholdError, match="MiB"):
        list(reader().feed(b"x" * (33 << 20)))
