// A job's attempts drawn on one clock, and the same in words.
import type { Schemas } from "../api";
import { useAsked } from "../live";
import { State, useTick } from "../parts";
import { useMay } from "../session";
import { PARTS, type Row, ticks, timeline } from "../timeline";
import { span, usd } from "../words";

/** What a row says in words: its parts, what it cost and where it ran. */
function Words({ row }: { row: Row }) {
  const { attempt } = row;
  const parts = attempt ? PARTS.filter(([, key]) => attempt.timing[key] > 0).map(([name, key]) => `${name} ${span(attempt.timing[key])}`) : [];
  const words = [...parts, ...(attempt?.cost_usd_micros != null ? [usd(attempt.cost_usd_micros)] : []), ...(row.note ? [row.note] : [])];
  return <p class="words"><span class="quiet">{words.join(" · ")}</span>{row.error && <><br /><span class="bad">{row.error}</span></>}</p>;
}

export function Story({ job }: { job: Schemas["Job"] }) {
  const mayHear = useMay("webhooks:read") && !!job.webhook;
  const told = useAsked<Schemas["DeliveryList"]>(mayHear ? `/v1/webhooks/deliveries?job=${job.id}` : null, "jobs");
  useTick(!job.ended_at);
  const { whole_ms, rows } = timeline(job, told.data?.deliveries ?? [], Date.now());
  const left = (ms: number) => `${(100 * ms) / whole_ms}%`;
  const kinds = [...new Set(rows.flatMap((row) => row.stretches.map((stretch) => stretch.kind)))];
  return (
    <section class="story" aria-label="Timeline">
      <div class="scale" aria-hidden="true">{ticks(whole_ms).map((ms) => <span key={ms} style={{ left: left(ms) }}>{span(ms)}</span>)}</div>
      {rows.map((row) => (
        <div class="lane" key={row.label}>
          <div class="label"><b>{row.label}</b> {row.state && <State of={row.state} />}</div>
          <div class="track" role="img" aria-label={`${row.label}: ${row.stretches.map((stretch) => `${stretch.kind} from ${span(stretch.from)} to ${span(stretch.to)}`).join(", ") || "nothing yet"}`}>
            {row.stretches.map((stretch) => <span key={`${stretch.kind}${stretch.from}`} class={`kind-${stretch.kind}`} title={`${stretch.kind}: ${span(stretch.to - stretch.from)}`} style={{ left: left(stretch.from), width: left(stretch.to - stretch.from) }}>{stretch.to - stretch.from > whole_ms / 16 ? stretch.kind : ""}</span>)}
          </div>
          <Words row={row} />
        </div>
      ))}
      <p class="legend" aria-hidden="true">{kinds.map((kind) => <span key={kind}><i class={`kind-${kind}`} /> {kind}</span>)}</p>
    </section>
  );
}
