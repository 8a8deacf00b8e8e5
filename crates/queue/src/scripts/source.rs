//! Builds the text of a script for Redis: the script after the files of `lua/lib` that it includes.
//!
//! A script and each file of `lua/lib` name the files that they use below their first comment, one or several per line:
//! `--- @include "lib/keys", "lib/text"`. If a file is included for what it does at the end of a call and not for a
//! name, the reason follows the directive.

/// A file of `lua/lib`: the name by which it is included, and its text.
type File = (&'static str, &'static str);

macro_rules! library {
    ($($name:literal)*) => {
        const LIBRARY: &[File] = &[$(($name, include_str!(concat!("../../lua/", $name, ".lua")))),*];
    };
}

library! {
    "lib/announce"
    "lib/append"
    "lib/attempt"
    "lib/capability"
    "lib/charge"
    "lib/class_queues"
    "lib/clock"
    "lib/costs"
    "lib/counts"
    "lib/create"
    "lib/depart"
    "lib/departures"
    "lib/ends"
    "lib/enqueue"
    "lib/extra_memory"
    "lib/fences"
    "lib/flow"
    "lib/freed"
    "lib/give_back"
    "lib/guard"
    "lib/idempotency"
    "lib/ids"
    "lib/job_keys"
    "lib/key_queue"
    "lib/keys"
    "lib/lane_keys"
    "lib/lane_parts"
    "lib/learn_cost"
    "lib/lease/capacity"
    "lib/lease/choose"
    "lib/lease/key_order"
    "lib/lease/query"
    "lib/lease/serve"
    "lib/lease/take"
    "lib/lease/virtual_times"
    "lib/limits"
    "lib/load"
    "lib/memory"
    "lib/next_entry"
    "lib/outbox"
    "lib/over_memory"
    "lib/quarantine"
    "lib/raw_ids"
    "lib/recount"
    "lib/requeue"
    "lib/resume"
    "lib/room"
    "lib/scope_keys"
    "lib/set_aside"
    "lib/spent"
    "lib/states"
    "lib/stop"
    "lib/streamed"
    "lib/text"
    "lib/timings"
    "lib/traces"
    "lib/waiter_keys"
    "lib/wake"
    "lib/watchers"
    "lib/webhooks"
}

/// The file with `flush`, which runs at the end of every script that includes it.
const COUNTS: &str = "lib/counts";

/// Runs `flush` last, however the script ends, even if it raises an error: the counts up to there are written. A failed
/// command is raised as a table, which Redis replies as that error; anything else is a bug of the script.
const RUN_MAIN: &str = "local done, answer = pcall(main)
flush()
if done or type(answer) == 'table' then return answer end
return {err = 'ERR ' .. tostring(answer)}
";

/// Builds the text for Redis from the text of a file in `lua`.
///
/// If a function captures a variable of the directly enclosing function, Lua searches all captured variables of that
/// one on every call of the script. A variable from further out is captured without a search. Therefore the files that
/// most others use are outside of the function that contains the rest. Lua limits that function to 60 captured
/// variables.
pub(super) fn build(text: &str) -> String {
    let (shebang, body) = text.split_once('\n').unwrap_or((text, ""));
    let files = included(text);
    let join = |files: &[File]| files.iter().map(|(_, text)| without_comments(text)).collect::<String>();
    if !files.iter().any(counts) {
        return format!("{shebang}\n{}{body}", join(&files));
    }
    let (inner, outer): (Vec<File>, Vec<File>) = files.iter().partition(|file| counts(file) || is_of_one_script(file));
    let (outer, inner) = (join(&outer), join(&inner));
    format!("{shebang}\n{outer}return (function()\n{inner}local function main()\n{body}end\n{RUN_MAIN}end)()\n")
}

/// Whether a file counts, or includes a file that does.
fn counts((name, text): &File) -> bool {
    *name == COUNTS || included(text).iter().any(|(name, _)| *name == COUNTS)
}

/// Whether a file is in a folder of `lua/lib`, which belongs to one script.
fn is_of_one_script((name, _): &File) -> bool {
    name.matches('/').count() > 1
}

/// The files that a text includes, directly or indirectly: each once, after those that it includes itself.
fn included(text: &str) -> Vec<File> {
    fn add(text: &str, seen: &mut Vec<&'static str>, files: &mut Vec<File>) {
        for file in includes(text).filter_map(find) {
            if !seen.contains(&file.0) {
                seen.push(file.0);
                add(file.1, seen, files);
                files.push(file);
            }
        }
    }
    let (mut seen, mut files) = (Vec::new(), Vec::new());
    add(text, &mut seen, &mut files);
    files
}

/// The names in the directives of a text.
fn includes(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter_map(|line| line.strip_prefix("--- @include "))
        .flat_map(|names| names.split('"').skip(1).step_by(2))
}

fn find(name: &str) -> Option<File> {
    LIBRARY.iter().copied().find(|(file, _)| *file == name)
}

/// Removes comments. Redis stores the text of every script, and comments of included files would only take memory
/// there.
fn without_comments(text: &str) -> String {
    let is_code = |line: &&str| !line.trim_start().starts_with("--") && !line.is_empty();
    text.lines().filter(is_code).flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests;
