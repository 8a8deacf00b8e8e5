// Figures in words: one way each to write dollars, spans and instants.
export function usd(micros: number | null | undefined): string {
  if (micros === null || micros === undefined) return "–";
  const dollars = micros / 1e6;
  return `$${dollars.toFixed(dollars !== 0 && Math.abs(dollars) < 1 ? 4 : 2)}`;
}
export function span(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min ${Math.floor((ms % 60_000) / 1000)} s`;
  return `${Math.floor(ms / 3_600_000)} h ${Math.floor((ms % 3_600_000) / 60_000)} min`;
}
export function since(at: string | null | undefined): string { return at ? span(Math.max(0, Date.now() - Date.parse(at))) : "–"; }
export function instant(at: string | null | undefined): string { return at ? new Date(at).toLocaleString() : "–"; }
export function percent(part: number, whole: number): string { return whole > 0 ? `${((100 * part) / whole).toFixed(1)} %` : "–"; }
