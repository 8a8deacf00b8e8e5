// Lists, fetched page by page.

import type { Http } from "./http.js";

type Page<K extends string, R> = { [key in K]: R[] } & { next_cursor: string | null };

/** Builds a query. Undefined members are left out, lists are joined, and `metadata` becomes `metadata.K=V`. */
export function query(members: Readonly<Record<string, unknown>>): URLSearchParams {
  const all = new URLSearchParams();
  for (const [name, value] of Object.entries(members)) {
    if (name === "metadata" && typeof value === "object" && value !== null) {
      for (const [key, text] of Object.entries(value)) all.set(`metadata.${key}`, String(text));
    } else if (value !== undefined) {
      all.set(name, Array.isArray(value) ? value.join(",") : String(value));
    }
  }
  return all;
}

/** The items of a list, fetched page by page as they are read. `key` is the member that contains the items. */
export async function* pages<K extends string, R>(
  http: Http,
  path: string,
  key: K,
  asked: URLSearchParams,
  signal: AbortSignal | undefined,
): AsyncGenerator<R, void, void> {
  for (;;) {
    const page = await http.get<Page<K, R>>(`${path}?${asked}`, { signal });
    yield* page[key];
    if (page.next_cursor === null || page.next_cursor === asked.get("cursor")) return;
    asked.set("cursor", page.next_cursor);
  }
}
