// An endpoint's page: the playground, how to call it, its recent jobs and pictures, its versions and their figures.
import { useContext, useEffect, useState } from "preact/hooks";
import { ask, type Schemas, sentence } from "../api";
import { useAsked, useTopic } from "../live";
import { Empty, Problem, State, Table, Tile, useTick } from "../parts";
import { go } from "../route";
import { SessionContext, useMay } from "../session";
import { DeleteEndpoint, DeleteVersion } from "../views/delete";
import { Outcomes, Split, type Stats, summary, Times, useStats } from "../views/stats";
import { count, gib, instant, since, span, usd } from "../words";
import { Gallery } from "./gallery";
import "./playground.css";
import { Playground } from "./playground";
import { isObject } from "./schema";

type Version = Schemas["EndpointVersion"];

const RECENT = 10;
const ASK_EVERY_MS = 10_000;

/** An input that is in the object store is not part of its job. */
const isStored = (input: unknown): boolean => isObject(input) && typeof input["$file"] === "string" && input["as"] === "input";

/** The version that most new jobs run on. */
function main(versions: Version[], traffic: Schemas["Traffic"] | null): Version | undefined {
  const first = [...(traffic?.versions ?? [])].sort((one, other) => other.percent - one.percent)[0];
  return versions.find((each) => each.version === first?.version) ?? versions[0];
}

function Recent({ name, fill }: { name: string; fill: (input: unknown) => void }) {
  const mayRead = useMay("jobs:read");
  const { data, problem } = useAsked<Schemas["JobList"]>(mayRead ? `/v1/jobs?endpoint=${encodeURIComponent(name)}&limit=${RECENT}` : null, "jobs");
  useTick();
  return (
    <div id="jobs">
      <h2>Recent jobs</h2>
      <Problem text={problem} />
      {data?.jobs.length === 0 && <Empty>No jobs yet. Run the first one above.</Empty>}
      {!!data?.jobs.length && <Table label="Recent jobs" heads={["state", "job", "version", "submitted", "run", "cost", "inputs"]} n={[2, 3, 4, 5]} keys={data.jobs.map((job) => job.id)} rows={data.jobs.map((job) => [
        <State of={job.state} />, <a class="mono" href={`/dashboard/jobs/${job.id}`}>{job.id}</a>, `v${job.version}`, `${since(job.created_at)} ago`, job.timing ? span(job.timing.run_ms) : "–", usd(job.cost_usd_micros),
        isStored(job.input) ? <span class="quiet" title="Inputs over 64 KiB are files in the object store">too large to edit</span> : <button type="button" class="small" aria-label={`Run again with these inputs, of job ${job.id}`} onClick={() => fill(job.input)}>Run again with these inputs</button>,
      ])} />}
      {!!data?.jobs.length && <p><a href={`/dashboard/jobs?endpoint=${encodeURIComponent(name)}`}>All jobs of {name}</a></p>}
    </div>
  );
}

/** Figures of the pinned version, or else of all versions, as in the list of endpoints. */
function Figures({ name, version, isPinned, stats }: { name: string; version: Version; isPinned: boolean; stats: Stats[] | undefined }) {
  const maySeeWorkers = useMay("workers:read");
  const tenant = useContext(SessionContext)?.tenant ?? "";
  const fleet = useTopic<Schemas["Fleet"]>("fleet", maySeeWorkers ? "/v1/fleet" : null).data;
  const limits = useAsked<Schemas["OwnLimits"]>("/v1/limits", "costs").data?.endpoints[name];
  const { runs, errorRate, main: most } = summary((stats ?? []).filter((each) => !isPinned || each.version === version.version));
  const isLoaded = (model: string) => (isPinned ? model === `${tenant}/${name}@${version.version}` : model.startsWith(`${tenant}/${name}@`));
  const warm = fleet?.machines.filter((machine) => machine.loaded.some(isLoaded)).length;
  const quantiles = (of: Schemas["Quantiles"] | null | undefined) => (of ? <>{span(of.p50)}<small class="quiet second">p95 {span(of.p95)}</small></> : "–");
  return (
    <div class="tiles figures" role="group" tabIndex={0} aria-label={`${isPinned ? `Version ${version.version}` : "All versions"}, the last 24 hours`}>
      <Tile label="runs, 24 h">{stats ? count(runs) : "–"}</Tile>
      <Tile label="error rate">{errorRate}</Tile>
      <Tile label="wait, p50">{quantiles(most?.timing.queue_ms)}</Tile>
      <Tile label="run, p50">{quantiles(most?.timing.run_ms)}</Tile>
      <Tile label="per 1,000 runs">{usd(most?.usd_micros_per_1000)}</Tile>
      <Tile label="warm workers">{warm ?? "–"}{!!version.min_warm && <small class="quiet second">at least {version.min_warm}</small>}</Tile>
      <Tile label="running now">{limits?.usage.running ?? 0}{limits?.limits.max_running != null && <small class="quiet second">of {limits.limits.max_running}</small>}</Tile>
    </div>
  );
}

/** The memory that a version declares, and what it was seen to need on each GPU model. */
function Memory({ version, needs }: { version: Version; needs: Schemas["Need"][] }) {
  const declared = version.vram_gib > 0 ? `${version.vram_gib} GiB declared` : "runs on the CPU";
  const seen = needs.filter((need) => need.version === version.version);
  return <>{declared}{seen.map((need) => <span key={need.gpu ?? ""}>, {gib(need.need_mib)} {need.gpu ? `on ${need.gpu}` : "at least"}</span>)}</>;
}

