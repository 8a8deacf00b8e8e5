// The environment, where there is one: Node, Bun and Deno have `process.env`, browsers do not.

interface WithProcess {
  process?: { env?: Record<string, string | undefined> };
}

/** Whether this runs outside of a browser. */
export function hasProcess(): boolean {
  return (globalThis as WithProcess).process !== undefined;
}

/** A variable; undefined when it is empty. */
export function env(name: string): string | undefined {
  try {
    return (globalThis as WithProcess).process?.env?.[name] || undefined;
  } catch {
    return undefined; // Deno without the right to read it
  }
}
