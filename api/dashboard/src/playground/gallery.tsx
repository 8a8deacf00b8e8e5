// The pictures of an endpoint's recent results: loaded as they come into view, and no more than a bounded number of them.
import { useEffect, useState } from "preact/hooks";
import type { Schemas } from "../api";
import { useAsked } from "../live";
import { useMay } from "../session";
import { filesIn, PICTURES } from "../views/result";
import { since } from "../words";
import { isObject } from "./schema";

const PAGE = 24;
const ASK_EVERY_MS = 15_000;
const PICTURE_BYTES_MAX = 16 * 2 ** 20;
const WORDS_MAX = 120;

interface Picture { job: Schemas["Job"]; file: string; words: string }

/** What a picture shows, as far as its inputs have words for it. */
function words(input: unknown): string {
  const texts = isObject(input) ? Object.values(input).filter((value): value is string => typeof value === "string") : [];
  return (texts.sort((one, other) => other.length - one.length)[0] ?? "").slice(0, WORDS_MAX);
}

export function pictures(jobs: Schemas["Job"][]): Picture[] {
  return jobs.flatMap((job) => filesIn(job.result).filter((file) => PICTURES.includes(file.type.split(";")[0]?.trim().toLowerCase() ?? "") && file.bytes <= PICTURE_BYTES_MAX).map((file) => ({ job, file: file.name, words: words(job.input) })));
}

export function Gallery({ name, turn }: { name: string; turn: number }) {
  const mayRead = useMay("jobs:read");
  const { data, again } = useAsked<Schemas["JobList"]>(mayRead ? `/v1/jobs?endpoint=${encodeURIComponent(name)}&state=succeeded&limit=100` : null, null);
  const [count, setCount] = useState(PAGE);
  useEffect(() => { const timer = setInterval(() => { if (!document.hidden) again(); }, ASK_EVERY_MS); return () => clearInterval(timer); }, [name]);
  useEffect(() => { if (turn > 0) again(); }, [turn]);
  const found = pictures(data?.jobs ?? []);
  if (found.length === 0) return null;
  return (
    <section id="gallery" aria-labelledby="gallery-title">
      <h2 id="gallery-title">Gallery</h2>
      <ul class="gallery">
        {found.slice(0, count).map(({ job, file, words }) => (
          <li key={`${job.id} ${file}`}><a href={`/dashboard/jobs/${job.id}`} title={words}>
            <img src={`/v1/jobs/${encodeURIComponent(job.id)}/files/${encodeURIComponent(file)}`} alt={words || `${file} of job ${job.id}`} loading="lazy" decoding="async" />
            <span class="quiet">{since(job.ended_at)} ago</span>
          </a></li>
        ))}
      </ul>
      {found.length > count && <button type="button" onClick={() => setCount(count + PAGE)}>Show more</button>}
    </section>
  );
}
