// Server-sent events, decoded from text in chunks of any size.

import { StokeholdError } from "../core/error.js";

export interface Message {
  name: string;
  data: string;
  /** The id of this event; undefined if it has none. */
  id: string | undefined;
}

/** Far above the largest event, a `done` with the whole input of the job. */
const EVENT_CHARS_MAX = 32 << 20;

export class SseParser {
  /** The id of the last complete event. With the id of an incomplete one, the next connection would skip that event. */
  lastId: string;
  #id: string | undefined;
  #name = "";
  #data: string[] = [];
  #size = 0;
  #rest = "";
  #skipLf = false;

  constructor(lastId: string) {
    this.lastId = lastId;
  }

  /** The events that this text completes. */
  *feed(text: string): Generator<Message> {
    if (this.#skipLf && text.startsWith("\n")) text = text.slice(1);
    if (text !== "") this.#skipLf = text.endsWith("\r");
    const lines = text.split(/\r\n|\n|\r/);
    lines[0] = this.#rest + lines[0];
    this.#rest = lines.pop() ?? "";
    checkSize(this.#rest.length);
    for (const line of lines) {
      if (line !== "") {
        this.#field(line);
        continue;
      }
      if (this.#id !== undefined) this.lastId = this.#id;
      const message = { name: this.#name, data: this.#data.join("\n"), id: this.#id };
      this.#id = undefined;
      this.#name = "";
      this.#data = [];
      this.#size = 0;
      if (message.data !== "") yield message;
    }
  }

  #field(line: string): void {
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") {
      this.#data.push(value);
      checkSize((this.#size += value.length));
    } else if (name === "event") this.#name = value;
    else if (name === "id" && !value.includes("\0")) this.#id = value;
  }
}

function checkSize(chars: number): void {
  if (chars > EVENT_CHARS_MAX) {
    throw new StokeholdError("received an event of more than 32 MiB; is this a Stokehold API?");
  }
}
