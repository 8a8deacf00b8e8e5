// What was spent, on what, and what it would have cost elsewhere.
import type { Schemas } from "../api";
import { useAsked } from "../live";
import { Bar, Empty, Problem, Table, Tile } from "../parts";
import { go } from "../route";
import { usd } from "../words";

const BY = ["endpoint", "tenant", "batch", "machine", "day"];

export function Costs({ by }: { by: string | null }) {
  const chosen = by && BY.includes(by) ? by : "endpoint";
  const { data, problem } = useAsked<Schemas["Costs"]>(`/v1/costs?by=${chosen}`, "costs");
  const most = Math.max(1, ...(data?.rows.map((row) => row.total_usd_micros) ?? []));
  const total = data?.total;
  return (
    <>
      <h1>Costs</h1>
      <div class="row"><label for="by">by</label><select id="by" value={chosen} onChange={(event) => go(`/dashboard/costs?by=${event.currentTarget.value}`)}>{BY.map((each) => <option key={each}>{each}</option>)}</select></div>
      <Problem text={problem} />
      {total && <div class="tiles">
        <Tile label="total">{usd(total.total_usd_micros)}</Tile><Tile label="run">{usd(total.run_usd_micros)}</Tile><Tile label="load">{usd(total.load_usd_micros)}</Tile><Tile label="boot">{usd(total.boot_usd_micros)}</Tile>
        <Tile label="idle">{usd(total.idle_usd_micros)}</Tile><Tile label="disk">{usd(total.disk_usd_micros)}</Tile><Tile label="traffic">{usd(total.traffic_usd_micros)}</Tile>
      </div>}
      {data && <p class="quiet">On demand the same would have cost {usd(data.savings.on_demand_usd_micros)}{data.savings.hosted.map((each) => `; at ${each.service} ${usd(each.usd_micros)}, here ${usd(each.ours_usd_micros)}`).join("")}.</p>}
      {data?.rows.length === 0 && <Empty>Nothing was spent. A day shows here once its first job has run.</Empty>}
      {!!data?.rows.length && <Table label={`Costs by ${chosen}`} heads={[chosen, "share", "jobs", "total", "run", "load", "boot", "idle", "per 1,000"]} n={[2, 3, 4, 5, 6, 7, 8]} rows={data.rows.map((row) => [
        row.name, <Bar label="Dollars" whole={most} parts={[["run", row.run_usd_micros], ["load", row.load_usd_micros], ["rest", Math.max(0, row.total_usd_micros - row.run_usd_micros - row.load_usd_micros)]]} />,
        row.jobs, `${usd(row.total_usd_micros)}${row.is_estimate ? " ~" : ""}`, usd(row.run_usd_micros), usd(row.load_usd_micros), usd(row.boot_usd_micros), usd(row.idle_usd_micros), usd(row.per_1000_jobs_usd_micros),
      ])} />}
      {!!data?.left_off && <p class="quiet">{data.left_off} smaller rows are left off.</p>}
    </>
  );
}
