// The result of a job: pictures, sound and text, and the JSON. The browser downloads the files from the store.
import { useState } from "preact/hooks";
import type { Schemas } from "../api";
import { useMay } from "../session";

const FILES_MAX = 24;
const DEPTH_MAX = 16;
/** Longer texts are links. */
const TEXT_BYTES_MAX = 1 << 20;

/** Types that the page shows. None can contain a script or a form. Files of other types are links. */
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

/** A frame without any permissions: its contents come from a handler. */
function Sheet({ src, label }: { src: string; label: string }) { return <iframe class="sheet" src={src} title={label} sandbox="" loading="lazy" />; }

function Preview({ job, file }: { job: string; file: File }) {
  // The URL in the result comes from a handler, so it is not used.
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

/** A result that is too large to be part of its job. */
function Large({ job }: { job: string }) {
  const [isShown, show] = useState(false);
  const src = `/v1/jobs/${encodeURIComponent(job)}/result`;
  if (isShown) return <Sheet src={src} label="The result" />;
  return <p>The result is large. <button onClick={() => show(true)}>Show it here</button> <a href={src} target="_blank" rel="noreferrer">Open it</a></p>;
}

/** `isFolded`: the JSON of a result with files is folded. */
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
