//! Test that docs/reference/metrics.md lists every metric. It is here because only this crate depends on every crate that has
//! metrics.

use std::collections::BTreeMap;
use std::fs;

use stokehold_metrics::Metric;

const BEGIN: &str = "<!-- From here on written by `make bless` from the code. -->\n";

/// The sources of metrics, in the order of the page.
fn reporters() -> [(&'static str, &'static [Metric]); 8] {
    [
        ("Each API replica", stokehold_api::METRICS),
        ("The installation, exported by one API replica", stokehold_api::FIGURES),
        ("Each autoscaler", stokehold_autoscaler::metrics::METRICS),
        ("The leading autoscaler", stokehold_autoscaler::metrics::LED),
        ("Each worker", stokehold_worker::metrics::METRICS),
        ("Background duties: API replicas, autoscalers and workers", stokehold_supervise::metrics::METRICS),
        ("Redis clients: API replicas and autoscalers", stokehold_queue::metrics::METRICS),
        ("S3 clients: API replicas", stokehold_objects::metrics::METRICS),
    ]
}

fn table() -> String {
    let mut page = BEGIN.to_owned();
    for (reporter, metrics) in reporters() {
        page.push_str(&format!("\n## {reporter}\n\n| metric | kind | labels | description |\n|---|---|---|---|\n"));
        for metric in metrics {
            let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
            let (name, kind, help) = (metric.name, metric.kind.as_str(), metric.help);
            page.push_str(&format!("| `{name}` | {kind} | {} | {help} |\n", labels.join(", ")));
        }
    }
    page
}

#[test]
fn metrics_are_documented() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/metrics.md");
    let page = fs::read_to_string(path).unwrap();
    let (head, written) = page.split_once(BEGIN).expect("the page marks the start of its generated part");
    let expected = table();
    if std::env::var_os("BLESS").is_some() {
        fs::write(path, format!("{head}{expected}")).unwrap();
        return;
    }
    assert!(format!("{BEGIN}{written}") == expected, "docs/reference/metrics.md is out of date: run `make bless`");
}

#[test]
fn no_metric_is_reported_by_two() {
    let mut known: BTreeMap<&str, &str> = BTreeMap::new();
    for (reporter, metric) in
        reporters().iter().flat_map(|(reporter, metrics)| metrics.iter().map(move |it| (reporter, it)))
    {
        let before = known.insert(metric.name, reporter);
        assert_eq!(before, None, "{} is reported by {reporter} too", metric.name);
        assert!(metric.name.starts_with("stokehold_") && metric.help.ends_with('.'), "{metric:?}");
    }
}
