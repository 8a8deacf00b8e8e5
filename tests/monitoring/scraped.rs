//! The boards' queries, sent to a Prometheus that scrapes a stack with work, rented instances and a worker with a GPU.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use stokehold_nvml::{FakeGpu, StandIn};
use stokehold_tests::redis_server::free_port;
use stokehold_tests::stack::{Stack, StackOptions};

use crate::boards::{Question, questions};
use crate::prometheus::{Prometheus, program, run_promtool};
use crate::root;

/// Metrics that a healthy stack like this one does not export, and the reasons. Queries for them are tested with the
/// series defined here: their values from one minute to the next.
const SELDOM: [(&str, &str, &str); 6] = [
    ("stokehold_autoscaler_day_limit_usd", "no budget of a day is set here", "stokehold_autoscaler_day_limit_usd 10"),
    (
        "stokehold_autoscaler_notices",
        "the autoscaler sees all, and lacks nothing",
        "stokehold_autoscaler_notices{kind=\"provider_unreachable vast\"} 1",
    ),
    (
        "stokehold_worker_environment_build_seconds_bucket",
        "the environment is in the cache of who has run this before",
        "stokehold_worker_environment_build_seconds_bucket{outcome=\"built\",le=\"+Inf\"} N",
    ),
    (
        "stokehold_worker_weights_fetched_bytes_total",
        "no endpoint here has weights",
        "stokehold_worker_weights_fetched_bytes_total N",
    ),
    (
        "stokehold_worker_gateway_errors_total",
        "the gateway answers",
        "stokehold_worker_gateway_errors_total{call=\"extend\"} N",
    ),
    (
        "stokehold_autoscaler_spent_today_usd",
        "it is asked for beside the limit, which is not there",
        "stokehold_autoscaler_spent_today_usd 8",
    ),
];

/// Whether a query uses such a rare metric.
fn is_seldom(query: &str) -> bool {
    SELDOM[..5].iter().any(|(metric, _, _)| query.contains(metric))
}

async fn post(stack: &Stack, path: &str, body: &Value) -> Value {
    let http = reqwest::Client::builder().timeout(Duration::from_secs(30)).build().unwrap();
    let answer = http.post(format!("{}{path}", stack.url)).bearer_auth(&stack.token).json(body).send().await.unwrap();
    answer.error_for_status().unwrap().json().await.unwrap()
}

/// A stack with a market to rent from, endpoints that use a part of a GPU, and a budget.
fn stack(folder: &Path) -> Stack {
    let args = ["--fake-vast", "--workers", "0..2"].map(str::to_owned).to_vec();
    let stack = Stack::start(folder, &StackOptions { args, env: Vec::new() });
    let slow = fs::read_to_string(root().join("tests/it/handlers/slow.py")).unwrap();
    let usage =
        r#""usage": {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}"#;
    let slow = slow.replace("os.getpid()}", &format!("os.getpid(), {usage}}}"));
    for (name, body) in [("draw", ""), ("fail", "raise RuntimeError('as asked')")] {
        let code = slow
            .replace("\"slow\"", &format!("{name:?}, vram_gib=6"))
            .replace("    return", &format!("    {body}\n    return"));
        let path = folder.join(format!("{name}.py"));
        fs::write(&path, code).unwrap();
        let _ = stack.stoke_ok(&["deploy", &path.to_string_lossy()]);
    }
    let _ = stack.stoke_ok(&["limit", "set", "default", "--budget-usd-per-day", "5"]);
    stack
}

