// A job's trace as a waterfall: each part of its way below the whole that it belongs to, to scale.
import { useEffect, useState } from "preact/hooks";
import { ask, sentence, type Schemas } from "../api";
import { Problem } from "../parts";
import { span as duration } from "../words";

interface Span { spanId: string; parentSpanId?: string; name: string; startTimeUnixNano: string; endTimeUnixNano: string; attributes?: { key: string; value: Record<string, unknown> }[]; status?: { message?: string } }
interface Row { span: Span; depth: number; start: number; took: number; note: string }
const NANOS_PER_MS = 1e6;

/** The spans in the order of a waterfall; times in milliseconds after the first one's beginning. */
function rows(trace: Schemas["Trace"]): Row[] {
  const resources = trace.resourceSpans as unknown as { scopeSpans: { spans: Span[] }[] }[];
  const spans = resources.flatMap((resource) => resource.scopeSpans.flatMap((scope) => scope.spans));
  // Nanoseconds since 1970 are more than a number holds exactly, but not by a millisecond.
  const at = (time: string) => Number(time) / NANOS_PER_MS;
  // What took no time came before what began with it.
  spans.sort((one, other) => at(one.startTimeUnixNano) - at(other.startTimeUnixNano) || at(one.endTimeUnixNano) - at(other.endTimeUnixNano));
  const root = spans.find((span) => !spans.some((other) => other.spanId === span.parentSpanId));
  const found: Row[] = [];
  const add = (span: Span, depth: number) => {
    if (!root || found.length >= spans.length) return;
    const start = at(span.startTimeUnixNano) - at(root.startTimeUnixNano);
    found.push({ span, depth, start, took: at(span.endTimeUnixNano) - at(span.startTimeUnixNano), note: note(span) });
    for (const part of spans) if (part.parentSpanId === span.spanId && part !== span) add(part, depth + 1);
  };
  if (root) add(root, 0);
  return found;
}

function note({ attributes = [], status }: Span): string {
  const has = (key: string) => attributes.find((attribute) => attribute.key === key);
  const answer = has("http.response.status_code")?.value["intValue"];
  return [has("stokehold.warm") && "warm", answer && `HTTP ${answer}`, status?.message && `✕ ${status.message}`].filter(Boolean).join(", ");
}

/** Asked for when it is opened: most who look at a job look at its attempts alone. `of` changes when the job does. */
export function Trace({ id, of }: { id: string; of: string }) {
  const [isOpen, setOpen] = useState(false);
  const [shown, setShown] = useState<Row[]>([]);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    if (!isOpen) return;
    let isWanted = true;
    ask<Schemas["Trace"]>(`/v1/jobs/${encodeURIComponent(id)}/trace`).then(
      (trace) => { if (isWanted) { setShown(rows(trace)); setProblem(null); } },
      (error) => { if (isWanted) setProblem(sentence(error)); },
    );
    return () => { isWanted = false; };
  }, [id, of, isOpen]);
  const whole = Math.max(1, shown[0]?.took ?? 1);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Trace</summary>
      <Problem text={problem} />
      <div class="scroll" tabIndex={0} role="region" aria-label="Trace">
        <table>
          <thead><tr><th scope="col">part</th><th scope="col" class="n">took</th><th scope="col" style={{ width: "50%" }}>when</th><th scope="col">note</th></tr></thead>
          <tbody>{shown.map(({ span, depth, start, took, note }) => (
            <tr key={span.spanId}>
              <td class="mono" style={{ paddingLeft: `${depth + 0.5}em` }}>{span.name}</td>
              <td class="n">{duration(took)}</td>
              <td><svg width="100%" height="10" role="img" aria-label={`from ${duration(start)}, for ${duration(took)}`}><rect x={`${(100 * start) / whole}%`} width={`${Math.max(0.3, (100 * took) / whole)}%`} height="10" fill="currentColor" /></svg></td>
              <td class="quiet">{note}</td>
            </tr>
          ))}</tbody>
        </table>
      </div>
    </details>
  );
}
