"""The event stream of a job: typed events, and the reader that decodes it and resumes it after a lost connection."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Callable, Literal, Union

from stokehold._errors import ConnectionFailed, StokeholdError
from stokehold._models import JobRecord
from stokehold._request import Call, Reply, decode_error
from stokehold._retry import Retry

# The server sends a comment at least every 15 s; after four times that, the connection counts as lost.
SILENCE_TIMEOUT_S = 60.0

# Far above the largest event, a `done` with the whole input of the job.
_EVENT_SIZE_MAX = 32 << 20

# A connection that lasted this long resets the retries, even if the job had no events.
_STEADY_S = 10.0


@dataclass(frozen=True)
class StateEvent:
    """The job changed its state."""

    state: str
    attempt: int | None
    type: Literal["state"] = "state"


@dataclass(frozen=True)
class ProgressEvent:
    """The handler reported its progress. `fraction` is from 0 to 1."""

    fraction: float
    message: str
    type: Literal["progress"] = "progress"


@dataclass(frozen=True)
class LogEvent:
    """The handler wrote to `stdout` or `stderr`."""

    stream: str
    text: str
    attempt: int | None
    type: Literal["log"] = "log"


@dataclass(frozen=True)
class OutputEvent:
    """The handler yielded an output. A retry starts again at index 0, with a higher attempt."""

    index: int
    value: Any
    attempt: int | None
    type: Literal["output"] = "output"


@dataclass(frozen=True)
class GapEvent:
    """Outputs that are missing from this stream: those from `from_index` up to, but not including, `to_index`.

    The server keeps the last MiB of the outputs of a job for readers that start late or reconnect. The result of the
    job contains all outputs.
    """

    from_index: int
    to_index: int
    attempt: int | None
    type: Literal["gap"] = "gap"


@dataclass(frozen=True)
class DoneEvent:
    """The job ended. Always the last event."""

    job: JobRecord
    type: Literal["done"] = "done"


Event = Union[StateEvent, ProgressEvent, LogEvent, OutputEvent, GapEvent, DoneEvent]


class EventReader:
    """Decodes the events of a job, across reconnects. `feed` takes bytes; `pause_s` is for when they stop."""

    def __init__(self, url: str, headers: dict[str, str], retry: Retry, hydrate: Callable[[Any], Any]) -> None:
        self.done = False
        self._url = url
        self._headers = {**headers, "Accept": "text/event-stream"}
        self._retry = retry
        self._hydrate = hydrate
        self._last_id = ""
        self._last_state: Event | None = None
        self._fruitless = 0
        self._since = 0.0
        self._has_id = False
        self._begin()

    def call(self) -> Call:
        """The request for the events that have not been read yet."""
        self._begin()
        self._since = time.monotonic()
        resume = {"Last-Event-ID": self._last_id} if self._last_id else {}
        return Call("GET", self._url, {**self._headers, **resume}, read_timeout_s=SILENCE_TIMEOUT_S)

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The events that these bytes complete. None once the job has ended."""
        if self.done:
            return
        for line in self._lines.feed(chunk):
            if line:
                self._field(line)
                continue
            # Only now is the event whole: an id kept before that would skip the event on the next connection.
            is_repeated = self._has_id and self._id == self._last_id
            self._last_id = self._id
            event = self._once(self._decode("\n".join(self._data))) if self._data and not is_repeated else None
            self._name, self._data_chars, self._has_id = "", 0, False
            self._data.clear()
            if event is not None:
                self._fruitless = 0
                self.done = isinstance(event, DoneEvent)
                yield event
                if self.done:
                    return

    def pause_s(self, outcome: Reply | StokeholdError | None, jitter: float) -> float:
        """Seconds to wait before reconnecting after an error, or the end (None) of the stream. Raises to give up."""
        if isinstance(outcome, Reply):
            error: StokeholdError = decode_error(outcome)
        else:
            error = outcome or ConnectionFailed("the event stream ended before the job did, several times in a row")
        if time.monotonic() - self._since >= _STEADY_S:
            self._fruitless = 0
        delay_s = self._retry.delay_s(self._fruitless, error, jitter)
        if delay_s is None:
            raise error
        self._fruitless += 1
        return delay_s

    def _begin(self) -> None:
        self._lines = _Lines()
        self._id = self._last_id
        self._has_id = False
        self._name = ""
        self._data: list[str] = []
        self._data_chars = 0

    def _once(self, event: Event | None) -> Event | None:
        """Drops a repeated state. Older servers start every connection with the state, without an id."""
        if not isinstance(event, StateEvent):
            return event
        if self._has_id:
            self._last_state = event
            return event
        known, self._last_state = self._last_state, event
        return event if event != known else None

    def _field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if name == "data":
            self._data.append(value)
            self._data_chars += len(value)
            _check_size(self._data_chars)
        elif name == "event":
            self._name = value
        elif name == "id" and "\0" not in value:
            self._id, self._has_id = value, True

    def _decode(self, text: str) -> Event | None:
        try:
            raw = json.loads(text)
            if self._name == "state":
                return StateEvent(raw["state"], raw.get("attempt"))
            if self._name == "progress":
                return ProgressEvent(raw["fraction"], raw.get("message") or "")
            if self._name == "log":
                return LogEvent(raw["stream"], raw["text"], raw.get("attempt"))
            if self._name == "output":
                return OutputEvent(raw["index"], self._hydrate(raw["value"]), raw.get("attempt"))
            if self._name == "gap":
                return GapEvent(raw["from"], raw["to"], raw.get("attempt"))
            if self._name == "done":
                return DoneEvent(JobRecord(raw))
        except (ValueError, KeyError, TypeError) as error:
            raise StokeholdError(
                f"cannot decode the event {self._name!r}: {error!r}; if the server is newer, upgrade stokehold"
            ) from error
        return None  # a type of event that only a newer server has


class _Lines:
    """Splits a byte stream into lines, which end in CR, LF or both; a line may come in pieces."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._skip_lf = False

    def feed(self, chunk: bytes) -> Iterator[str]:
        if self._skip_lf and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._skip_lf = chunk.endswith(b"\r") if chunk else self._skip_lf
        *whole, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in whole:
            yield (bytes(self._rest) + line).decode("utf-8", "replace")
            self._rest.clear()
        self._rest += rest
        _check_size(len(self._rest))


def _check_size(size: int) -> None:
    if size > _EVENT_SIZE_MAX:
        raise StokeholdError(f"received an event of more than {_EVENT_SIZE_MAX >> 20} MiB; is this a Stokehold API?")
