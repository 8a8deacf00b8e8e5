#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;

use super::*;
use crate::help;

/// Commands of the release before, one per line, with their options.
const SPELLINGS: &str = include_str!("spellings.txt");

/// Old lines, and what they are now.
const LINES: &[(&str, &str)] = &[
    ("dlq", "job dead list"),
    ("dlq --endpoint render --limit 5", "job dead list --endpoint render --limit 5"),
    ("dlq list --endpoint render", "job dead list --endpoint render"),
    ("dlq --endpoint render retry", "job dead --endpoint render retry"),
    ("dlq retry --all --batch b --same-version", "job dead retry --all --batch b --same-version"),
    ("job quarantined", "job quarantined list"),
    ("job quarantined put-back a b", "job quarantined readmit a b"),
    ("endpoints", "endpoint list"),
    ("--json endpoints", "--json endpoint list"),
    ("--url http://a endpoints --token sk_x", "--url http://a endpoint list --token sk_x"),
    ("endpoint --json", "endpoint list --json"),
    ("endpoints greet", "endpoint get greet"),
    ("endpoint greet --json", "endpoint get greet --json"),
    ("endpoints traffic greet", "endpoint traffic greet"),
    ("endpoints traffic greet 7 --percent 10", "endpoint traffic greet@7 --percent 10"),
    ("endpoints traffic --percent 10 greet 7", "endpoint traffic --percent 10 greet@7"),
    ("endpoint diff greet 3", "endpoint diff greet@3"),
    ("endpoints diff --json greet 3 5", "endpoint diff --json greet@3 greet@5"),
    ("endpoints rollback greet", "endpoint rollback greet"),
    ("endpoints delete greet@3 --force", "endpoint delete greet@3 --force"),
    ("endpoints prune greet --keep 3", "endpoint prune greet --keep 3"),
    ("endpoints needs greet", "endpoint needs greet"),
    ("endpoints forget-needs greet", "endpoint forget-needs greet"),
    (
        "gate --endpoint greet --version 8 --batch c.jsonl --max-p95-ms 900 --promote",
        "endpoint gate greet@8 --batch c.jsonl --max-p95 900ms --promote",
    ),
    ("gate --batch c.jsonl --version=8 --endpoint=greet", "endpoint gate --batch c.jsonl greet@8"),
    ("feedback 01 --accepted --score 5", "feedback give 01 --accepted --score 5"),
    ("feedback --accepted 01", "feedback give --accepted 01"),
    ("workers", "worker list"),
    ("workers --json", "worker list --json"),
    ("worker", "worker run"),
    (
        "worker --gateway http://a --slots 2 --exit-with-stdin",
        "worker run --gateway http://a --slots 2 --exit-with-stdin",
    ),
    ("costs --by day --from 30d", "cost --by day --from 30d"),
    ("limits", "limit get"),
    ("limits acme --endpoint render", "limit get acme --endpoint render"),
    ("limits acme --weight 2 --clear max-open", "limit set acme --weight 2 --clear max-open"),
    ("install --domain a.example", "server install --domain a.example"),
    ("uninstall --delete-data", "server uninstall --delete-data"),
    (
        "submit echo --timeout-s 5 --deadline-s=60 --queue-timeout-s 7 --retention-s 90",
        "submit echo --timeout 5s --deadline 60s --queue-timeout 7s --retention 90s",
    ),
    (
        "schedule create echo --cron x --grace-s 60 --timeout-s 5",
        "schedule create echo --cron x --grace 60s --timeout 5s",
    ),
    (
        "batch submit in.jsonl --endpoint e --version 3 --deadline-s 60 --timeout-s 5",
        "batch submit in.jsonl --endpoint e@3 --deadline 60s --timeout 5s",
    ),
    ("backup create --pause-ms 2500", "backup create --pause 2500ms"),
    ("backup --to s3://b/p create --pause-ms 0", "backup --to s3://b/p create --pause 0ms"),
    ("bench load --rate 10 --duration 60", "bench load --rate 10 --duration 60s"),
    ("bench load --rate 10 --patience 1.5", "bench load --rate 10 --patience 1500ms"),
    ("simulate --trace t.csv --fold 3600 --skip 0", "simulate --trace t.csv --fold 3600s --skip 0s"),
    ("autoscaler plan --dry-run", "autoscaler plan"),
    ("token create --name a --role worker", "token create --name a --kind join"),
    ("token create --name a --role=worker --single-use", "token create --name a --kind join --single-use"),
];

