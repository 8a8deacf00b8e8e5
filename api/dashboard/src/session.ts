// The session and its scopes. Actions that it does not permit are not offered.
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Schemas } from "./api";

export type Session = Schemas["Session"];
export type Scope = "jobs:read" | "jobs:submit" | "jobs:cancel" | "endpoints:read" | "endpoints:write" | "files:read" | "files:write" | "webhooks:read" | "workers:read" | "workers:join" | "limits:read" | "tenants:read" | "tenants:write";

export const SessionContext = createContext<Session | null>(null);

const clears = new Set<() => void>();
/** Registers what clears data of the session that a module keeps, e.g. typed inputs: the tab may be another person's next. */
export function onLogOut(clear: () => void): void { clears.add(clear); }
/** Clears all data of the session. */
export function clearSession(): void { clears.forEach((clear) => clear()); }

/** Whether the session has a scope. The API decides; this only hides buttons that it would refuse. */
export function useMay(scope: Scope): boolean {
  const scopes: string[] = useContext(SessionContext)?.scopes ?? [];
  return scopes.includes(scope) || ((scope === "jobs:submit" || scope === "jobs:cancel") && scopes.includes("jobs:write"));
}

/** Returns the token of an address that `stoke dashboard` printed, and removes it from the address and the history before any request is sent. */
export function takeLink(): string | null {
  const found = /^#(sk_\w+)$/.exec(location.hash)?.[1] ?? null;
  if (found) history.replaceState(null, "", location.pathname + location.search);
  return found;
}
