//! The boards, parsed as Grafana does.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::{is_documented, named, read, root};

const FOLDER: &str = "deploy/grafana/dashboards";

/// A query of a board to its data source.
pub(crate) struct Question {
    /// The board and the panel or variable.
    pub(crate) place: String,
    pub(crate) query: String,
}

/// Each board with its file name.
fn boards() -> Vec<(String, Value)> {
    let mut files: Vec<_> = fs::read_dir(root().join(FOLDER)).unwrap().map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let board = |file: std::path::PathBuf| {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&file).unwrap();
        (name, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display())))
    };
    files.into_iter().map(board).collect()
}

fn list<'a>(value: &'a Value, what: &str) -> &'a [Value] {
    value.as_array().unwrap_or_else(|| panic!("{what} is no list"))
}

fn text<'a>(value: &'a Value, what: &str) -> &'a str {
    value.as_str().filter(|text| !text.is_empty()).unwrap_or_else(|| panic!("{what} is missing"))
}

/// The panels with queries.
fn panels(board: &Value) -> impl Iterator<Item = &Value> {
    list(&board["panels"], "panels").iter().filter(|panel| panel["type"] != "row")
}

/// All queries of the boards, as Grafana would send them with `All` chosen everywhere.
pub(crate) fn questions() -> Vec<Question> {
    let mut questions = Vec::new();
    for (name, board) in boards() {
        for panel in panels(&board) {
            for target in list(&panel["targets"], "targets") {
                let place = format!("{name}: {} {}", text(&panel["title"], "title"), text(&target["refId"], "refId"));
                questions.push(Question { place, query: filled(text(&target["expr"], "expr")) });
            }
        }
        for variable in list(&board["templating"]["list"], "variables") {
            let place = format!("{name}: ${}", text(&variable["name"], "name"));
            if variable["type"] == "query" {
                questions.push(Question { place, query: values(text(&variable["definition"], "definition")) });
            }
        }
    }
    questions
}

fn filled(query: &str) -> String {
    let mut query = query.replace("$__rate_interval", "1m");
    for variable in ["$tenant", "$endpoint", "$worker"] {
        query = query.replace(variable, ".*");
    }
    assert!(!query.contains('$'), "{query} has a variable that nobody knows");
    query
}

/// Turns `label_values(series, label)` into a query for the series that have the label.
fn values(definition: &str) -> String {
    let inner = definition.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
    let (series, label) = inner.and_then(|inner| inner.rsplit_once(", ")).expect("variables are values of labels");
    format!("count by ({label}) ({})", filled(series))
}

#[test]
fn each_board_is_whole() {
    let boards = boards();
    assert_eq!(boards.len(), 4);
    let mut uids = BTreeSet::new();
    for (name, board) in &boards {
        assert_eq!(text(&board["uid"], "uid"), name, "a link to a board names its file");
        assert!(uids.insert(name) && !text(&board["title"], "title").is_empty());
        let mut ids = BTreeSet::new();
        let mut taken = BTreeSet::new();
        for panel in list(&board["panels"], "panels") {
            let title = text(&panel["title"], "title");
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{name}: {title} has an id twice");
            let place = |side: &str| panel["gridPos"][side].as_u64().unwrap();
            assert!(place("x") + place("w") <= 24 && place("w") > 0 && place("h") > 0, "{name}: {title} is too wide");
            for x in place("x")..place("x") + place("w") {
                for y in place("y")..place("y") + place("h") {
                    assert!(taken.insert((x, y)), "{name}: {title} lies on another panel");
                }
            }
        }
        for panel in panels(board) {
            let title = text(&panel["title"], "title");
            text(&panel["description"], "description");
            text(&panel["fieldConfig"]["defaults"]["unit"], &format!("{name}: the unit of {title}"));
            assert!(["stat", "timeseries"].contains(&text(&panel["type"], "type")), "{name}: {title}");
            let refs: BTreeSet<&str> =
                list(&panel["targets"], "targets").iter().map(|target| text(&target["refId"], "refId")).collect();
            assert!(!refs.is_empty() && refs.len() == panel["targets"].as_array().unwrap().len(), "{name}: {title}");
        }
    }
}

#[test]
fn no_board_is_bound_to_one_data_source() {
    for (name, board) in boards() {
        let variables = list(&board["templating"]["list"], "variables");
        assert!(variables.iter().any(|variable| variable["type"] == "datasource" && variable["name"] == "datasource"));
        let chosen = Value::from("${datasource}");
        for panel in panels(&board) {
            let mut sources = vec![&panel["datasource"]["uid"]];
            sources.extend(panel["targets"].as_array().unwrap().iter().map(|target| &target["datasource"]["uid"]));
            assert!(sources.iter().all(|uid| **uid == chosen), "{name}: {}", panel["title"]);
        }
        for variable in variables.iter().filter(|variable| variable["type"] == "query") {
            assert_eq!(variable["datasource"]["uid"], chosen, "{name}: {}", variable["name"]);
        }
    }
}

#[test]
fn boards_ask_for_metrics_that_there_are() {
    let metrics = read("docs/reference/metrics.md");
    for Question { place, query } in questions() {
        let unknown: Vec<String> = named(&query).into_iter().filter(|name| !is_documented(name, &metrics)).collect();
        assert!(unknown.is_empty(), "{place}: {unknown:?}");
    }
}