fn words(line: &str) -> Vec<OsString> {
    std::iter::once("stoke").chain(line.split(' ')).map(OsString::from).collect()
}

#[test]
fn old_lines_parse_to_the_same_as_new_ones() {
    let command = help::command();
    for (old, new) in LINES {
        let typed = translate(&command, words(old));
        assert_eq!(typed.words, words(new), "{old}");
        assert!(
            !typed.hints.is_empty()
                && typed.hints.iter().all(|hint| hint.contains("is now") || hint.contains("no effect")),
            "{old}"
        );
        let parsed = |line| command.clone().try_get_matches_from(line).map_err(|error| error.to_string());
        assert_eq!(parsed(typed.words).unwrap(), parsed(words(new)).unwrap(), "{old}");
    }
}

#[test]
fn new_lines_stay_as_they_are() {
    let command = help::command();
    for line in LINES.iter().map(|(_, new)| *new).chain([
        "worker --help",
        "help worker",
        "help endpoint",
        "endpoint --help",
        "endpoint help",
        "worker check --gateway http://a",
        "submit gate --wait",
        "submit workers --input {}",
        "get dlq",
        "bench load --duration 5m",
        "guard 1 -- stoke workers --timeout-s 5",
        "--url endpoints list",
    ]) {
        let typed = translate(&command, words(line));
        assert_eq!((typed.words, typed.hints), (words(line), Vec::new()), "{line}");
    }
}

#[test]
fn every_command_and_option_of_the_release_before_is_known() {
    let command = help::command();
    let mut missing = BTreeSet::new();
    for line in SPELLINGS.lines().filter(|line| !line.starts_with('#')) {
        let (path, options) = line.split_once(": ").unwrap_or((line, ""));
        let path = path.trim_end_matches(':');
        let typed = translate(&command, words(path));
        if find(&command, &typed.path(&command)).is_none_or(|found| found.get_name() == "stoke") {
            missing.insert(path.to_owned());
        }
        for option in options.split_whitespace() {
            // A version belongs to an endpoint.
            let endpoint = if option == "--version" { " --endpoint e" } else { "" };
            // A job is rated by its id.
            let job = if path == "feedback" { " 01" } else { "" };
            let typed = translate(&command, words(&format!("{path}{job}{endpoint} {option}=1")));
            let path_now = typed.path(&command);
            let mut commands = vec![&command];
            for word in path_now.split(' ') {
                commands.extend(commands.last().unwrap().find_subcommand(word));
            }
            let options = typed.words.iter().filter_map(|word| word.to_str()).filter(|word| word.starts_with("--"));
            let is_known = |option: &str| commands.iter().any(|command| arg(command, option).is_some());
            if !options.map(name_of).all(is_known) {
                missing.insert(format!("{path} {option} (now {path_now})"));
            }
        }
    }
    assert_eq!(missing, BTreeSet::new(), "without a row in table.rs");
}

#[test]
fn every_row_is_tried() {
    for row in COMMANDS {
        let is_tried = LINES.iter().any(|(old, new)| old.contains(row.old) && new.contains(row.new));
        assert!(is_tried, "{} has no line", row.old);
    }
    for row in OPTIONS {
        assert!(LINES.iter().any(|(old, _)| old.contains(row.old)), "{} has no line", row.old);
    }
}
