// The trace headers of a submit: the time of the call, and the trace context of the caller (W3C Trace Context).

import { hasProcess } from "./env.js";

interface SpanContext {
  traceId: string;
  spanId: string;
  traceFlags: number;
}
interface OpenTelemetry {
  context?: { active?: () => { getValue?: (key: symbol) => { spanContext?: () => SpanContext } | undefined } };
}

/** The global under which every copy of OpenTelemetry's API 1 is registered, and the key of a span in a context. */
const API = Symbol.for("opentelemetry.js.api.1");
const SPAN = Symbol.for("OpenTelemetry Context Key SPAN");

/**
 * Returns the trace headers. Call it once at the start of a call, and use the headers for every try.
 *
 * Browsers send none: they would send a preflight for these headers, which an API of an earlier release rejects.
 */
export function callHeaders(): Record<string, string> {
  if (!hasProcess()) return {};
  const place = traceparent();
  return {
    "stokehold-called-ms": String(Date.now()),
    ...(place === undefined ? {} : { traceparent: place }),
  };
}

/**
 * The `traceparent` of the active span of OpenTelemetry; undefined if there is none.
 *
 * An application with an active span has registered the API of OpenTelemetry already, so it is not imported here.
 */
export function traceparent(): string | undefined {
  const registered = (globalThis as Record<symbol, unknown>)[API] as OpenTelemetry | undefined;
  const place = registered?.context?.active?.().getValue?.(SPAN)?.spanContext?.();
  if (place === undefined || !/^[0-9a-f]{32}$/.test(place.traceId) || /^0+$/.test(place.traceId)) return undefined;
  const flags = (place.traceFlags & 0xff).toString(16).padStart(2, "0");
  return `00-${place.traceId}-${place.spanId}-${flags}`;
}
