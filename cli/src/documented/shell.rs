//! Blocks of shell: their syntax, the `stoke` commands in them, and the addresses that `curl` requests.

use std::io::Write as _;
use std::process::{Command, Stdio};

use clap::error::ErrorKind;
use clap::{Arg, Command as Clap, CommandFactory as _};
use serde_json::Value;
use stokehold_tests::documented::{Fence, all_spans, commands};

use super::{fences, report};
use crate::Cli;

/// Programs that run the program which they are given.
const WRAPPERS: [&str; 5] = ["sudo", "docker", "kubectl", "env", "timeout"];

/// Programs whose commands are those of `stoke`. `stoke-admin` is what `stoke server install` writes.
const NAMES: [&str; 4] = ["stoke", "bin/stoke", "target/debug/stoke", "stoke-admin"];

/// The arguments of the `stoke` command that these words run, if they do.
fn stoke(words: &[String]) -> Option<&[String]> {
    let is_stoke = |word: &String| NAMES.contains(&word.as_str());
    let at = if WRAPPERS.contains(&words.first()?.as_str()) {
        words.iter().position(is_stoke)?
    } else {
        is_stoke(&words[0]).then_some(0)?
    };
    Some(&words[at + 1..])
}

/// Why clap refuses these arguments of `stoke`.
fn refusal(arguments: &[String]) -> Option<String> {
    let words = std::iter::once("stoke").chain(arguments.iter().map(String::as_str));
    let error = Cli::command().try_get_matches_from(words).err()?;
    let is_fine = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    (!is_fine).then(|| format!("stoke {}: {}", arguments.join(" "), error.to_string().trim_end()))
}

/// The shell text of a block: of `console`, what follows the prompts.
fn typed(fence: &Fence) -> String {
    if fence.language != "console" {
        return fence.text.clone();
    }
    fence.text.lines().filter_map(|line| line.strip_prefix("$ ")).fold(String::new(), |text, line| text + line + "\n")
}

fn blocks() -> Vec<Fence> {
    [fences("sh"), fences("console")].concat()
}

#[test]
fn every_block_of_shell_has_valid_syntax() {
    let mut faults = Vec::new();
    for fence in blocks() {
        let mut bash = Command::new("bash");
        let bash = bash.arg("-n").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut bash = bash.spawn().unwrap();
        bash.stdin.take().unwrap().write_all(typed(&fence).as_bytes()).unwrap();
        let output = bash.wait_with_output().unwrap();
        if !output.status.success() {
            faults.push(format!("{}: {}", fence.place(), String::from_utf8_lossy(&output.stderr).trim_end()));
        }
    }
    report(&faults);
}

#[test]
fn every_stoke_command_is_accepted() {
    let (mut faults, mut count) = (Vec::new(), 0);
    for fence in blocks() {
        for command in commands(&typed(&fence)) {
            let Some(arguments) = stoke(&command) else { continue };
            count += 1;
            faults.extend(refusal(arguments).map(|why| format!("{}: {why}", fence.place())));
        }
    }
    assert!(count > 100, "only {count} stoke commands were found");
    report(&faults);
}

/// The first word of these arguments that names neither a command nor an option. Values are not looked at, because
/// prose has placeholders in their place.
fn unknown<'a>(root: &Clap, arguments: &'a [String]) -> Option<&'a str> {
    let mut at = root;
    for word in arguments {
        let is_placeholder = word.contains("...") || word.chars().all(|c| !c.is_ascii_lowercase());
        if let Some(option) = word.strip_prefix("--") {
            let name = option.split('=').next().unwrap_or_default();
            let names = |it: &Arg| it.get_long_and_visible_aliases().unwrap_or_default().contains(&name);
            if !name.is_empty() && name != "help" && !at.get_arguments().any(names) {
                return Some(word);
            }
        } else if let Some(next) = at.find_subcommand(word) {
            at = next;
        } else if !is_placeholder && !word.starts_with('-') && at.is_subcommand_required_set() {
            return Some(word);
        }
    }
    None
}

#[test]
fn commands_in_prose_exist() {
    let mut root = Cli::command();
    root.build();
    let (mut faults, mut count) = (Vec::new(), 0);
    for (page, span) in all_spans() {
        let found = commands(&span);
        let Some(arguments) = found.first().and_then(|words| stoke(words)) else { continue };
        count += 1;
        faults.extend(unknown(&root, arguments).map(|word| format!("{page}: `{span}`: there is no {word}")));
    }
    assert!(count > 50, "only {count} commands were found");
    report(&faults);
    let words = |text: &str| commands(text).remove(0);
    assert_eq!(unknown(&root, &words("token creat --name me")), Some("creat"));
    assert_eq!(unknown(&root, &words("token create --nam me")), Some("--nam"));
    assert_eq!(unknown(&root, &words("token create --name NAME --role ROLE,...")), None);
}

#[test]
fn a_command_that_does_not_exist_is_refused() {
    let words = |text: &str| commands(text).remove(0);
    assert!(stoke(&words("ln -s bin/stoke stoke")).is_none());
    assert!(refusal(stoke(&words("sudo -E stoke submit greet --inputs '{}'")).unwrap()).is_some());
    assert_eq!(refusal(stoke(&words("kubectl exec api -- stoke token create --name me")).unwrap()), None);
}

/// The method and the path of an address of the API that `curl` requests.
fn request(words: &[String]) -> Option<(String, String)> {
    if words.first()? != "curl" {
        return None;
    }
    let address = words.iter().find(|word| word.contains("/v1/") && !word.contains("{"))?;
    let path = &address[address.find("/v1/")?..];
    let path = path.split('?').next()?.to_owned();
    let named = words.iter().position(|word| word == "-X" || word == "--request").and_then(|at| words.get(at + 1));
    let has_body = words.iter().any(|word| word == "-d" || word.starts_with("--data") || word == "--json");
    let has_file = words.iter().any(|word| word == "-T" || word == "--upload-file");
    let default = if has_file {
        "PUT"
    } else if has_body {
        "POST"
    } else {
        "GET"
    };
    Some((named.map_or(default, String::as_str).to_lowercase(), path))
}

/// Whether the API has this operation. A segment in braces matches any.
fn exists(document: &Value, method: &str, path: &str) -> bool {
    let segments: Vec<&str> = path.split('/').collect();
    document["paths"].as_object().unwrap().iter().any(|(template, operations)| {
        let named: Vec<&str> = template.split('/').collect();
        let is_match = named.len() == segments.len()
            && named.iter().zip(&segments).all(|(name, segment)| name.starts_with('{') || name == segment);
        is_match && operations.get(method).is_some()
    })
}

#[test]
fn curl_requests_operations_that_the_api_has() {
    let document: Value = serde_json::from_str(include_str!("../../../api/openapi.json")).unwrap();
    let (mut faults, mut count) = (Vec::new(), 0);
    for fence in blocks() {
        for (method, path) in commands(&typed(&fence)).iter().filter_map(|words| request(words)) {
            count += 1;
            // Of the gateway for workers, and of Prometheus.
            let is_other =
                path.starts_with("/v1/worker/") || path.starts_with("/v1/query") || path.starts_with("/v1/rules");
            if !is_other && !exists(&document, &method, &path) {
                faults.push(format!("{}: the API has no {method} {path}", fence.place()));
            }
        }
    }
    assert!(count > 5, "only {count} requests were found");
    report(&faults);
    assert!(exists(&document, "get", "/v1/jobs/0192") && !exists(&document, "put", "/v1/jobs/0192"));
}
