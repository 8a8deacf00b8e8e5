// What a job gave: pictures, sound and text to be looked at, and the JSON itself. What it names is fetched from the store, by the browser.
import { useState } from "preact/hooks";
import type { Schemas } from "../api";
import { useMay } from "../session";

const FILES_MAX = 24;
const DEPTH_MAX = 16;
/** More text than this is opened, and not shown in the page. */
const TEXT_BYTES_MAX = 1 << 20;

/** What is shown in the page, and no more than the store shows: none of these can carry a script or a form. Everything else is a link. */
export const PICTURES = ["image/png", "image/jpeg", "image/webp", "image/gif", "image/avif"];
const TEXTS = ["text/plain", "application/json"];

export interface File { name: string; type: string; bytes: number }

/** Whether the schema of a result has files. */
export function hasFiles(schema: unknown): boolean { return JSON.stringify(schema ?? null).includes('"stokehold-file"'); }

/** The files that a result names, in its order. */
export function filesIn(value: unknown, depth = 0): File[] {
  if (typeof value !== "object" || value === null || depth > DEPTH_MAX) return [];
  const { $file: name, content_type: type, size_bytes: bytes } = value as Record<string, unknown>;
  if (typeof name === "string") return [{ name, type: String(type ?? ""), bytes: Number(bytes ?? 0) }];
  return Object.values(value).flatMap((each) => filesIn(each, depth + 1)).slice(0, FILES_MAX);
}

/** A page within the page that may do nothing: what is in it was written by whoever wrote the handler. */
function Sheet({ src, label }: { src: string; label: string }) { return <iframe class="sheet" src={src} title={label} sandbox="" loading="lazy" />; }

function Preview({ job, file }: { job: string; file: File }) {
  // Its address is made here: what stands in a result was written by a handler.
  const src = `/v1/jobs/${encodeURIComponent(job)}/files/${encodeURIComponent(file.name)}`;
  const type = (file.type.split(";")[0] ?? "").trim().toLowerCase();
  return (
    <figure>
      {PICTURES.includes(type) ? <a href={src} target="_blank" rel="noreferrer"><img src={src} alt={file.name} loading="lazy" /></a>
        : type.startsWith("audio/") ? <audio src={src} controls preload="none" />
        : type.startsWith("video/") ? <video src={src} controls preload="none" />
        : TEXTS.includes(type) && file.bytes <= TEXT_BYTES_MAX ? <Sheet src={src} label={file.name} /> : null}
      <figcaption><a href={src} target="_blank" rel="noreferrer">{file.name}</a> <span class="quiet">{file.type} · {Math.ceil(file.bytes / 1024)} KiB</span> <a href={src} download={file.name}>Download</a></figcaption>
    </figure>
  );
}

/** A result that is too large to come with its job: shown when asked for. */
function Large({ job }: { job: string }) {
  const [isShown, show] = useState(false);
  const src = `/v1/jobs/${encodeURIComponent(job)}/result`;
  if (isShown) return <Sheet src={src} label="The result" />;
  return <p>The result is large. <button onClick={() => show(true)}>Show it here</button> <a href={src} target="_blank" rel="noreferrer">Open it</a></p>;
}

/** `isFolded`: the JSON of a result with files, which are what there is to see, is shown when asked for. */
export function Result({ job, isFolded = false }: { job: Schemas["Job"]; isFolded?: boolean }) {
  const mayRead = useMay("jobs:read");
  if (job.state !== "succeeded" || !mayRead) return <p class="quiet">None.</p>;
  if (job.result === undefined || job.result === null) return job.result_url ? <Large job={job.id} /> : <p class="quiet">None.</p>;
  const files = filesIn(job.result);
  const json = <pre tabIndex={0} aria-label="The result">{typeof job.result === "string" ? job.result : JSON.stringify(job.result, null, 2)}</pre>;
  return (
    <>
      {files.length > 0 && <div class="files">{files.map((file) => <Preview key={file.name} job={job.id} file={file} />)}</div>}
      {isFolded && files.length > 0 ? <details><summary>JSON of the result</summary>{json}</details> : json}
    </>
  );
}
