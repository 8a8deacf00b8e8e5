"""A traced application: both clients submit within a span, with OpenTelemetry's SDK installed."""

import asyncio
import json
import sys

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from stokehold import AsyncClient, Client

trace.set_tracer_provider(TracerProvider())
TRACER = trace.get_tracer("application")


def described(span, job, result) -> dict:
    place = span.get_span_context()
    return {
        "job": job.id,
        "trace_id": f"{place.trace_id:032x}",
        "span_id": f"{place.span_id:016x}",
        "handler": result["traceparent"],
    }


def blocking(webhook: str) -> dict:
    with Client() as client:
        with TRACER.start_as_current_span("blocking") as span:
            job = client.submit("traced", {"text": "hi"}, webhook=webhook)
        return described(span, job, job.result(timeout=120))


async def awaiting(webhook: str) -> dict:
    async with AsyncClient() as client:
        with TRACER.start_as_current_span("awaiting") as span:
            job = await client.submit("traced", {"text": "hi"}, webhook=webhook)
        return described(span, job, await job.result(timeout=120))


print(json.dumps([blocking(sys.argv[1]), asyncio.run(awaiting(sys.argv[1]))]))
