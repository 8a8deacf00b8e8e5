// "Call it from": the form's call in the languages that people use, to copy.
import { useEffect, useRef, useState } from "preact/hooks";
import { type Call, type Language, LANGUAGES, snippet } from "./snippets";

const COPIED_MS = 2000;
const KEPT_AS = "stokehold-language";

/** Copies a text, also where the page is not served over https. */
async function copy(text: string, from: HTMLElement | null): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // No clipboard without https: the old way selects the text.
    if (!from) return false;
    const range = document.createRange();
    range.selectNodeContents(from);
    getSelection()?.removeAllRanges();
    getSelection()?.addRange(range);
    return document.execCommand("copy");
  }
}

export function CallFrom({ call, isValid }: { call: Call; isValid: boolean }) {
  const [language, setLanguage] = useState<Language>(() => LANGUAGES.find(([each]) => each === localStorage.getItem(KEPT_AS))?.[0] ?? "python");
  const [copied, setCopied] = useState<string | null>(null);
  const code = useRef<HTMLElement>(null);
  const text = snippet(language, call);
  useEffect(() => { if (copied === null) return; const timer = setTimeout(() => setCopied(null), COPIED_MS); return () => clearTimeout(timer); }, [copied]);
  const choose = (next: Language) => { setLanguage(next); localStorage.setItem(KEPT_AS, next); };
  const move = (event: KeyboardEvent) => {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (by === 0) return;
    const at = LANGUAGES.findIndex(([each]) => each === language);
    const next = LANGUAGES[(at + by + LANGUAGES.length) % LANGUAGES.length];
    if (next) { choose(next[0]); document.getElementById(`call-${next[0]}`)?.focus(); }
  };
  return (
    <section class="card" aria-labelledby="call">
      <div class="bar-of-tabs">
        <h2 id="call">Call it from</h2>
        <div role="tablist" aria-labelledby="call" class="tabs" onKeyDown={move}>
          {LANGUAGES.map(([name, label]) => <button type="button" key={name} id={`call-${name}`} role="tab" aria-selected={language === name} aria-controls="call-code" tabIndex={language === name ? 0 : -1} onClick={() => choose(name)}>{label}</button>)}
        </div>
        <button type="button" class="small copy" onClick={() => void copy(text, code.current).then((isCopied) => setCopied(isCopied ? "Copied" : "Press Ctrl+C"))}><span aria-live="polite">{copied ?? "Copy"}</span></button>
      </div>
      <div id="call-code" role="tabpanel" aria-labelledby={`call-${language}`}><pre tabIndex={0} aria-label={`The call in ${language}`}><code ref={code}>{text}</code></pre></div>
      <p class="quiet">{isValid ? "The inputs are those of the form." : "The inputs of the form are not complete yet."} <code>stoke token create --name me</code> creates a token for STOKE_TOKEN.</p>
    </section>
  );
}
