//! Text of handlers, hosts and tenants on the terminal of a user: it may set no title, write no clipboard, move no
//! cursor, hide nothing.

use serde_json::{Value, json};

use crate::api::Api;
use crate::attacks;
use crate::report::{Outcome, Promise, Report};
use crate::stage::{self, Stage, Who};
use crate::worker::Liar;

const SURFACE: &str = "terminal";

/// Control sequences of terminals, and characters that change what is displayed.
const ORDERS: [&str; 34] = [
    "\x1b]0;title\x07",
    "\x1b]2;title\x1b\\",
    "\x1b]52;c;bG9vdA==\x07",
    "\x1b]52;p;bG9vdA==\x1b\\",
    "\x1b]8;;http://evil.example/\x1b\\link\x1b]8;;\x1b\\",
    "\x1b]1337;File=:AAAA\x07",
    "\x1b]777;notify;a;b\x07",
    "\x1b]4;1;?\x07",
    "\x1b[2J",
    "\x1b[3J",
    "\x1b[H",
    "\x1b[1A\x1b[2K",
    "\x1b[6n",
    "\x1b[c",
    "\x1b[21t",
    "\x1b[?1049h",
    "\x1b[?2004h",
    "\x1b[8m",
    "\x1b[5m",
    "\x1bc",
    "\x1bP$q\"p\x1b\\",
    "\x1bPtmux;\x1b\x1b]52;c;eA==\x07\x1b\\",
    "\x1b_Gi=1;AAAA\x1b\\",
    "\x1b^pm\x1b\\",
    "\u{9b}2J",
    "\u{9d}0;title\u{9c}",
    "\u{90}q\u{9c}",
    "\u{85}next",
    "over\rwritten",
    "\x08\x08\x08\x08",
    "\x0e\x0f",
    "\x05\x07",
    "\x7f",
    "\u{202e}desrever\u{202c} \u{2066}a\u{2069} \u{61c}\u{200e}\u{200f}",
];

struct Target {
    stage: Stage,
    jobs: Vec<String>,
}

pub(crate) async fn run(report: &mut Report) {
    let target = Target::start().await;
    attacks!(
        report,
        SURFACE,
        "-",
        Promise::Holds,
        &target,
        [prints_no_orders_of_jobs, prints_no_orders_of_hosts, prints_no_orders_in_json]
    );
}

impl Target {
    async fn start() -> Self {
        let stage = Stage::start(Who::Root, &["--workers", "0"], &[]);
        let all = ORDERS.concat();
        let (status, answer) =
            stage::deploy(&stage.api, &stage::version("loud", json!({"demands": {"min_trust": "community"}}))).await;
        assert_eq!(status, 201, "{answer}");
        let card = json!({"index": 0, "uuid": format!("GPU-{all}"), "name": format!("Card {all}"), "vram_mib": 24_576});
        let says = json!({"name": "host", "gpus": [card], "driver": all, "cuda": all, "release": all});
        // Text that the gateway refuses is never displayed.
        let join = stage.token(&json!({"name": "stranger", "roles": ["worker"], "trust": "community"})).await;
        let liar = match Liar::try_join(&stage, &join, says).await {
            Ok(liar) => liar,
            Err(_) => Liar::join(&stage, "community", json!({"name": "host"})).await,
        };
        let status = json!({"loaded": [all], "running": 1, "gpus": [], "models": [], "host": {"hostname": all}});
        let _ = liar.post("extend", &json!({"leases": [], "status": status})).await;
        let mut jobs = Vec::new();
        for (n, order) in ORDERS.iter().chain([&all.as_str()]).enumerate() {
            jobs.push(Self::job(&stage.api, &liar, n, order).await);
        }
        // Named by tenants, as far as names allow.
        for (path, body) in [
            ("/v1/tokens", json!({"name": all, "user": all, "roles": ["read"]})),
            ("/v1/schedules", json!({"name": all, "cron": "* * * * *", "job": {"endpoint": "loud", "input": all}})),
            (
                "/v1/files",
                json!({"name": all, "size_bytes": 1, "sha256": "0".repeat(64), "content_type": "text/plain"}),
            ),
        ] {
            let _ = stage.api.request("POST", path).json(&body).send().await.unwrap();
        }
        Self { stage, jobs }
    }

    /// Runs a job whose every text is a control sequence: input, metadata, logs, progress, outputs, and its result or
    /// its error.
    async fn job(api: &Api, liar: &Liar<'_>, n: usize, order: &str) -> String {
        let body = json!({"endpoint": "loud", "input": {order: order}, "metadata": {"say": order}, "max_attempts": 1});
        let answer: Value = api.request("POST", "/v1/jobs").json(&body).send().await.unwrap().json().await.unwrap();
        let id = match answer["id"].as_str() {
            Some(id) => id.to_owned(),
            // Metadata may not contain it.
            None => api.submit("loud", json!({order: order})).await,
        };
        let leases = liar.lease(json!({"want": 50})).await;
        let lease = leases.iter().find(|lease| lease["job_id"] == id.as_str()).expect("nobody else is there");
        let of = |more: Value| {
            let mut all = json!({"job_id": id, "fence": lease["fence"]});
            all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            all
        };
        let events = [
            of(json!({"event": "log", "stream": "stdout", "text": format!("{order}\n")})),
            of(json!({"event": "log", "stream": "stderr", "text": format!("{order}\n")})),
            of(json!({"event": "progress", "fraction": 0.5, "message": order})),
            of(json!({"event": "output", "index": 0, "value": order})),
        ];
        let (status, answer) = liar.post("events", &json!({"events": events})).await;
        assert_eq!(status, 204, "{answer}");
        let report = if n.is_multiple_of(2) {
            of(json!({"outcome": "succeeded", "result": {order: [order]}}))
        } else {
            let error =
                json!({"code": "handler_error", "class": order, "message": order, "traceback": order, "stderr": order});
            of(json!({"outcome": "failed", "error": error}))
        };
        let (status, answer) = liar.post("finish", &json!({"finish": [report]})).await;
        assert_eq!((status, answer["finished"][0].as_str()), (200, Some("ok")), "{answer}");
        id
    }

