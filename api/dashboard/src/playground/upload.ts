// Uploads of input files through the API, with their progress, and the names of uploaded files.
import { ApiError } from "../api";
import { onLogOut } from "../session";

/** The API relays no larger file. */
export const FILE_BYTES_MAX = 2 ** 30;
const NAME_MAX = 255;
const KNOWN_MAX = 200;
/** The API gives an upload no longer. */
const UPLOAD_MS = 3_600_000;
const THUMBNAIL_PX = 160;
/** A larger picture is not decoded for a thumbnail. */
const THUMBNAIL_BYTES_MAX = 32 * 2 ** 20;
const THUMBNAILS = ["image/png", "image/jpeg", "image/webp", "image/gif", "image/avif"];

export interface Known { name: string; type: string; bytes: number; thumbnail: string | null }

/** The newest files that this page has uploaded, by id. */
const known = new Map<string, Known>();
onLogOut(() => known.clear());
export function knownFile(id: string): Known | undefined { return known.get(id); }

/** A small copy of a picture, drawn onto a canvas, so that the page keeps none of its contents. */
async function thumbnail(file: File): Promise<string | null> {
  if (!THUMBNAILS.includes(file.type) || file.size > THUMBNAIL_BYTES_MAX) return null;
  try {
    const bitmap = await createImageBitmap(file, { resizeWidth: THUMBNAIL_PX, resizeQuality: "medium" });
    const canvas = document.createElement("canvas");
    canvas.width = bitmap.width;
    canvas.height = Math.min(bitmap.height, THUMBNAIL_PX * 2);
    canvas.getContext("2d")?.drawImage(bitmap, 0, 0);
    bitmap.close();
    return canvas.toDataURL("image/jpeg", 0.8);
  } catch {
    // The bytes are not a picture that this browser can read; the upload does not depend on it.
    return null;
  }
}

/** Uploads a file and returns its id. `progress` receives the fraction that is sent. */
export async function upload(file: File, progress: (fraction: number) => void, signal: AbortSignal): Promise<string> {
  if (file.size > FILE_BYTES_MAX) throw new ApiError(413, `${file.name} has ${Math.ceil(file.size / 2 ** 20)} MiB; the page can upload at most ${FILE_BYTES_MAX / 2 ** 20} MiB. Upload it with an SDK or the CLI, and enter its id.`);
  const name = [...file.name.replace(/[\u0000-\u001f\u007f-\u009f]/g, "_")].slice(-NAME_MAX).join("") || "file";
  const type = file.type || "application/octet-stream";
  const [id, small] = await Promise.all([send(file, name, type, progress, signal), thumbnail(file)]);
  // The thumbnail may be ready only after the page was left, or the session ended.
  signal.throwIfAborted();
  known.delete(id);
  known.set(id, { name, type, bytes: file.size, thumbnail: small });
  for (const oldest of known.keys()) { if (known.size <= KNOWN_MAX) break; known.delete(oldest); }
  return id;
}

/** A response as JSON; null if it is not JSON, e.g. because a proxy wrote it. */
function read(text: string): { id?: unknown; detail?: unknown } | null {
  try { return JSON.parse(text) as { id?: unknown; detail?: unknown } | null; } catch { return null; }
}

/** Not `fetch`, which does not report the progress of a body. */
function send(file: File, name: string, type: string, progress: (fraction: number) => void, signal: AbortSignal): Promise<string> {
  return new Promise((done, failed) => {
    const request = new XMLHttpRequest();
    request.open("POST", `/v1/files/upload?name=${encodeURIComponent(name)}`);
    request.setRequestHeader("Content-Type", type);
    request.setRequestHeader("Stokehold-Request", "dashboard");
    request.upload.onprogress = (event) => { if (event.lengthComputable) progress(event.loaded / Math.max(1, event.total)); };
    request.timeout = UPLOAD_MS;
    request.ontimeout = () => failed(new ApiError(0, "The upload took more than an hour."));
    request.onerror = () => failed(new ApiError(0, "The upload was interrupted. Try again."));
    request.onabort = () => failed(new DOMException("The upload was stopped.", "AbortError"));
    request.onload = () => {
      const answer = read(request.responseText);
      if (request.status === 201 && typeof answer?.id === "string") done(answer.id);
      else failed(new ApiError(request.status, typeof answer?.detail === "string" ? answer.detail : `The API answered ${request.status}.`));
    };
    signal.addEventListener("abort", () => request.abort());
    request.send(file);
  });
}

export function bytes(count: number): string {
  if (count < 1024) return `${count} B`;
  if (count < 2 ** 20) return `${Math.ceil(count / 1024)} KiB`;
  return `${(count / 2 ** 20).toFixed(1)} MiB`;
}
