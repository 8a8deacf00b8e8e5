// Machines, the cards in them and who holds their memory, and what the autoscaler says of it.
import type { Schemas } from "../api";
import { useAsked, useTopic } from "../live";
import { Bar, Empty, Problem, State, Table, Tile, useTick } from "../parts";
import { since, usd } from "../words";

function Cards({ worker }: { worker: Schemas["Worker"] }) {
  return (
    <>
      <h2>{worker.name} <State of={worker.state} /> <span class="quiet">{worker.running} of {worker.slots} running · {worker.region}</span></h2>
      {worker.gpus.length === 0 ? <p class="quiet">No card: it runs on the processor.</p> : <Table label={`Cards of ${worker.name}`} heads={["card", "health", "memory by model", "MiB", "temperature", "in use", "power"]} n={[3, 4, 5, 6]} rows={worker.gpus.map((gpu) => {
        const parts: [string, number][] = worker.models.flatMap((model) => model.cards.filter((card) => card.index === gpu.index).map((card): [string, number] => [model.name, card.held_mib]));
        if (gpu.vram_foreign_mib) parts.push(["others", gpu.vram_foreign_mib]);
        return [`${gpu.index} ${gpu.name}`, <><State of={gpu.health} /> {gpu.why && <span class="quiet">{gpu.why}</span>}</>, <Bar label="Memory" whole={gpu.vram_mib} parts={parts} />,
          `${gpu.vram_held_mib ?? 0} / ${gpu.vram_mib}`, gpu.temperature_c == null ? "–" : `${gpu.temperature_c} °C`, gpu.utilisation_pct == null ? "–" : `${gpu.utilisation_pct} %`, gpu.power_w == null ? "–" : `${gpu.power_w} W`];
      })} />}
    </>
  );
}

export function Fleet() {
  useTick();
  const { data: fleet, problem } = useTopic<Schemas["Fleet"]>("fleet", "/v1/fleet");
  const workers = useAsked<Schemas["WorkerList"]>("/v1/workers", "fleet");
  const limits = useAsked<Schemas["OwnLimits"]>("/v1/limits", "costs");
  const budget = limits.data?.budget;
  return (
    <>
      <h1>Fleet</h1>
      <Problem text={problem} />
      {fleet && <div class="tiles">
        <Tile label="machines">{fleet.machines.length}</Tile><Tile label="workers">{workers.data?.workers.length ?? "–"}</Tile><Tile label="per hour">{usd(fleet.usd_micros_per_hour)}</Tile>
        <Tile label="spent today, of budget">{budget ? <>{usd(budget.spent_today_usd_micros)} / {usd(budget.limit_usd_micros)}</> : "no budget"}</Tile>
        <Tile label="autoscaler last heard">{fleet.autoscaler_at ? since(fleet.autoscaler_at) : "never"}</Tile>
      </div>}
      {!!fleet?.notices.length && <><h2>What the autoscaler says</h2><Table label="Notices" heads={["since", "kind", "what"]} rows={fleet.notices.map((notice) => [since(notice.since), notice.kind, notice.text])} /></>}
      <h2>Machines</h2>
      {fleet?.machines.length === 0 && <Empty>No machine is rented. They come with the work where an autoscaler runs: <code>stoke autoscaler run</code></Empty>}
      {!!fleet?.machines.length && <Table label="Machines" heads={["state", "machine", "kind", "provider", "cards", "running", "per hour", "age", "idle", "loaded"]} n={[4, 5, 6, 7, 8]} rows={fleet.machines.map((machine) => [
        <State of={machine.state} />, <span class="mono">{machine.id}</span>, machine.kind, machine.provider, machine.cards, `${machine.running} / ${machine.slots}`,
        `${usd(machine.usd_micros_per_hour)}${machine.is_interruptible ? " spot" : ""}`, since(machine.rented_at), machine.idle_since ? since(machine.idle_since) : "–", machine.loaded.join(", ") || "–",
      ])} />}
      <Problem text={workers.problem} />
      {workers.data?.workers.map((worker) => <Cards key={worker.id} worker={worker} />)}
    </>
  );
}
