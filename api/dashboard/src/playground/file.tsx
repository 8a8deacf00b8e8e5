// A file among the inputs: chosen, dropped or pasted, uploaded at once, and named by its id from then on.
import { useEffect, useRef, useState } from "preact/hooks";
import { sentence } from "../api";
import { useMay } from "../session";
import { isObject, type Json } from "./schema";
import { bytes, knownFile, upload } from "./upload";

interface Props { control: Record<string, unknown> & { id: string; disabled: boolean }; name: string; value: Json | undefined; change: (value: Json | undefined) => void }

export function FileField({ control, name, value, change }: Props) {
  const mayWrite = useMay("files:write");
  const [sending, setSending] = useState<{ name: string; fraction: number } | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [isOver, setOver] = useState(false);
  const running = useRef<AbortController | null>(null);
  const latest = useRef(change);
  latest.current = change;
  // The form was left: what is sent is of no use.
  useEffect(() => () => running.current?.abort(), []);
  const id = isObject(value) && typeof value["$file"] === "string" ? value["$file"] : "";
  const known = knownFile(id);
  const isOff = control.disabled || !mayWrite;
  const take = (file: File | undefined) => {
    if (!file || isOff) return;
    running.current?.abort();
    const controller = new AbortController();
    running.current = controller;
    setProblem(null);
    // A run meanwhile must not get the file before.
    if (id !== "") change(undefined);
    setSending({ name: file.name, fraction: 0 });
    upload(file, (fraction) => { if (!controller.signal.aborted) setSending({ name: file.name, fraction }); }, controller.signal)
      .then((found) => { latest.current({ $file: found }); }, (error: unknown) => { if (!controller.signal.aborted) setProblem(sentence(error)); })
      .finally(() => { if (running.current === controller) { running.current = null; setSending(null); } });
  };
  const stop = () => { running.current?.abort(); running.current = null; setSending(null); };
  return (
    <div class={isOver ? "drop over" : "drop"}
      onDragOver={(event) => { if (isOff) return; event.preventDefault(); setOver(true); }} onDragLeave={() => setOver(false)}
      onDrop={(event) => { event.preventDefault(); setOver(false); take(event.dataTransfer?.files[0]); }}>
      {sending ? (
        <div class="row"><span class="clip">{sending.name}</span><progress max={1} value={sending.fraction} aria-label={`Upload of ${sending.name}`} /><span class="quiet">{Math.round(100 * sending.fraction)} %</span><button type="button" class="small" onClick={stop}>Stop</button></div>
      ) : id !== "" ? (
        <div class="row chosen">
          {known?.thumbnail && <img src={known.thumbnail} alt="" width={64} />}
          <span class="clip">{known ? <>{known.name} <span class="quiet">{known.type} · {bytes(known.bytes)}</span></> : <span class="mono">{id}</span>}</span>
          <button type="button" class="small" disabled={control.disabled} aria-label={`Remove the file of ${name}`} onClick={() => change(undefined)}>✕</button>
        </div>
      ) : null}
      <div class="row">
        <input {...control} disabled={isOff} type="file" onChange={(event) => { take(event.currentTarget.files?.[0]); event.currentTarget.value = ""; }} />
        <span class={mayWrite ? "quiet hint" : "quiet"}>{mayWrite ? "or drop a file here" : "This session lacks the permission files:write."}</span>
      </div>
      {problem && <p class="wrong" role="alert">{problem}</p>}
    </div>
  );
}
