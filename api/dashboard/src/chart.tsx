// What came, went and waited, as lines: told apart by their dashes and their names, not by colour alone.
import uPlot from "uplot";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Schemas } from "./api";
import { useTheme } from "./theme";
import { count } from "./words";

type Series = Schemas["Series"];

const HEIGHT_PX = 220;
const LINES: { label: string; colour: string; dash: number[]; of: (point: Schemas["SeriesPoint"]) => number }[] = [
  { label: "waiting", colour: "--busy", dash: [], of: ({ waiting }) => waiting.interactive + waiting.standard + waiting.batch },
  { label: "arrived", colour: "--good", dash: [6, 3], of: (point) => point.arrived },
  { label: "ended", colour: "--quiet", dash: [2, 3], of: (point) => point.ended },
  { label: "failed", colour: "--bad", dash: [10, 3, 2, 3], of: (point) => point.failed },
];

export function Chart({ series }: { series: Series }) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const theme = useTheme();
  const [at, setAt] = useState<number | null>(null);
  const { points } = series;
  const data: uPlot.AlignedData = [points.map((point) => point.at_ms / 1000), ...LINES.map((line) => points.map(line.of))];
  useEffect(() => {
    const div = place.current;
    if (!div) return;
    const colour = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const axis: uPlot.Axis = { stroke: colour("--quiet"), font: "12px system-ui", grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
    const clock = (seconds: number) => new Date(seconds * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
    const drawn = new uPlot({
      width: div.clientWidth, height: HEIGHT_PX, legend: { show: false }, padding: [8, 32, 0, 0],
      axes: [{ ...axis, space: 90, values: (_, times) => times.map(clock) }, { ...axis, size: 60, values: (_, sizes) => sizes.map((size) => (Number.isInteger(size) ? count(size) : "")) }],
      series: [{}, ...LINES.map((line) => ({ label: line.label, stroke: colour(line.colour), dash: line.dash, width: 1.5, points: { show: false } }))],
      hooks: { setCursor: [(chart) => setAt(chart.cursor.idx ?? null)] },
    }, data, div);
    plot.current = drawn;
    const size = new ResizeObserver(() => drawn.setSize({ width: div.clientWidth, height: HEIGHT_PX }));
    size.observe(div);
    return () => { size.disconnect(); drawn.destroy(); plot.current = null; };
  }, [theme]);
  useEffect(() => { plot.current?.setData(data); }, [series]);
  const told = points[at ?? points.length - 1];
  return (
    <>
      <div ref={place} role="img" aria-label={`Jobs of the last hour, in steps of ${series.step_s} seconds. In the last: ${told?.arrived ?? 0} arrived, ${told?.ended ?? 0} ended, ${told?.failed ?? 0} failed.`} />
      <p class="legend">{LINES.map((line) => <span key={line.label}><svg width="24" height="8" aria-hidden="true"><line x1="0" y1="4" x2="24" y2="4" stroke={`var(${line.colour})`} stroke-width="2" stroke-dasharray={line.dash.join(" ")} /></svg> {line.label} {told ? line.of(told) : "–"}</span>)}{told && <span class="quiet">{at === null ? "last" : new Date(told.at_ms).toLocaleTimeString("en-GB")}, {series.step_s} s</span>}</p>
    </>
  );
}
