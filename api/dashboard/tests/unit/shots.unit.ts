import { expect, test } from "@playwright/test";
import { type Get, newer, older, PAGES_MAX, pictures, type Shots } from "../../src/playground/shots";
import type { Schemas } from "../../src/api";

const PAGE = 20;
const job = (n: number, type = "image/png") => ({ id: String(n), ended_at: null, input: { prompt: `picture ${n}` }, result: { $file: `${n}.png`, content_type: type, size_bytes: 10 } }) as unknown as Schemas["Job"];

/** The API's list, newest first, and the cursors that it was asked with. */
function api(jobs: () => Schemas["Job"][]) {
  const cursors: (string | null)[] = [];
  const get: Get = async (cursor) => {
    cursors.push(cursor);
    const all = jobs();
    const from = cursor === null ? 0 : all.findIndex(({ id }) => id === cursor);
    return { jobs: all.slice(from, from + PAGE), next_cursor: all[from + PAGE]?.id ?? null };
  };
  return { cursors, get };
}
/** The numbers of the jobs from `first` down to `last`. */
const down = (first: number, last: number) => Array.from({ length: first - last + 1 }, (_, at) => first - at);
const ids = ({ shots }: Shots) => shots.map(({ id }) => Number(id));

test("as many pages are read as the pictures need", async () => {
  const all = down(100, 1).map((n) => job(n));
  const { cursors, get } = api(() => all);
  const first = await older(get, null, 24);
  expect([cursors, ids(first), pictures(first)]).toEqual([[null, "80"], down(100, 61), 40]);
  expect(first.shots[0]).toEqual({ id: "100", ended_at: null, files: ["100.png"], words: "picture 100" });
  expect(await older(get, first, 40)).toBe(first);
  expect(ids(await older(get, first, 48))).toEqual(down(100, 41));
  expect(cursors).toHaveLength(3);
});

test("results without pictures are not read to the end", async () => {
  const all = down(1000, 1).map((n) => job(n, "text/plain"));
  const { cursors, get } = api(() => all);
  expect(pictures(await older(get, null, 24))).toBe(0);
  expect(cursors).toHaveLength(PAGES_MAX);
});

test("new jobs come to the top with one request, also one that began before a known one", async () => {
  let all = down(60, 1).filter((n) => n !== 55).map((n) => job(n));
  const { cursors, get } = api(() => all);
  const known = await older(get, null, 1);
  all = down(63, 1).map((n) => job(n));
  cursors.length = 0;
  const found = await newer(get, known);
  expect([cursors, ids(found), found.next]).toEqual([[null], down(63, 40), known.next]);
});

test("after more new jobs than are read at once, the list begins anew", async () => {
  let all = down(30, 1).map((n) => job(n));
  const { cursors, get } = api(() => all);
  const known = await older(get, null, 1);
  all = down(500, 1).map((n) => job(n));
  cursors.length = 0;
  const found = await newer(get, known);
  expect([cursors.length, ids(found), found.next]).toEqual([PAGES_MAX, down(500, 401), "400"]);
});
