// Views have real addresses below /dashboard.
import { useEffect, useState } from "preact/hooks";

export const VIEWS = [["queue", "Queue", "q"], ["jobs", "Jobs", "j"], ["batches", "Batches", "b"], ["fleet", "Fleet", "f"], ["endpoints", "Endpoints", "e"], ["costs", "Costs", "c"], ["storage", "Storage", "s"]] as const;

export function go(path: string): void { history.pushState(null, "", path); dispatchEvent(new PopStateEvent("popstate")); }

/** The path below /dashboard, in parts, and its query. */
export function useRoute(): { parts: string[]; query: URLSearchParams } {
  const [href, set] = useState(location.href);
  useEffect(() => {
    const moved = () => set(location.href);
    const clicked = (event: MouseEvent) => {
      const link = (event.target as Element).closest("a");
      if (!link || event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || link.target || link.origin !== location.origin || !link.pathname.startsWith("/dashboard") || link.hash) return;
      event.preventDefault();
      go(link.href);
    };
    addEventListener("popstate", moved);
    document.addEventListener("click", clicked);
    return () => { removeEventListener("popstate", moved); document.removeEventListener("click", clicked); };
  }, []);
  const at = new URL(href);
  return { parts: at.pathname.split("/").filter(Boolean).slice(1), query: at.searchParams };
}
