// Instances, their GPUs and the memory of each model, and the notices and decisions of the autoscaler.
import { ask, type Schemas } from "../api";
import { useAsked, useTopic } from "../live";
import { Bar, Confirm, Empty, Problem, State, Table, Tile, useTick } from "../parts";
import { useMay } from "../session";
import { gib, since, usd } from "../words";

type Worker = Schemas["Worker"];
type Machine = Schemas["Machine"];

/** The colour of a model, the same on every GPU. */
function colour(name: string): string { return `of${[...name].reduce((sum, letter) => (31 * sum + letter.charCodeAt(0)) % 9973, 7) % 6}`; }

/** The memory of a GPU by model. */
function memory(worker: Worker, gpu: Schemas["Gpu"]): [string, number, string][] {
  const models = worker.models.flatMap((model) => model.cards.filter((each) => each.index === gpu.index).map((each): [string, number, string] => [model.name, each.held_mib, colour(model.name)]));
  return gpu.vram_foreign_mib ? [...models, ["others", gpu.vram_foreign_mib, "others"]] : models;
}

function GpuMemory({ worker, gpu }: { worker: Worker; gpu: Schemas["Gpu"] }) {
  const measured = [gpu.temperature_c == null ? null : `${gpu.temperature_c} °C`, gpu.utilisation_pct == null ? null : `${gpu.utilisation_pct} % utilization`, gpu.power_w == null ? null : `${gpu.power_w} W`].filter((each) => each !== null);
  const parts = memory(worker, gpu);
  return (
    <div class="gpu">
      <p><b>{gpu.index}</b> {gpu.name} <State of={gpu.health} /> {gpu.why && <span class="quiet">{gpu.why}</span>}<span class="right">{measured.join(" · ")}</span></p>
      <Bar label={`Memory of GPU ${gpu.index}`} whole={gpu.vram_mib} parts={parts} say={gib} />
      <p class="quiet">{gib(gpu.vram_held_mib ?? 0)} of {gib(gpu.vram_mib)} reserved{parts.map(([name, mib]) => ` · ${name} ${gib(mib)}`)}</p>
    </div>
  );
}

/** Evicts a worker. The API's scope for this is that of the tokens that workers join with. */
function Evict({ machine, worker, onEvicted }: { machine: Machine; worker: Worker; onEvicted: () => void }) {
  const jobs = worker.running === 1 ? "The job that it runs goes" : "The jobs that it runs go";
  const back = machine.provider === "joined" ? "It cannot join again under its name with the token that it joined with. To keep out its host under any name, also revoke that token." : "A rented instance cannot join again.";
  const evict = () => ask<Schemas["Evicted"]>(`/v1/workers/${encodeURIComponent(worker.id)}/evict`, { method: "POST", body: "{}" }).then(onEvicted);
  return <Confirm scope="workers:join" label="Evict" of={`worker ${worker.name}`} text={`Evict worker ${worker.name} (${worker.id}): the API refuses its calls within 5 seconds. ${jobs} back to the queue without losing an attempt. ${back}`} act={evict} />;
}

/** An instance: its cost and activity and, once its worker has joined, its GPUs. */
function Box({ machine, worker, onEvicted }: { machine: Machine; worker: Worker | undefined; onEvicted: () => void }) {
  const price = machine.usd_micros_per_hour > 0 ? `${usd(machine.usd_micros_per_hour)}/h${machine.is_interruptible ? ", interruptible" : ""}` : "owned";
  return (
    <article aria-label={`Instance ${machine.id}`}>
      <header><State of={machine.state} /> <b>{machine.kind}</b><span class="right">{price}</span></header>
      <p class="mono quiet">{machine.id}</p>
      <p class="quiet">{[machine.provider, worker?.region, `${machine.running} of ${machine.slots} running`, `up for ${since(machine.rented_at)}`, machine.idle_since ? `idle for ${since(machine.idle_since)}` : ""].filter(Boolean).join(" · ")}</p>
      {worker?.gpus.map((gpu) => <GpuMemory key={gpu.uuid} worker={worker} gpu={gpu} />)}
      {worker && worker.gpus.length === 0 && <p class="quiet">No GPU: jobs run on the CPU.</p>}
      {worker && <div class="row"><Evict machine={machine} worker={worker} onEvicted={onEvicted} /></div>}
      {!worker && machine.loaded.length === 0 && <p class="quiet">Its worker has not joined.</p>}
    </article>
  );
}

export function Fleet() {
  useTick();
  const may = useMay("workers:read");
  const { data: fleet, problem } = useTopic<Schemas["Fleet"]>("fleet", may ? "/v1/fleet" : null);
  const workers = useAsked<Schemas["WorkerList"]>(may ? "/v1/workers" : null, "fleet");
  const limits = useAsked<Schemas["OwnLimits"]>("/v1/limits", "costs");
  const costs = useAsked<Schemas["Costs"]>("/v1/costs?by=machine", "costs");
  const budget = limits.data?.budget;
  const of = (machine: Machine) => workers.data?.workers.find((worker) => worker.id === machine.worker_id);
  const states = [...new Set(fleet?.machines.map((machine) => machine.state))].map((state) => `${fleet?.machines.filter((machine) => machine.state === state).length} ${state}`);
  if (!may) return <><h1>Fleet</h1><p class="quiet">Instances serve all tenants, so this view requires the scope <code>workers:read</code>.</p></>;
  return (
    <>
      <h1>Fleet</h1>
      <Problem text={problem} />
      {fleet && <div class="tiles">
        <Tile label="instances">{fleet.machines.length} <small class="quiet">{states.join(", ")}</small></Tile><Tile label="per hour">{usd(fleet.usd_micros_per_hour)}</Tile>
        <Tile label="instances today">{usd(costs.data?.total.total_usd_micros)}</Tile>
        <Tile label="jobs today, of budget">{budget ? <>{usd(budget.spent_today_usd_micros)} <small class="quiet">of {usd(budget.limit_usd_micros)}</small></> : "no budget"}</Tile>
        <Tile label="autoscaler last reported">{fleet.autoscaler_at ? `${since(fleet.autoscaler_at)} ago` : "never"}</Tile>
      </div>}
      {!!fleet?.notices.length && <><h2>Notices of the autoscaler</h2><Table label="Notices" heads={["for", "kind", "notice"]} wrap={[2]} rows={fleet.notices.map((notice) => [since(notice.since), notice.kind, notice.text])} /></>}
      <h2>Instances</h2>
      <Problem text={workers.problem} />
      {fleet?.machines.length === 0 && <Empty>No instances. An autoscaler starts them when jobs wait: <code>stoke autoscaler run</code></Empty>}
      <div class="boxes">{fleet?.machines.map((machine) => <Box key={machine.id} machine={machine} worker={of(machine)} onEvicted={workers.again} />)}</div>
      {!!fleet?.decisions.length && <><h2>Decisions of the autoscaler</h2><Table label="Decisions" heads={["ago", "action", "instance", "reason"]} wrap={[3]} rows={fleet.decisions.map((each) => [since(each.at), <>{each.failure ? <span class="bad">✕ {each.action}</span> : each.action}</>, <span class="mono">{each.machine ?? "–"}</span>, each.failure ? `${each.reason}: ${each.failure}` : each.reason])} /></>}
    </>
  );
}
