"""The trace headers of a submit: the time of the call, and the trace context of the caller (W3C Trace Context)."""

from __future__ import annotations

import sys
import time
from typing import Any


def call_headers() -> dict[str, str]:
    """Returns the trace headers. Call it once at the start of a call, and use the headers for every try."""
    headers = {"Stokehold-Called-Ms": str(time.time_ns() // 1_000_000)}
    place = traceparent()
    if place is not None:
        headers["traceparent"] = place
    return headers


def traceparent() -> str | None:
    """The `traceparent` of the current span of OpenTelemetry; None if there is none.

    An application with a current span has imported OpenTelemetry already, so nothing is imported or required here.
    """
    opentelemetry: Any = sys.modules.get("opentelemetry.trace")
    if opentelemetry is None:
        return None
    place = opentelemetry.get_current_span().get_span_context()
    if not place.is_valid:
        return None
    return f"00-{place.trace_id:032x}-{place.span_id:016x}-{int(place.trace_flags) & 0xFF:02x}"
