// What was spent, on what, and what it would have cost elsewhere.
import type { ComponentChildren } from "preact";
import type { Schemas } from "../api";
import { useAsked } from "../live";
import { Bar, Empty, Legend, Problem, State, Table, Tile } from "../parts";
import { go } from "../route";
import { count, instant, usd } from "../words";

const BY = ["endpoint", "tenant", "batch", "machine", "day"];

/** Of what the bars are made. */
const KINDS: [string, string][] = [["run", "run"], ["load", "load"], ["boot", "boot"], ["idle", "idle"], ["disk and traffic", "disk"], ["not broken down", "others"]];

/** What a row's dollars went into; what a row does not tell apart is the last part. */
function parts(row: Schemas["CostRow"]): [string, number, string][] {
  const sizes = [row.run_usd_micros, row.load_usd_micros, row.boot_usd_micros ?? 0, row.idle_usd_micros ?? 0, (row.disk_usd_micros ?? 0) + (row.traffic_usd_micros ?? 0) + (row.stopped_usd_micros ?? 0)];
  const rest = Math.max(0, row.total_usd_micros - sizes.reduce((sum, size) => sum + size, 0));
  return KINDS.map(([name, kind], at) => [name, sizes[at] ?? rest, kind]);
}

/** What a limit is, and how much of it is taken. */
function taken(now: string | number, most: string | number | null | undefined): string { return most == null ? `${now}, no limit` : `${now} of ${most}`; }

function line(name: string, limits: Schemas["Limits"], usage: Schemas["Usage"], budget: Schemas["BudgetOfDay"] | null | undefined): ComponentChildren[] {
  return [
    name, taken(usage.running, limits.max_running), taken(count(usage.open), limits.max_open == null ? null : count(limits.max_open)), limits.starts_per_minute ?? "no limit",
    budget ? <Bar label={`Budget of ${name}`} whole={budget.limit_usd_micros} say={usd} parts={[["spent", budget.spent_today_usd_micros, budget.state === "within" ? "run" : "failed"]]} /> : "none",
    budget ? <>{usd(budget.spent_today_usd_micros)} of {usd(budget.limit_usd_micros)} {budget.state !== "within" && <State of={budget.state} />}</> : "–", budget?.resumes_at ? instant(budget.resumes_at) : "–",
  ];
}

/** What the tenant and its endpoints may take, and have; those endpoints that have a limit. */
function Limits() {
  const { data } = useAsked<Schemas["OwnLimits"]>("/v1/limits", "costs");
  if (!data) return null;
  const limited = Object.entries(data.endpoints).filter(([, of]) => Object.values(of.limits).some((limit) => limit != null));
  return <><h2>Limits and budgets of {data.tenant}</h2><Table label="Limits and budgets" heads={["of", "running", "open", "starts per minute", "daily budget", "spent", "starts again"]} rows={[line("all", data.limits, data.usage, data.budget), ...limited.map(([name, of]) => line(name, of.limits, of.usage, of.budget))]} /></>;
}

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
        {total.usage && <Tile label="per 1M tokens">{usd(total.usd_micros_per_million_tokens)} <small class="quiet">{count(total.usage.prompt_tokens + total.usage.completion_tokens)} tokens</small></Tile>}
      </div>}
      {total && total.total_usd_micros > 0 && <Bar label="Cost by part" whole={total.total_usd_micros} say={usd} parts={parts(total)} />}
      {data && <p class="quiet">{data.total.is_estimate ? "~ A provider has not billed the final amount yet. " : ""}On demand the same work would have cost {usd(data.savings.on_demand_usd_micros)}{data.savings.hosted.map((each) => `; at ${each.service} ${usd(each.usd_micros)}, here ${usd(each.ours_usd_micros)}`).join("")}.</p>}
      {data?.rows.length === 0 && <Empty>No costs yet. A day appears here once its first job has run.</Empty>}
      {!!data?.rows.length && <Table label={`Costs by ${chosen}`} heads={[chosen, "share", "jobs", "total", "run", "load", "boot", "idle", "per 1,000", ...(total?.usage ? ["per 1M tokens"] : [])]} n={[2, 3, 4, 5, 6, 7, 8, 9]} rows={data.rows.map((row) => [
        row.name, <Bar label="Dollars" whole={most} say={usd} parts={parts(row)} />,
        count(row.jobs), `${usd(row.total_usd_micros)}${row.is_estimate ? " ~" : ""}`, usd(row.run_usd_micros), usd(row.load_usd_micros), usd(row.boot_usd_micros), usd(row.idle_usd_micros), usd(row.per_1000_jobs_usd_micros), ...(total?.usage ? [usd(row.usd_micros_per_million_tokens)] : []),
      ])} />}
      {!!data?.rows.length && <Legend kinds={KINDS} />}
      {!!data?.left_off && <p class="quiet">{data.left_off} smaller rows are not listed.</p>}
      <Limits />
    </>
  );
}
