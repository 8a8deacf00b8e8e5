// One job's story on one clock: what it waited for, what each attempt did, and who was told. Pure, so that a page that is drawn again
// says the same.
import type { Schemas } from "./api";

type Attempt = Schemas["Attempt"];

/** The parts of an attempt's time, in the order in which they come, and the key of each. */
export const PARTS = [["queue", "queued_ms"], ["env", "env_ms"], ["weights", "weights_ms"], ["boot", "boot_ms"], ["load", "load_ms"], ["warmup", "warmup_ms"], ["run", "run_ms"], ["upload", "upload_ms"]] as const;

export type Kind = (typeof PARTS)[number][0] | "scheduled" | "webhook";

/** Milliseconds since the job was submitted. */
export interface Stretch { kind: Kind; from: number; to: number }
export interface Row { label: string; state: string | null; stretches: Stretch[]; note: string; error: string | null; attempt: Attempt | null }
export interface Timeline { whole_ms: number; rows: Row[] }

/** An attempt's stretches: those that are known, and what is not yet as its run. */
function stretches(attempt: Attempt, at: (text: string) => number, now: number): Stretch[] {
  const start = at(attempt.started_at);
  const end = attempt.ended_at ? at(attempt.ended_at) : now;
  const found: Stretch[] = [{ kind: "queue", from: Math.max(0, start - attempt.timing.queued_ms), to: start }];
  let from = start;
  for (const [kind, key] of PARTS.slice(1)) {
    const to = Math.min(end, from + attempt.timing[key]);
    found.push({ kind, from, to });
    from = to;
  }
  if (!attempt.ended_at) found.push({ kind: "run", from, to: end });
  return found.filter((stretch) => stretch.to > stretch.from);
}

export function timeline(job: Schemas["Job"], deliveries: Schemas["WebhookDelivery"][], now_ms: number): Timeline {
  const submitted = Date.parse(job.created_at);
  const at = (text: string) => Math.max(0, Date.parse(text) - submitted);
  const now = Math.max(0, now_ms - submitted);
  const rows: Row[] = [];
  const quiet = { error: null, attempt: null };
  const isOpen = !job.ended_at;
  const due = job.run_after ? at(job.run_after) : 0;
  if (due > 0) rows.push({ label: "scheduled", state: null, stretches: [{ kind: "scheduled", from: 0, to: Math.min(due, now) }], note: "", ...quiet });
  for (const attempt of job.attempts) {
    const error = attempt.error ? `${attempt.error.code}: ${attempt.error.message}` : null;
    rows.push({ label: String(attempt.attempt), state: attempt.state, stretches: stretches(attempt, at, now), note: attempt.worker_id, error, attempt });
  }
  const last = job.attempts[job.attempts.length - 1];
  const since = last?.ended_at ? at(last.ended_at) : due;
  if (isOpen && (!last || last.ended_at) && now > since) rows.push({ label: "waits", state: job.state, stretches: [{ kind: "queue", from: since, to: now }], note: "", ...quiet });
  for (const delivery of deliveries) {
    const tries = delivery.tries.map((each): Stretch => ({ kind: "webhook", from: at(each.at), to: at(each.at) + each.duration_ms }));
    const answer = delivery.tries[delivery.tries.length - 1];
    rows.push({ label: delivery.event, state: delivery.state, stretches: tries, note: delivery.url, error: answer?.error ?? null, attempt: null });
  }
  const whole_ms = Math.max(1, isOpen ? now : at(job.ended_at ?? job.created_at), ...rows.flatMap((row) => row.stretches.map((stretch) => stretch.to)));
  return { whole_ms, rows };
}

/** Four to eight round instants of a span, for its axis. */
export function ticks(whole_ms: number): number[] {
  const power = 10 ** Math.floor(Math.log10(whole_ms / 4));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((each) => whole_ms / each <= 8) ?? whole_ms;
  return Array.from({ length: Math.floor(whole_ms / step) + 1 }, (_, at) => at * step);
}
