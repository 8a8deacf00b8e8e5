use crate::prometheus::promtool;
use crate::{is_documented, named, read, root};

const RULES: &str = "deploy/prometheus/rules/stokehold.yml";
const TESTS: &str = "deploy/prometheus/tests/stokehold.yml";

/// The alerts, in order.
fn alerts() -> Vec<String> {
    let rules = read(RULES);
    rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).map(str::to_owned).collect()
}

#[test]
fn prometheus_takes_its_settings_and_the_rules() {
    let folder = root().join("deploy/prometheus");
    promtool(&["check", "config", "--syntax-only", "prometheus.yml"], &folder);
    promtool(&["check", "rules", "rules/stokehold.yml"], &folder);
}

#[test]
fn each_alert_fires_when_it_should_and_not_when_it_nearly_should() {
    promtool(&["test", "rules", "tests/stokehold.yml"], &root().join("deploy/prometheus"));
    let tests = read(TESTS);
    let cases: Vec<&str> = tests.split("\n  - name: ").skip(1).collect();
    assert!(alerts().len() >= 20, "{:?}", alerts());
    for alert in alerts() {
        let of_alert: Vec<&&str> = cases.iter().filter(|case| case.starts_with(&format!("'{alert}:"))).collect();
        assert!(of_alert.iter().any(|case| case.contains("value: 1")), "{alert} is not tried where it fires");
        assert!(of_alert.iter().any(|case| case.contains("exp_samples: []")), "{alert} is not tried where it is quiet");
    }
}

#[test]
fn each_alert_has_words_and_a_place_in_the_runbook() {
    let (rules, runbook) = (read(RULES), read("docs/how-to/runbook.md"));
    for (alert, rule) in alerts().into_iter().zip(rules.split("- alert: ").skip(1)) {
        for part in ["severity: ", "summary: ", "description: "] {
            assert!(rule.contains(part), "{alert} has no {part}");
        }
        let anchor = format!("docs/how-to/runbook.md#{}\n", alert.to_lowercase());
        assert!(rule.contains(&anchor), "{alert} does not name {anchor}");
        assert!(runbook.contains(&format!("\n## {alert}\n")), "docs/how-to/runbook.md has no {alert}");
    }
    for heading in runbook.lines().filter_map(|line| line.strip_prefix("## Stokehold")) {
        assert!(alerts().contains(&format!("Stokehold{heading}")), "Stokehold{heading} is no alert any more");
    }
}

#[test]
fn rules_and_their_tests_name_metrics_that_there_are() {
    let metrics = read("docs/reference/metrics.md");
    for (file, text) in [(RULES, read(RULES)), (TESTS, read(TESTS))] {
        let unknown: Vec<String> = named(&text).into_iter().filter(|name| !is_documented(name, &metrics)).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }
}
