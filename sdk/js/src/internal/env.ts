// Environment variables. Node, Bun and Deno have `process.env`; browsers do not.

interface WithProcess {
  process?: { env?: Record<string, string | undefined> };
}

/** Whether this code runs outside a browser. */
export function hasProcess(): boolean {
  return (globalThis as WithProcess).process !== undefined;
}

/** The value of an environment variable; undefined if it is missing or empty. */
export function env(name: string): string | undefined {
  try {
    return (globalThis as WithProcess).process?.env?.[name] || undefined;
  } catch {
    return undefined; // Deno without the permission to read it
  }
}
