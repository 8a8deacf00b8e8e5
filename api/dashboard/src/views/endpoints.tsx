// Endpoints: the split of their traffic, their outcomes, times and cost.
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Schemas } from "../api";
import { useAsked } from "../live";
import { Empty, Problem } from "../parts";
import { count, span, usd } from "../words";
import { hasFiles } from "./result";
import { Split, summary, useStats } from "./stats";

/** Endpoints of the list whose figures are requested. */
const ASKED_MAX = 50;

interface OneProps { name: string; from: string | null; pin: string | null }

/** The page of one endpoint. Its code is loaded when it is first opened. */
function One(props: OneProps) {
  const [Page, setPage] = useState<ComponentType<OneProps> | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => { import("../playground/endpoint").then((loaded) => setPage(() => loaded.Endpoint), () => setProblem("This part of the page cannot be loaded. Reload the page.")); }, []);
  return Page ? <Page key={props.name} {...props} /> : <><h1><a href="/dashboard/endpoints">Endpoints</a> / {props.name}</h1><Problem text={problem} /></>;
}

/** The last 24 hours of an endpoint in one row. */
function Row({ endpoint, isAsked }: { endpoint: Schemas["EndpointVersion"]; isAsked: boolean }) {
  const traffic = useAsked<Schemas["Traffic"]>(isAsked ? `/v1/endpoints/${endpoint.name}/traffic` : null, null);
  const { data } = useStats(endpoint.name, isAsked);
  const { runs, errorRate, taskSuccess, main } = summary(data?.versions ?? []);
  const page = `/dashboard/endpoints/${endpoint.name}`;
  return (
    <tr>
      <td><a href={page}>{endpoint.name}</a>{hasFiles(endpoint.output_schema) && <> <a class="quiet" href={`${page}#gallery`} aria-label={`Gallery of ${endpoint.name}`}>gallery</a></>}</td><td><Split traffic={traffic.data} /></td><td>{endpoint.priority ?? "standard"}</td><td class="n">{endpoint.vram_gib > 0 ? `${endpoint.vram_gib} GiB` : "none"}</td>
      <td class="n">{data ? count(runs) : "–"}</td><td class="n">{errorRate}</td><td class="n">{taskSuccess}</td>
      <td class="n">{span(main?.timing.run_ms?.p50)}</td><td class="n">{span(main?.timing.run_ms?.p95)}</td><td class="n">{span(main?.timing.total_ms?.p95)}</td><td class="n">{usd(main?.usd_micros_per_1000)}</td>
    </tr>
  );
}

export function Endpoints({ name, query }: { name: string | undefined; query: URLSearchParams }) {
  if (name) return <One name={name} from={query.get("from")} pin={query.get("version")} />;
  return <All />;
}

function All() {
  const { data, problem } = useAsked<Schemas["EndpointList"]>("/v1/endpoints", "jobs");
  const heads = ["endpoint", "traffic", "priority", "memory", "runs", "error rate", "task success", "run p50", "run p95", "total p95", "per 1,000"];
  return (
    <>
      <h1>Endpoints</h1>
      <Problem text={problem} />
      {data?.endpoints.length === 0 && <Empty>No endpoints yet. Deploy one: <code>stoke deploy greet.py</code></Empty>}
      {!!data?.endpoints.length && <div class="scroll" tabIndex={0} role="region" aria-label="Endpoints">
        <table><thead><tr>{heads.map((head, at) => <th key={head} scope="col" class={at > 2 ? "n" : ""}>{head}</th>)}</tr></thead>
          <tbody>{data.endpoints.map((each, at) => <Row key={each.name} endpoint={each} isAsked={at < ASKED_MAX} />)}</tbody></table>
        <p class="quiet">The last 24 hours; times and cost are those of the version that ran most.</p>
      </div>}
    </>
  );
}
