// Jobs whose records cannot be read. Operators put them back or discard them; nothing is shown while there are none.
import { useContext } from "preact/hooks";
import { ask, ApiError, type Schemas } from "../api";
import { Confirm, State, Table } from "../parts";
import { SessionContext, useMay } from "../session";
import { count, since } from "../words";

/** Rows shown. `stoke job quarantined list` lists more, and decides about all at once. */
const ROWS_MAX = 100;

/** Puts a job back, or discards it. Throws the API's reason if the job stays; a job that is gone is no error. */
async function decide(verb: "readmit" | "discard", id: string): Promise<void> {
  const { jobs: [job] } = await ask<Schemas["QuarantineOutcomes"]>(`/v1/quarantine/${verb}`, { method: "POST", body: JSON.stringify({ ids: [id] }) });
  if (job?.outcome === "unreadable") throw new ApiError(409, `The job stays quarantined: ${job.why}`);
}

export function Quarantine({ found, again }: { found: Schemas["Quarantine"] | null; again: () => void }) {
  const mayDecide = useMay("tenants:write");
  const own = useContext(SessionContext)?.tenant;
  if (!found?.total) return null;
  const jobs = found.jobs.slice(0, ROWS_MAX);
  const decision = (id: string) => (
    <>
      <Confirm scope="tenants:write" label="Put back" of={`job ${id}`} text={`Job ${id} goes to the front of its queue, even if it ran before, or back to where it waited. It stays quarantined if its record still cannot be read.`} act={() => decide("readmit", id).then(again)} />{" "}
      <Confirm scope="tenants:write" label="Discard" of={`job ${id}`} text={`Job ${id} ends as failed, with the error infra. If its record does not allow that, the job is deleted. This cannot be undone.`} act={() => decide("discard", id).then(again)} />
    </>
  );
  return (
    <>
      <h2>Quarantine</h2>
      <p class="warn"><span aria-hidden="true">◇</span> {found.total === 1 ? "The record of 1 job" : `The records of ${count(found.total)} jobs`} cannot be read. Such a job does not run until an operator puts it back.</p>
      <Table label="Quarantine" heads={["job", "tenant", "endpoint", "was", "since", "why", ...(mayDecide ? ["decision"] : [])]} n={[4]} wrap={[5]} keys={jobs.map((job) => job.id)} rows={jobs.map((job) => [
        job.tenant === own ? <a class="mono" href={`/dashboard/jobs/${job.id}`}>{job.id}</a> : <span class="mono">{job.id}</span>, job.tenant ?? "–", job.endpoint ?? "–", job.state ? <State of={job.state} /> : "–", since(job.since), job.why,
        ...(mayDecide ? [decision(job.id)] : []),
      ])} />
      {found.total > jobs.length && <p class="quiet">The oldest {jobs.length} are listed. <code>stoke job quarantined readmit --all</code> puts all of them back, <code>stoke job quarantined discard --all</code> ends all of them.</p>}
    </>
  );
}
