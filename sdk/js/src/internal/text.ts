// A response stream as text.

import { RESPONSE_BYTES_MAX, tooLarge } from "./http1.js";
import type { ShortResponse } from "./node.js";
import type { IdleTimer } from "./signal.js";

/** Streams the text of a body. Closes the connection when the reader stops. */
export async function* textOf(
  body: ReadableStream<Uint8Array>,
  timer: IdleTimer,
): AsyncGenerator<string, void, void> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  try {
    for (;;) {
      timer.restart();
      const { done, value } = await reader.read();
      if (done) return;
      timer.stop(); // the time that the reader takes does not count
      yield decoder.decode(value, { stream: true });
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

/** Reads a whole response, without a limit of its duration. Throws if it has more than 256 MiB. */
export async function wholeText(response: ShortResponse | Response, timer: IdleTimer): Promise<string> {
  if (!("body" in response) || !response.body) return response.text(); // ours is read already; React Native has no body
  const texts: string[] = [];
  let size = 0;
  for await (const text of textOf(response.body, timer)) {
    size += text.length;
    if (size > RESPONSE_BYTES_MAX) throw tooLarge();
    texts.push(text);
  }
  return texts.join("");
}
