// Generated from api/openapi.json by `make models`; do not edit.
// The access of the API.

/** The outcome of a change. */
export type ChangeOutcome = "done" | "refused" | "failed" | "unknown";

/** The kind of a token. */
export type TokenKind = "api" | "join";

/** The owner of a machine. */
export type TokenTrust = "community" | "datacenter" | "owned";

/** The actor of a change. A tenant sees only that an operator made a change, not which one. */
export interface Actor {
  /** The token's name; `operator` for operators. */
  token_name: string;
  /** The token's id; null for operators. */
  token_id: string | null;
  /** The user that the token names, if any. */
  user: string | null;
}

/** An entry of the audit log. */
export interface Change {
  /** The entry's unique id. */
  id: string;
  /** When the change began, RFC 3339. */
  at: string;
  /** The tenant whose resources were changed. */
  tenant: string;
  /** The actor of a change. A tenant sees only that an operator made a change, not which one. */
  actor: Actor;
  /**
   * Method and route, e.g. `PUT /v1/secrets/{name}`; `stoke ...` for a change that an operator made directly in Redis.
   */
  action: string;
  /** The changed resource, e.g. `HF_TOKEN`; empty if the route has only one or it is not known. */
  object: string;
  /** The outcome of a change. */
  outcome: ChangeOutcome;
  /** The client's address as reported by trusted proxies; null if it is not known or the caller may not see it. */
  address: string | null;
  /** The `x-request-id` of the response. */
  request_id: string | null;
}

/** One page of the audit log. */
export interface ChangeList {
  changes: Change[];
  /** Pass this as `after` to read later entries; null if the page is empty. */
  newest: string | null;
  /** The cursor of the next page in the same direction; null at the end. */
  next_cursor: string | null;
}

/** A tenant. */
export interface Tenant {
  name: string;
  /** Jobs that have not ended; those of a disabled tenant wait. */
  open_jobs: number;
  /** When it was created, RFC 3339; null for a tenant that was created with its first token. */
  created_at: string | null;
  /** When it was disabled, RFC 3339: its requests are refused and none of its jobs start. Null: it is not disabled. */
  disabled_at: string | null;
}

/** A token, without its secret, which is returned only once. */
export interface Token {
  /** The part of the token after the first `_`. */
  id: string;
  /** The kind of a token. */
  kind: TokenKind;
  tenant: string;
  name: string;
  /** The token's scopes; none for a join token. */
  scopes: string[];
  /** RFC 3339. */
  created_at: string;
  /** Whether only one worker may join with it. */
  single_use: boolean;
  /** RFC 3339; null: the token does not expire. */
  expires_at: string | null;
  /** When the token was last used, RFC 3339, within a minute or two; null: not in the last 400 days. */
  last_used_at: string | null;
  /** Until when the secret before the last rotation is also valid, RFC 3339. */
  previous_until: string | null;
  /** For a join token: the region of those machines, as endpoints name it; null if none is set. */
  region: string | null;
  /** For a join token: the owner of the machines that join with it; null for an API token. */
  trust: TokenTrust | null;
  /** The user of the token, if set. */
  user: string | null;
}

/** A created token. */
export interface NewToken {
  /** The token itself, returned only once. */
  token: string;
  /** The token's stored record. */
  record: Token;
}

/** A secret, without its value, which is never returned. */
export interface Secret {
  name: string;
  /** When it was set, RFC 3339. */
  updated_at: string;
  /** The id of the API key that seals it. */
  key_id: string;
  /** The endpoints whose current version uses it. */
  used_by: string[];
}

/** The outcome of sealing all secrets with the current key. */
export interface Rewrapped {
  /** The id of the current key. */
  key_id: string;
  /** The number of secrets that were sealed with another key and are now sealed with this one. */
  rewrapped: number;
  /** Secrets that cannot be opened, `<tenant>/<name>`; they are not changed. */
  unreadable: string[];
}
