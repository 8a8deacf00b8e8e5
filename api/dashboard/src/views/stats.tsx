// The figures of an endpoint: the split of its traffic, and the outcomes and the time by part of each version.
import { useEffect } from "preact/hooks";
import type { Schemas } from "../api";
import { useAsked } from "../live";
import { Bar, Legend, Table } from "../parts";
import { count, percent, span, usd } from "../words";

const PARTS = ["queue", "env", "weights", "boot", "load", "warmup", "run", "upload"] as const;
/** Time between two requests for the figures of a day. */
const STATS_EVERY_MS = 10_000;

export type Stats = Schemas["VersionStats"];

/** The figures of several versions together; `main` is the version that ran most, whose times and cost are shown for all. */
export interface Summary { runs: number; errorRate: string; taskSuccess: string; main: Stats | null }
export function summary(versions: Stats[]): Summary {
  const sum = (of: (each: Stats) => number) => versions.reduce((all, each) => all + of(each), 0);
  const [succeeded, failed] = [sum((each) => each.succeeded), sum((each) => each.failed)];
  const [accepted, rejected] = [sum((each) => each.task_succeeded ?? 0), sum((each) => each.task_failed ?? 0)];
  const main = versions.reduce<Stats | null>((most, each) => (most === null || each.runs > most.runs ? each : most), null);
  return { runs: sum((each) => each.runs), errorRate: percent(failed, succeeded + failed), taskSuccess: percent(accepted, accepted + rejected), main };
}

export function useStats(name: string, isOn = true): { data: Schemas["EndpointStats"] | null; problem: string | null } {
  const stats = useAsked<Schemas["EndpointStats"]>(isOn ? `/v1/endpoints/${encodeURIComponent(name)}/stats?hours=24` : null, null);
  useEffect(() => { if (!isOn) return; const timer = setInterval(stats.again, STATS_EVERY_MS); return () => clearInterval(timer); }, [isOn]);
  return stats;
}

/** The split of the traffic. */
export function Split({ traffic }: { traffic: Schemas["Traffic"] | null }) {
  return <Bar label="Traffic" whole={100} say={(size) => `${size} %`} parts={(traffic?.versions ?? []).map((part, at) => [`v${part.version}`, part.percent, `of${at % 6}`])} />;
}

export function Outcomes({ versions }: { versions: Stats[] }) {
  return <Table label="Outcomes" heads={["version", "runs", "succeeded", "failed", "error rate", "task success", "per 1,000"]} n={[1, 2, 3, 4, 5, 6]} rows={versions.map((each) => {
    const { errorRate, taskSuccess } = summary([each]);
    return [`v${each.version}`, count(each.runs), count(each.succeeded), count(each.failed), errorRate, taskSuccess, usd(each.usd_micros_per_1000)];
  })} />;
}

/** The time of a run by part, p50 and p95, on one scale for all versions. */
export function Times({ versions }: { versions: Stats[] }) {
  const of = (each: Stats, part: (typeof PARTS)[number], at: "p50" | "p95") => each.timing[`${part}_ms`]?.[at] ?? 0;
  const whole = (each: Stats, at: "p50" | "p95") => PARTS.reduce((sum, part) => sum + of(each, part, at), 0);
  const most = Math.max(1, ...versions.map((each) => whole(each, "p95")));
  const rows = versions.flatMap((each) => (["p50", "p95"] as const).map((at) => [
    at === "p50" ? `v${each.version}` : "", at, <Bar label={`Version ${each.version}, ${at}`} whole={most} say={span} parts={PARTS.map((part) => [part, of(each, part, at), part])} />,
    ...PARTS.map((part) => { const timing = each.timing[`${part}_ms`]; return timing ? span(timing[at]) : "–"; }), span(each.timing.total_ms?.[at]),
  ]));
  return <><Table label="Time by part" heads={["version", "quantile", "time by part", ...PARTS, "total"]} n={[...PARTS.map((_, at) => at + 3), PARTS.length + 3]} rows={rows} /><Legend kinds={PARTS.map((part) => [part, part])} /></>;
}