function Versions({ versions, traffic, needs, chosen, choose, deleted }: { deleted: () => void; versions: Version[]; traffic: Schemas["Traffic"] | null; needs: Schemas["Need"][]; chosen: Version; choose: (version: number) => void }) {
  const share = (version: number) => traffic?.versions.find((part) => part.version === version)?.percent ?? 0;
  return (
    <div id="versions">
      <h2>Versions</h2>
      <Split traffic={traffic} />
      <Table label="Versions" heads={["version", "traffic", "entry", "memory", "concurrency", "batch", "warm", "timeout", "deployed", "actions"]} n={[1, 4, 5, 6, 7]} wrap={[3]} keys={versions.map((each) => String(each.version))} rows={versions.map((each) => [
        `v${each.version}`, `${share(each.version)} %`, <span class="mono">{each.entry || each.runner?.kind}</span>, <Memory version={each} needs={needs} />,
        each.max_concurrency, each.max_batch_size ?? "–", each.min_warm ?? 0, span(each.timeout_s * 1000), instant(each.created_at),
        <>
          <button type="button" class="small" disabled={each.version === chosen.version} aria-label={`Try it: version ${each.version}`} onClick={() => choose(each.version)}>Try it</button>
          <DeleteVersion name={each.name} version={each.version} onDeleted={deleted} />
        </>,
      ])} />
    </div>
  );
}

export function Endpoint({ name, from, pin }: { name: string; from: string | null; pin: string | null }) {
  const base = `/v1/endpoints/${encodeURIComponent(name)}`;
  // Neither changes with a job.
  const versions = useAsked<Schemas["VersionList"]>(`${base}/versions`, null);
  const traffic = useAsked<Schemas["Traffic"]>(`${base}/traffic`, null);
  useEffect(() => { const timer = setInterval(() => { if (!document.hidden) { versions.again(); traffic.again(); } }, ASK_EVERY_MS); return () => clearInterval(timer); }, []);
  const needs = useAsked<Schemas["Needs"]>(`${base}/needs`, null).data?.needs ?? [];
  const stats = useStats(name);
  const [filled, setFilled] = useState<{ input: unknown } | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (!from) return;
    let isWanted = true;
    ask<Schemas["Job"]>(`/v1/jobs/${encodeURIComponent(from)}`).then((job) => {
      if (!isWanted) return;
      if (isStored(job.input)) setProblem("The inputs of this job are too large to edit here.");
      else setFilled({ input: job.input });
    }, (error) => { if (isWanted) setProblem(sentence(error)); });
    return () => { isWanted = false; };
  }, [from]);
  // Which version is shown depends on both.
  const isReady = versions.data !== null && (traffic.data !== null || traffic.problem !== null);
  // An address with a part of the page, e.g. #gallery, is followed once the part is there.
  useEffect(() => { if (isReady && location.hash.length > 1) requestAnimationFrame(() => document.getElementById(location.hash.slice(1))?.scrollIntoView()); }, [isReady]);

  const all = versions.data?.versions ?? [];
  const pinned = all.find((each) => String(each.version) === pin)?.version ?? null;
  const shown = all.find((each) => each.version === pinned) ?? main(all, traffic.data);
  const choose = (version: string) => go(`/dashboard/endpoints/${encodeURIComponent(name)}${version === "" ? "" : `?version=${version}`}`);
  const about = isObject(shown?.input_schema) && typeof shown.input_schema["description"] === "string" ? shown.input_schema["description"] : "";
  const split = (traffic.data?.versions ?? []).map((part) => `v${part.version} ${part.percent} %`).join(", ");
  const chips = shown ? [shown.vram_gib > 0 ? `GPU, ${shown.vram_gib} GiB` : "CPU", shown.priority ?? "standard", ...(shown.python ? [`Python ${shown.python}`] : []), ...(shown.network ? ["network"] : []), ...((shown.before ?? []).length + (shown.after ?? []).length > 0 ? ["pipeline"] : [])] : [];
  return (
    <>
      <h1><a href="/dashboard/endpoints">Endpoints</a> / {name}</h1>
      <Problem text={versions.problem ?? problem} />
      {about && <p class="about-endpoint">{about}</p>}
      {isReady && shown && <>
        <div class="row head">
          <label for="version" class="quiet">version</label>
          <select id="version" value={pinned === null ? "" : String(pinned)} onChange={(event) => choose(event.currentTarget.value)}>
            <option value="">by traffic ({split || `v${shown.version}`})</option>
            {all.map((each) => <option key={each.version} value={String(each.version)}>v{each.version}</option>)}
          </select>
          <p class="chips">{chips.map((chip) => <span key={chip} class="chip">{chip}</span>)}</p>
          <DeleteEndpoint name={name} onDeleted={() => go("/dashboard/endpoints")} />
        </div>
        <Figures name={name} version={shown} isPinned={pinned !== null} stats={stats.data?.versions} />
        <Playground key={`${name}@${shown.version}`} name={name} endpoint={shown} pinned={pinned} filled={filled} took={() => setFilled(null)} ended={() => setTurn((before) => before + 1)} />
        <Gallery name={name} turn={turn} />
        <Recent name={name} fill={(input) => setFilled({ input })} />
        <Versions versions={all} traffic={traffic.data} needs={needs} chosen={shown} choose={(version) => choose(String(version))} deleted={() => { versions.again(); traffic.again(); }} />
      </>}
      <div id="figures">
        <h2>The last 24 hours</h2>
        <Problem text={stats.problem} />
        {stats.data?.versions.length === 0 && <Empty>This endpoint has not run yet.</Empty>}
        {!!stats.data?.versions.length && <><Outcomes versions={stats.data.versions} /><h2>Time by part</h2><Times versions={stats.data.versions} /></>}
      </div>
    </>
  );
}
