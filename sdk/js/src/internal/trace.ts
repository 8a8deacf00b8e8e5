// What a submit says of its trace: when the call began, and the caller's place in a trace (W3C Trace Context).

import { hasProcess } from "./env.js";

interface SpanContext {
  traceId: string;
  spanId: string;
  traceFlags: number;
}
interface OpenTelemetry {
  context?: { active?: () => { getValue?: (key: symbol) => { spanContext?: () => SpanContext } | undefined } };
}

/** Where every copy of OpenTelemetry's API, version 1, finds the others, and where a context keeps its span. */
const API = Symbol.for("opentelemetry.js.api.1");
const SPAN = Symbol.for("OpenTelemetry Context Key SPAN");

/**
 * To be asked for when the call begins; every try of it carries the same. Not from a browser: it would ask the API's leave for these
 * headers, and one of an earlier release would not give it.
 */
export function callHeaders(): Record<string, string> {
  if (!hasProcess()) return {};
  const place = traceparent();
  return {
    "stokehold-called-ms": String(Date.now()),
    ...(place === undefined ? {} : { traceparent: place }),
  };
}

/** The place of OpenTelemetry's active span. Its API is not imported: who has an active span has registered one. */
export function traceparent(): string | undefined {
  const registered = (globalThis as Record<symbol, unknown>)[API] as OpenTelemetry | undefined;
  const place = registered?.context?.active?.().getValue?.(SPAN)?.spanContext?.();
  if (place === undefined || !/^[0-9a-f]{32}$/.test(place.traceId) || /^0+$/.test(place.traceId)) return undefined;
  const flags = (place.traceFlags & 0xff).toString(16).padStart(2, "0");
  return `00-${place.traceId}-${place.spanId}-${flags}`;
}
