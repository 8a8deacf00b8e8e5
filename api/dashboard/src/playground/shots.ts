// The jobs of the gallery, reduced to their pictures: pages of older ones when they are wanted, and what is new at the top. Pure.
import type { Schemas } from "../api";
import { filesIn, PICTURES } from "../views/result";
import { isObject } from "./schema";

type Job = Schemas["Job"];

/** Pages that are read at once: to fill the gallery, or to reach a job that is known. */
export const PAGES_MAX = 5;
const PICTURE_BYTES_MAX = 16 * 2 ** 20;
const WORDS_MAX = 120;

export interface Shot { id: string; ended_at: string | null; files: string[]; words: string }
/** `next`: the cursor of the jobs after these; null at the end. */
export interface Shots { shots: Shot[]; next: string | null }
export type Get = (cursor: string | null) => Promise<Schemas["JobList"]>;

/** What a picture shows, as far as its inputs have words for it. */
function words(input: unknown): string {
  const texts = isObject(input) ? Object.values(input).filter((value): value is string => typeof value === "string") : [];
  return (texts.sort((one, other) => other.length - one.length)[0] ?? "").slice(0, WORDS_MAX);
}

function shot(job: Job): Shot {
  const files = filesIn(job.result).filter((file) => PICTURES.includes(file.type.split(";")[0]?.trim().toLowerCase() ?? "") && file.bytes <= PICTURE_BYTES_MAX);
  return { id: job.id, ended_at: job.ended_at ?? null, files: files.map((file) => file.name), words: files.length > 0 ? words(job.input) : "" };
}

export function pictures({ shots }: Shots): number { return shots.reduce((sum, each) => sum + each.files.length, 0); }

/** `known` and older jobs, until there are `count` pictures or no more jobs. */
export async function older(get: Get, known: Shots | null, count: number): Promise<Shots> {
  let all: Shots = known ?? { shots: [], next: null };
  for (let page = 0; page < PAGES_MAX && pictures(all) < count && (all.next !== null || (known === null && page === 0)); page++) {
    const { jobs, next_cursor } = await get(all.next);
    const ids = new Set(all.shots.map(({ id }) => id));
    all = { shots: [...all.shots, ...jobs.filter(({ id }) => !ids.has(id)).map(shot)], next: next_cursor ?? null };
  }
  return all;
}

/** `known` with the jobs before it. If there are too many to reach a known one, the list begins anew. */
export async function newer(get: Get, known: Shots): Promise<Shots> {
  const ids = new Set(known.shots.map(({ id }) => id));
  const found: Shot[] = [];
  let next: string | null = null;
  for (let page = 0; page < PAGES_MAX; page++) {
    const answer = await get(next);
    found.push(...answer.jobs.map(shot));
    next = answer.next_cursor ?? null;
    if (answer.jobs.some(({ id }) => ids.has(id))) {
      const again = new Set(found.map(({ id }) => id));
      return { shots: [...found, ...known.shots.filter(({ id }) => !again.has(id))], next: known.next };
    }
    if (next === null || ids.size === 0) break;
  }
  return { shots: found, next };
}
