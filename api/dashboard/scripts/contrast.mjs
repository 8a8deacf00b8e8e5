// Every colour that text has must stand out from what it lies on by 4.5 to 1 (WCAG AA), in both themes.
import { readFileSync } from "node:fs";

const LEAST = 4.5;
const css = readFileSync(new URL("../src/style.css", import.meta.url), "utf8");
const tokens = (block) => Object.fromEntries([...block.matchAll(/--([\w-]+): (#[0-9a-f]{6})/g)].map(([, name, colour]) => [name, colour]));
const [light, dark] = [css.match(/^:root \{[^}]*\}/m), css.match(/^:root\[data-theme="dark"\] \{[^}]*\}/m)].map((found) => tokens(found[0]));
const luminance = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)).reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
const contrast = (one, other) => { const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b); return (high + 0.05) / (low + 0.05); };
const pairs = ["text", "quiet", "accent", "good", "bad", "warn", "busy"].flatMap((name) => [[name, "ground"], [name, "raised"]]);
// A button's words on it, and the parts of a bar.
pairs.push(["on-accent", "accent"], ...["busy", "quiet", "good", "bad", "blue", "teal", "plum", "amber", "rose", "slate"].map((colour) => ["ground", colour]));

let failed = false;
for (const [theme, colours] of [["light", light], ["dark", dark]]) {
  for (const [front, back] of pairs) {
    const found = contrast(colours[front], colours[back]);
    if (!(found >= LEAST)) { console.error(`${theme}: ${front} on ${back} is ${found.toFixed(2)} to 1`); failed = true; }
  }
}
console.log(`contrast: ${pairs.length} pairs in 2 themes looked at`);
process.exit(failed ? 1 : 0);
