// The progress bar of a batch: one line of a terminal.

import type { Batch } from "../generated/batches.js";

interface Terminal {
  isTTY?: boolean;
  columns?: number;
  write: (text: string) => unknown;
}

const BAR_CHARS = 24;

/** Shows the progress of a batch if stderr is a terminal (Node, Deno, Bun), and nothing elsewhere. */
export class Bar {
  readonly #terminal: Terminal | undefined;
  #shown = false;

  constructor(terminal = (globalThis as { process?: { stderr?: Terminal } }).process?.stderr) {
    this.#terminal = terminal?.isTTY === true ? terminal : undefined;
  }

  show(batch: Batch): void {
    // One column less than the terminal has: a full last column would start another line.
    const text = barText(batch, Date.now()).slice(0, (this.#terminal?.columns ?? 80) - 1);
    this.#terminal?.write(`\r${text}\u001b[K`);
    this.#shown = true;
  }

  close(): void {
    if (this.#shown) this.#terminal?.write("\n");
    this.#shown = false;
  }
}

/** `running  ██████░░░░░░  1200/5000  24 %  3 failed  41.2/s  1m 32s left` */
export function barText({ state, counts, rate_per_s, eta_at }: Batch, nowMs: number): string {
  const done = counts.accepted - counts.open;
  const part = counts.accepted > 0 ? done / counts.accepted : state === "completed" ? 1 : 0;
  const full = Math.floor(part * BAR_CHARS);
  const lost = counts.failed + counts.expired;
  const leftS = eta_at === null ? NaN : Math.max(0, Math.round((Date.parse(eta_at) - nowMs) / 1000));
  return [
    state,
    "█".repeat(full) + "░".repeat(BAR_CHARS - full),
    `${done}/${counts.accepted}`,
    `${Math.floor(part * 100)} %`,
    ...(lost > 0 ? [`${lost} failed`] : []),
    ...(counts.invalid > 0 ? [`${counts.invalid} invalid`] : []),
    ...(rate_per_s === null ? [] : [`${rate_per_s.toFixed(1)}/s`]),
    ...(Number.isNaN(leftS) || counts.open === 0 ? [] : [`${span(leftS)} left`]),
  ].join("  ");
}

function span(seconds: number): string {
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  return hours > 0 ? `${hours}h ${minutes}m` : minutes > 0 ? `${minutes}m ${seconds % 60}s` : `${seconds}s`;
}
