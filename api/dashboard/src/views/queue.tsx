// What waits, why the head of each lane waits, and what came and went.
import uPlot from "uplot";
import { useEffect, useRef } from "preact/hooks";
import type { Schemas } from "../api";
import { useAsked, useTopic } from "../live";
import { Empty, Problem, State, Table, Tile } from "../parts";
import { span } from "../words";

type Series = Schemas["Series"];
/** There is a new point so often. */
const STEP_MS = 10_000;

/** Lines told apart by their dashes and their names, not by colour alone. */
const LINES: { label: string; colour: string; dash: number[] }[] = [
  { label: "waiting", colour: "--busy", dash: [] },
  { label: "arrived", colour: "--good", dash: [6, 3] },
  { label: "ended", colour: "--quiet", dash: [2, 3] },
  { label: "failed", colour: "--bad", dash: [10, 3, 2, 3] },
];

function Chart({ series }: { series: Series }) {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const div = place.current;
    if (!div) return;
    const colour = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    const points = series.points;
    const data: uPlot.AlignedData = [
      points.map((point) => point.at_ms / 1000),
      points.map((point) => point.waiting.interactive + point.waiting.standard + point.waiting.batch),
      points.map((point) => point.arrived), points.map((point) => point.ended), points.map((point) => point.failed),
    ];
    const plot = new uPlot({
      width: div.clientWidth, height: 220, axes: [axis, axis],
      series: [{}, ...LINES.map((line) => ({ label: line.label, stroke: colour(line.colour), dash: line.dash, width: 1.5, points: { show: false } }))],
    }, data, div);
    const size = new ResizeObserver(() => plot.setSize({ width: div.clientWidth, height: 220 }));
    size.observe(div);
    return () => { size.disconnect(); plot.destroy(); };
  }, [series]);
  const last = series.points[series.points.length - 1];
  return <div ref={place} role="img" aria-label={`Jobs of the last hour, in steps of ${series.step_s} seconds. In the last: ${last?.arrived ?? 0} arrived, ${last?.ended ?? 0} ended, ${last?.failed ?? 0} failed.`} />;
}

export function Queue() {
  const { data, problem } = useTopic<Schemas["QueueView"]>("queue", "/v1/queue");
  const series = useAsked<Series>("/v1/series?minutes=60", null);
  useEffect(() => { const timer = setInterval(series.again, STEP_MS); return () => clearInterval(timer); }, []);
  const lanes = data?.lanes ?? [];
  const of = (priority: string) => lanes.filter((lane) => lane.priority === priority).reduce((sum, lane) => sum + lane.jobs, 0);
  return (
    <>
      <h1>Queue</h1>
      <Problem text={problem} />
      {data && <div class="tiles">
        <Tile label="waiting">{lanes.reduce((sum, lane) => sum + lane.jobs, 0)}</Tile>
        <Tile label="interactive">{of("interactive")}</Tile><Tile label="standard">{of("standard")}</Tile><Tile label="batch">{of("batch")}</Tile>
      </div>}
      <h2>The last hour</h2>
      {series.data?.points.length ? <Chart series={series.data} /> : <p class="quiet">{series.problem ?? "No figures yet."}</p>}
      <h2>Lanes, and why their heads wait</h2>
      {data && lanes.length === 0 && <Empty>Nothing waits. Send a job: <code>stoke submit greet --input '{"{}"}'</code></Empty>}
      {lanes.length > 0 && <Table label="Lanes" heads={["priority", "endpoint", "tenant", "jobs", "ETA", "why"]} n={[3, 4]} rows={lanes.map((lane) => [
        lane.priority, lane.endpoint, lane.tenant, lane.jobs, lane.eta_s === null || lane.eta_s === undefined ? "–" : span(lane.eta_s * 1000),
        <><State of={lane.waiting.reason} /> <span class="quiet">{lane.waiting.message}</span></>,
      ])} />}
    </>
  );
}
