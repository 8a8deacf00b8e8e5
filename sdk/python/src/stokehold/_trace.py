"""What a submit says of its trace: when the call began, and the caller's place in a trace (W3C Trace Context)."""

from __future__ import annotations

import sys
import time
from typing import Any


def call_headers() -> dict[str, str]:
    """To be asked for when the call begins; every try of it carries the same."""
    headers = {"Stokehold-Called-Ms": str(time.time_ns() // 1_000_000)}
    place = traceparent()
    if place is not None:
        headers["traceparent"] = place
    return headers


def traceparent() -> str | None:
    """The place of OpenTelemetry's current span; None where there is none.

    Whoever has a current span has imported OpenTelemetry, so that nothing needs to be imported, or installed, here.
    """
    opentelemetry: Any = sys.modules.get("opentelemetry.trace")
    if opentelemetry is None:
        return None
    place = opentelemetry.get_current_span().get_span_context()
    if not place.is_valid:
        return None
    return f"00-{place.trace_id:032x}-{place.span_id:016x}-{int(place.trace_flags) & 0xFF:02x}"
