// Storage: uploaded files and requirement sets, which stay until they are deleted.
import { useEffect, useState } from "preact/hooks";
import { ask, type Schemas, sentence } from "../api";
import { useAsked } from "../live";
import { Empty, Problem, Table } from "../parts";
import { useMay } from "../session";
import { bytes, since } from "../words";
import { DeleteFile, DeleteRequirementSet } from "./delete";

const PAGE = 50;

type File = Schemas["FileSummary"];

/** The uploaded files, page by page. A deleted one leaves the list without a request. */
function useFiles(): { files: File[] | null; problem: string | null; more: (() => void) | null; drop: (id: string) => void } {
  const [files, setFiles] = useState<File[] | null>(null);
  const [next, setNext] = useState<string | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  const read = async (from: string | null) => {
    setBusy(true);
    try {
      // A page may be empty although there are more.
      const found: File[] = [];
      let cursor = from;
      do {
        const page: Schemas["FileList"] = await ask(`/v1/files?limit=${PAGE}${cursor === null ? "" : `&cursor=${cursor}`}`);
        found.push(...page.files);
        cursor = page.next_cursor ?? null;
      } while (cursor !== null && found.length === 0);
      setFiles((before) => [...(before ?? []), ...found]);
      setNext(cursor);
      setProblem(null);
    } catch (error) { setProblem(sentence(error)); } finally { setBusy(false); }
  };
  useEffect(() => { void read(null); }, []);
  return {
    files, problem,
    more: next !== null && !isBusy ? () => void read(next) : null,
    drop: (id) => setFiles((before) => before?.filter((file) => file.id !== id) ?? null),
  };
}

function Files() {
  const { files, problem, more, drop } = useFiles();
  const mayDelete = useMay("files:write");
  return (
    <>
      <h2>Files</h2>
      <Problem text={problem} />
      {files?.length === 0 && <Empty>No files. <code>stoke submit --file</code> uploads files, and so does the page of an endpoint</Empty>}
      {!!files?.length && <Table label="Files" heads={["file", "name", "size", "type", "uploaded", ...(mayDelete ? ["delete"] : [])]} n={[2, 4]} keys={files.map(({ id }) => id)} rows={files.map((file) => [
        <span class="mono">{file.id}</span>, file.name, bytes(file.size_bytes), file.content_type, `${since(file.uploaded_at)} ago`,
        ...(mayDelete ? [<DeleteFile id={file.id} name={file.name} onDeleted={() => drop(file.id)} />] : []),
      ])} />}
      {more && <button onClick={more}>Show more files</button>}
    </>
  );
}

/** Requirements, in short. */
function inShort(demands: Schemas["Requirements"]): string {
  const { gpu_models, gpus, min_compute_capability, min_cuda, min_sandbox, min_trust, regions } = demands;
  return [
    gpu_models?.join(" or "), gpus && (gpus === 1 ? "1 GPU" : `${gpus} GPUs`), min_compute_capability && `compute capability ${min_compute_capability}`,
    min_cuda && `CUDA ${min_cuda}`, min_sandbox && `sandbox ${min_sandbox}`, min_trust && `trust ${min_trust}`, regions?.length && `region ${regions.join(" or ")}`,
  ].filter(Boolean).join(", ");
}

function RequirementSets() {
  const { data, problem, again } = useAsked<Schemas["RequirementSetList"]>("/v1/requirement-sets", null);
  const mayDelete = useMay("endpoints:write");
  const sets = data?.requirement_sets ?? [];
  return (
    <>
      <h2>Requirement sets</h2>
      <Problem text={problem} />
      {data && sets.length === 0 && <Empty>No requirement sets: no version requires more of workers than memory</Empty>}
      {sets.length > 0 && <>
        <p class="quiet">All that versions require of workers besides memory, each set once: {sets.length} of {data?.limit}.</p>
        <Table label="Requirement sets" heads={["set", "requires", "used by", ...(mayDelete ? ["delete"] : [])]} wrap={[1, 2]} keys={sets.map(({ id }) => id)} rows={sets.map((set) => [
          <span class="mono">{set.id}</span>, inShort(set.demands), set.versions.join(", ") || "no version",
          ...(mayDelete ? [<DeleteRequirementSet id={set.id} onDeleted={again} />] : []),
        ])} />
      </>}
    </>
  );
}

export function Storage() {
  const mayReadFiles = useMay("files:read");
  const mayReadSets = useMay("endpoints:read");
  return (
    <>
      <h1>Storage</h1>
      {mayReadFiles ? <Files /> : <p class="quiet">This token may not list files: it lacks the scope files:read.</p>}
      {mayReadSets ? <RequirementSets /> : <p class="quiet">This token may not list requirement sets: it lacks the scope endpoints:read.</p>}
    </>
  );
}
