// The options that every call has.

/** The options of every call. An aborted `signal` stops the call, also between retries, and its reason is thrown. */
export interface CallOptions {
  signal?: AbortSignal;
}

/** An id, or an object that has one. */
export type Id = string | { readonly id: string };

/** The id as a segment of a path. */
export function part(id: Id): string {
  return encodeURIComponent(typeof id === "string" ? id : id.id);
}

/** The given options, under their names in the API. */
export function named(names: Readonly<Record<string, string>>, options: object): Record<string, unknown> {
  const given = Object.entries(options).flatMap(([key, value]) => {
    const name = names[key];
    return name === undefined || value === undefined ? [] : [[name, value] as const];
  });
  return Object.fromEntries(given);
}
