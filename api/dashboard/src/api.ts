// Requests to the API. The types come from the OpenAPI document.
import type { components } from "./openapi";

export type Schemas = components["schemas"];

/** A response with an error status, and the API's description of it. */
export class ApiError extends Error {
  constructor(readonly status: number, detail: string, readonly errors: Schemas["FieldError"][] = []) { super(detail); }
}

const TIMEOUT_MS = 15_000;

/** Sends one request, with a timeout. Callers decide whether to send it again. */
export async function ask<T>(path: string, init: RequestInit = {}): Promise<T> {
  const headers = new Headers(init.headers);
  if (init.method) headers.set("Stokehold-Request", "dashboard");
  if (init.body) headers.set("Content-Type", "application/json");
  const timeout = AbortSignal.timeout(TIMEOUT_MS);
  const signal = init.signal ? AbortSignal.any([init.signal, timeout]) : timeout;
  const answer = await fetch(path, { credentials: "same-origin", ...init, signal, headers });
  if (!answer.ok) {
    const problem = (await answer.json().catch(() => null)) as { detail?: string; errors?: Schemas["FieldError"][] } | null;
    throw new ApiError(answer.status, problem?.detail ?? `The API answered ${answer.status}.`, problem?.errors);
  }
  return (answer.status === 204 ? undefined : await answer.json()) as T;
}

/** An error as a sentence for the page. */
export function sentence(error: unknown): string {
  if (error instanceof ApiError && error.status === 403) return `This token lacks the permission: ${error.message}`;
  return error instanceof ApiError ? error.message : "The API cannot be reached; the page keeps trying.";
}
