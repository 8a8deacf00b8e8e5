// What every call takes.

/** What every call takes. An aborted signal ends it, retries and pauses included, and throws the signal's reason. */
export interface CallOptions {
  signal?: AbortSignal;
}

/** An id, or anything that has one. */
export type Id = string | { readonly id: string };

/** The id as a part of a path. */
export function part(id: Id): string {
  return encodeURIComponent(typeof id === "string" ? id : id.id);
}