    /// The output of a command on a terminal, without its own colours.
    fn seen(&self, arguments: &[&str]) -> String {
        let command = self.stage.stack.command(arguments);
        let mut look = std::process::Command::new("python3");
        look.arg(stage::own("terminal/look.py")).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            value.map(|value| look.env(name, value));
        }
        let output = look.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
        let hex = seen["bytes"].as_str().unwrap();
        let bytes: Vec<u8> =
            (0..hex.len() / 2).map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap()).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Checks which control sequences a command's output still contains, one attempt for each.
    fn look(&self, outcome: &mut Outcome, arguments: &[&str]) {
        let seen = self.seen(arguments);
        assert!(!seen.trim().is_empty(), "{arguments:?} prints nothing");
        let bare = without_colours(&seen);
        let left: Vec<char> = bare.chars().filter(|letter| is_order(*letter)).collect();
        for order in ORDERS {
            outcome
                .open_if(seen.contains(order) && bare.contains(is_order), || format!("{arguments:?} prints {order:?}"));
        }
        outcome.open_if(!left.is_empty(), || format!("{arguments:?} prints {left:?}"));
    }
}

/// Whether a terminal interprets the character, or displays the following text in another order.
fn is_order(letter: char) -> bool {
    let turns =
        matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || (letter.is_control() && letter != '\n' && letter != '\t')
}

/// Removes colours, and the carriage returns that a terminal's line ends have.
fn without_colours(text: &str) -> String {
    let (mut bare, mut rest) = (String::new(), text.replace("\r\n", "\n"));
    while let Some(at) = rest.find("\x1b[") {
        let (before, after) = rest.split_at(at);
        bare.push_str(before);
        let numbers = after[2..]
            .find(|letter: char| !letter.is_ascii_digit() && letter != ';')
            .map(|end| (&after[2..2 + end], &after[2 + end..]));
        let is_colour = |numbers: &str| numbers.split(';').all(|number| !matches!(number, "5" | "6" | "8"));
        match numbers {
            Some((numbers, next)) if next.starts_with('m') && (is_colour(numbers) || numbers.starts_with("38;5;")) => {
                rest = next[1..].to_owned()
            }
            _ => {
                bare.push('\x1b');
                rest = after[1..].to_owned();
            }
        }
    }
    bare + &rest
}

async fn prints_no_orders_of_jobs(target: &Target) -> Outcome {
    let mut outcome = Outcome::default();
    let step = stage::size(9, 1);
    // The last job has all of them.
    let last = target.jobs.len() - 1;
    for (_, job) in target.jobs.iter().enumerate().filter(|(n, _)| n % step == 0 || *n >= last - 1) {
        target.look(&mut outcome, &["get", job]);
        target.look(&mut outcome, &["logs", job]);
    }
    for arguments in [
        &["list"][..],
        &["job", "dead", "list"],
        &["list", "--limit", "100"],
        &["feedback", "show"],
        &["schedule", "list"],
        &["token", "list"],
        &["audit"],
        &["cost"],
        &["endpoints"],
    ] {
        if target.stage.stack.stoke(arguments).status.success() {
            target.look(&mut outcome, arguments);
        }
    }
    outcome
}

async fn prints_no_orders_of_hosts(target: &Target) -> Outcome {
    let mut outcome = Outcome::default();
    for arguments in [&["worker", "list"][..], &["fleet"], &["top", "--once"], &["doctor"]] {
        target.look(&mut outcome, arguments);
    }
    outcome
}

/// JSON on a terminal is the same document, and contains no unescaped control character.
async fn prints_no_orders_in_json(target: &Target) -> Outcome {
    let mut outcome = Outcome::default();
    let last = target.jobs.last().unwrap();
    for arguments in [
        &["get", last, "--json"][..],
        &["logs", last, "--json"],
        &["worker", "list", "--json"],
        &["list", "--json"],
        &["job", "dead", "list", "--json"],
        &["token", "list", "--json"],
    ] {
        target.look(&mut outcome, arguments);
        let piped = String::from_utf8(target.stage.stack.stoke(arguments).stdout).unwrap();
        let whole = piped.lines().all(|line| serde_json::from_str::<Value>(line).is_ok())
            || serde_json::from_str::<Value>(&piped).is_ok();
        outcome.open_if(!whole, || format!("{arguments:?} prints no JSON"));
    }
    outcome
}
