// A response stream as text.

import type { Silence } from "./signal.js";

/** Streams the text of a body. Closes the connection when the reader stops. */
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
      silence.rest(); // the time that the reader takes does not count
      yield decoder.decode(value, { stream: true });
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