/// Submits jobs of every priority, of which some fail, and a batch that will not end soon.
async fn load(stack: &Stack, folder: &Path) {
    for priority in ["interactive", "standard", "batch"] {
        let job = |n: u32| json!({"endpoint": "draw", "input": {"n": n, "seconds": 0.2}, "priority": priority});
        post(stack, "/v1/jobs/bulk", &json!({"jobs": (0..10).map(job).collect::<Vec<_>>()})).await;
    }
    let failing = json!({"endpoint": "fail", "input": {"n": 1}, "max_attempts": 1});
    post(stack, "/v1/jobs/bulk", &json!({"jobs": vec![failing; 5]})).await;
    let lines: String = (0..2_000).map(|n| format!("{{\"input\": {{\"n\": {n}, \"seconds\": 0.3}}}}\n")).collect();
    let file = folder.join("lines.jsonl");
    fs::write(&file, lines).unwrap();
    let _ = stack.stoke_ok(&["batch", "submit", &file.to_string_lossy(), "--endpoint", "draw", "--json"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_question_of_the_boards_is_answered_by_a_stack_with_work() {
    let folder = tempfile::tempdir().unwrap();
    let stack = stack(folder.path());
    let card = StandIn::new([FakeGpu::of_mib(24 * 1024)]).unwrap();
    let worker_metrics = format!("127.0.0.1:{}", free_port());
    let _worker = stack.start_worker(
        "desk",
        &[
            ("LD_LIBRARY_PATH", &card.path().to_string_lossy()),
            ("STOKE_METRICS_LISTEN", &worker_metrics),
            ("STOKE_SLOTS", "2"),
        ],
    );
    load(&stack, folder.path()).await;
    let config = json!({
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [root().join("deploy/prometheus/rules/stokehold.yml")],
        "scrape_configs": [
            {"job_name": "stokehold-api", "authorization": {"credentials": stack.token},
             "static_configs": [{"targets": [stack.url.trim_start_matches("http://")]}]},
            {"job_name": "stokehold-worker", "static_configs": [{"targets": [worker_metrics]}]},
        ],
    });
    // JSON is YAML.
    let prometheus = Prometheus::start(folder.path(), &config.to_string()).await;
    let mut unanswered = Vec::new();
    let mut asked = 0;
    for Question { place, query } in questions().into_iter().filter(|question| !is_seldom(&question.query)) {
        asked += 1;
        if !prometheus.finds(&query).await {
            unanswered.push(format!("{place}: {query}"));
            // The remaining metrics are likely to exist by now, or never.
            assert!(unanswered.len() < 4, "{unanswered:#?}\n{}", stack.log_tail());
        }
    }
    assert!(unanswered.is_empty(), "{unanswered:#?}\n{}", stack.log_tail());
    assert!(asked > 80, "{asked} questions were asked");

    let http = reqwest::Client::new();
    let told = http.get(format!("{}/metrics", stack.url)).bearer_auth(&stack.token).send().await.unwrap();
    let told = told.text().await.unwrap();
    lint(folder.path(), "api.txt", &told);
    let worker = http.get(format!("http://{worker_metrics}/metrics")).send().await.unwrap();
    lint(folder.path(), "worker.txt", &worker.text().await.unwrap());
    let everybody = http.get(format!("{}/metrics", stack.url)).send().await.unwrap().text().await.unwrap();
    assert!(told.contains("endpoint=\"draw\"") && !everybody.contains("draw"), "endpoints' names are for operators");
}

/// Checks that `promtool check metrics` reports nothing.
fn lint(folder: &Path, name: &str, text: &str) {
    let file = folder.join(name);
    fs::write(&file, text).unwrap();
    let mut check = Command::new(program("promtool"));
    let checked = check.args(["check", "metrics"]).stdin(fs::File::open(&file).unwrap()).output().unwrap();
    let said = String::from_utf8_lossy(&checked.stderr).into_owned() + &String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success() && said.is_empty(), "{said}");
}

/// `promtool` evaluates the queries in memory. A Prometheus with these samples would need blocks on disk, and allocates
/// 512 MB for each.
#[test]
fn what_asks_for_the_seldom_is_answered_where_it_was() {
    let series: Vec<Value> = SELDOM
        .iter()
        .map(|(metric, why, series)| {
            assert!(!why.is_empty());
            let (name, value) = series.rsplit_once(' ').unwrap();
            assert_eq!(name.split('{').next(), Some(*metric));
            let values = if value == "N" { "0+5x11".to_owned() } else { format!("{value}x11") };
            json!({"series": name, "values": values})
        })
        .collect();
    let seldom: Vec<Question> = questions().into_iter().filter(|question| is_seldom(&question.query)).collect();
    for (metric, _, _) in &SELDOM[..5] {
        assert!(seldom.iter().any(|question| question.query.contains(metric)), "nobody asks for {metric} any more");
    }
    let folder = tempfile::tempdir().unwrap();
    let evaluate = |queries: &[&str]| {
        let answered = json!([{"labels": "{}", "value": 1}]);
        let tests: Vec<Value> = queries
            .iter()
            .map(|query| json!({"expr": format!("count({query}) > bool 0"), "eval_time": "165s", "exp_samples": answered}))
            .collect();
        let file = json!({"tests": [{"interval": "15s", "input_series": series, "promql_expr_test": tests}]});
        // JSON is YAML.
        fs::write(folder.path().join("seldom.yml"), file.to_string()).unwrap();
        run_promtool(&["test", "rules", "seldom.yml"], folder.path())
    };
    let queries: Vec<&str> = seldom.iter().map(|question| question.query.as_str()).collect();
    evaluate(&queries).unwrap_or_else(|error| panic!("{error}"));
    assert!(evaluate(&["stokehold_autoscaler_notices{kind=\"another\"}"]).is_err(), "a query without an answer fails");
}
