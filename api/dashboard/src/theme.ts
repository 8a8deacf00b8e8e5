// Light or dark: what the system says, until somebody chooses.
import { useEffect, useState } from "preact/hooks";

const KEPT_AS = "stokehold-theme";
const wishes = matchMedia("(prefers-color-scheme: dark)");
const watchers = new Set<() => void>();

function theme(): string { return localStorage.getItem(KEPT_AS) ?? (wishes.matches ? "dark" : "light"); }

export function paint(): void {
  document.documentElement.dataset["theme"] = theme();
  watchers.forEach((watcher) => watcher());
}
export function toggle(): void { localStorage.setItem(KEPT_AS, theme() === "dark" ? "light" : "dark"); paint(); }
wishes.addEventListener("change", paint);

/** The theme, for what is drawn in its colours. */
export function useTheme(): string {
  const [now, set] = useState(theme());
  useEffect(() => { const watcher = () => set(theme()); watchers.add(watcher); return () => { watchers.delete(watcher); }; }, []);
  return now;
}
