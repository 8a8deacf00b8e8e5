// One run: its submission, and its state and output until it ends, in bounded memory.
import { useEffect, useRef, useState } from "preact/hooks";
import { ask, ApiError, sentence, type Schemas } from "../api";
import { poll } from "./poll";
import { text as asText } from "./schema";

type Job = Schemas["Job"];

const LOG_LINES_MAX = 1000;
const LINE_CHARS_MAX = 4000;
const TEXT_CHARS_MAX = 200_000;
const SENDS_MAX = 3;
const PAUSE_MS = 1000;
const ENDED = ["succeeded", "failed", "cancelled", "expired"];

export const isOver = (job: Job | null): boolean => job !== null && ENDED.includes(job.state);

/** What a run has written so far. `cut` characters of the text are no longer kept. */
export interface Written { logs: string[]; text: string; cut: number; outputs: number; progress: { fraction: number; message: string } | null }
const NOTHING: Written = { logs: [], text: "", cut: 0, outputs: 0, progress: null };

export interface Run { job: Job | null; written: Written; isSubmitting: boolean; problem: string | null; errors: Schemas["FieldError"][]; submit: (request: Partial<Schemas["SubmitRequest"]>) => void; cancel: () => void; clear: () => void }

/** Random, also where the page is not served over https. */
function key(): string { return `dashboard-${[...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`; }

/** Submits a job. Retries if there is no response, which the idempotency key makes safe. */
async function send(body: string): Promise<Job> {
  const headers = { "Idempotency-Key": key() };
  for (let turn = 1; ; turn++) {
    try {
      return await ask<Job>("/v1/jobs", { method: "POST", headers, body });
    } catch (error) {
      if (error instanceof ApiError || turn === SENDS_MAX) throw error;
      await new Promise((done) => setTimeout(done, PAUSE_MS));
    }
  }
}

export function useRun(): Run {
  const [job, setJob] = useState<Job | null>(null);
  const [written, setWritten] = useState<Written>(NOTHING);
  const [isSubmitting, setSubmitting] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const [errors, setErrors] = useState<Schemas["FieldError"][]>([]);
  const isHere = useRef(true);
  useEffect(() => { isHere.current = true; return () => { isHere.current = false; }; }, []);
  const id = job?.id ?? null;

  useEffect(() => {
    if (id === null) return;
    const path = `/v1/jobs/${encodeURIComponent(id)}`;
    // The stream has no waiting reason and no cost, and may be refused.
    const polled = poll<Job>({
      get: (signal) => ask<Job>(path, { signal }),
      take: (answer) => { setJob(answer); setProblem(null); return !isOver(answer); },
      fail: (error) => setProblem(sentence(error)),
    });
    const stream = new EventSource(`${path}/events`);
    let next: Written = NOTHING;
    let frame = 0;
    // The page is drawn at most once per frame.
    const show = () => { frame ||= requestAnimationFrame(() => { frame = 0; setWritten(next); }); };
    const on = (name: string, read: (data: Record<string, unknown>) => void) => stream.addEventListener(name, (event) => { read(JSON.parse((event as MessageEvent<string>).data) as Record<string, unknown>); show(); });
    const line = (text: string) => { next = { ...next, logs: [...next.logs.slice(1 - LOG_LINES_MAX), text.length > LINE_CHARS_MAX ? `${text.slice(0, LINE_CHARS_MAX)}…` : text] }; };
    // The attempt whose outputs are shown: a retry writes them anew. The state that names an attempt may come after its first outputs.
    let attempt = 0;
    const turnTo = (data: Record<string, unknown>) => {
      const newest = Number(data["attempt"]);
      if (newest > attempt) [attempt, next] = [newest, { ...next, text: "", cut: 0, outputs: 0, progress: null }];
    };
    on("state", (data) => {
      line(`— ${asText(data["state"])}, attempt ${Number(data["attempt"])}`);
      turnTo(data);
      polled.now();
    });
    on("log", (data) => line(asText(data["text"]).trimEnd()));
    on("progress", (data) => { next = { ...next, progress: { fraction: Number(data["fraction"]), message: asText(data["message"]) } }; });
    on("gap", (data) => line(`outputs ${Number(data["from"])} to ${Number(data["to"]) - 1} are missing here; the result has them`));
    on("output", (data) => {
      turnTo(data);
      const { value } = data;
      // Text is one text; anything else is a line each.
      const more = typeof value === "string" ? value : `${JSON.stringify(value)}\n`;
      const whole = next.text + more;
      const over = Math.max(0, whole.length - TEXT_CHARS_MAX);
      next = { ...next, text: whole.slice(over), cut: next.cut + over, outputs: next.outputs + 1 };
    });
    stream.addEventListener("done", () => { stream.close(); polled.now(); });
    return () => { polled.stop(); stream.close(); cancelAnimationFrame(frame); };
  }, [id]);

  const submit = (request: Partial<Schemas["SubmitRequest"]>) => {
    setSubmitting(true);
    setProblem(null);
    setErrors([]);
    setWritten(NOTHING);
    setJob(null);
    send(JSON.stringify(request)).then(
      (answer) => { if (isHere.current) setJob(answer); },
      (error: unknown) => { if (isHere.current) { setProblem(error instanceof ApiError ? sentence(error) : "The API cannot be reached. Whether the job was submitted is unknown; the recent jobs show it."); if (error instanceof ApiError) setErrors(error.errors); } },
    ).finally(() => { if (isHere.current) setSubmitting(false); });
  };
  const cancel = () => { if (id !== null) ask<Job>(`/v1/jobs/${encodeURIComponent(id)}/cancel`, { method: "POST" }).then((answer) => { if (isHere.current) setJob((now) => (now?.id === id ? answer : now)); }, (error) => { if (isHere.current) setProblem(sentence(error)); }); };
  const clear = () => { setJob(null); setWritten(NOTHING); setProblem(null); setErrors([]); };
  return { job, written, isSubmitting, problem, errors, submit, cancel, clear };
}
