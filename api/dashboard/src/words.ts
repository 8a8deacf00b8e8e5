// Figures in words: one way each to write dollars, spans and instants.

/** Dollars: two decimals and, of less than a dime, two digits that say something. */
export function usd(micros: number | null | undefined): string {
  if (micros === null || micros === undefined) return "–";
  const dollars = micros / 1e6;
  const least = Math.abs(dollars);
  if (least === 0 || least >= 0.1) return `$${dollars.toFixed(2)}`;
  return `$${dollars.toFixed(Math.min(6, 1 - Math.floor(Math.log10(least))))}`;
}
/** What a million of tokens cost; nothing without tokens. */
export function perMillion(usage: { prompt_tokens: number; completion_tokens: number } | null | undefined, micros: number | null | undefined): string {
  const tokens = usage ? usage.prompt_tokens + usage.completion_tokens : 0;
  return tokens > 0 && micros ? `${usd((micros * 1e6) / tokens)} per 1M tokens` : "";
}
export function span(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min ${Math.floor((ms % 60_000) / 1000)} s`;
  if (ms < 86_400_000) return `${Math.floor(ms / 3_600_000)} h ${Math.floor((ms % 3_600_000) / 60_000)} min`;
  return `${Math.floor(ms / 86_400_000)} d ${Math.floor((ms % 86_400_000) / 3_600_000)} h`;
}
/** A span that grows on screen: whole seconds do. */
export function age(ms: number): string { return ms < 60_000 ? `${Math.max(0, Math.floor(ms / 1000))} s` : span(ms); }
/** An estimate: minutes without seconds. */
export function about(seconds: number): string {
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 3600)} h`;
}
export function since(at: string | null | undefined): string { return at ? age(Date.now() - Date.parse(at)) : "–"; }
export function until(at: string | null | undefined): string { return at ? `in ${age(Math.max(0, Date.parse(at) - Date.now()))}` : "–"; }
export function instant(at: string | null | undefined): string { return at ? new Date(at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" }) : "–"; }
export function percent(part: number, whole: number): string { return whole > 0 ? `${((100 * part) / whole).toFixed(1)} %` : "–"; }
export function count(number: number): string { return number.toLocaleString("en").replaceAll(",", " "); }
export function gib(mib: number): string { return `${(mib / 1024).toFixed(mib % 1024 === 0 ? 0 : 1)} GiB`; }
export function bytes(size: number): string {
  if (size < 1024) return `${size} B`;
  const power = Math.min(4, Math.floor(Math.log2(size) / 10));
  return `${(size / 1024 ** power).toFixed(1)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
}
