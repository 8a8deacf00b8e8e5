// A streamed answer as text.

import type { Silence } from "./signal.js";

/** Text as it comes; whoever stops reading lets go of the connection. */
export async function* textOf(
  body: ReadableStream<Uint8Array>,
  silence: Silence,
): AsyncGenerator<string, void, void> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  try {
    for (;;) {
      silence.heard();
      const { done, value } = await reader.read();
      if (done) return;
      silence.rest(); // what comes next is the reader's time, not the server's
      yield decoder.decode(value, { stream: true });
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
