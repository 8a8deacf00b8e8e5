//! Real kills at the worst moment.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use stokehold_tests::process::signal;

use crate::api::{self, Api, attempts, outcomes};

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_of_everything_in_the_middle_of_200_jobs_loses_none_and_doubles_none() {
    let (stack, dir) = api::stack(&[]);
    let _ = stack.stoke_ok(&["deploy", &api::handler("slow.py")]);
    let api = Api::of(&stack);
    let ids = api.submit_many("slow", (0..200).map(|n| json!({"n": n, "seconds": 0.02}))).await;
    let early = api.ended(&ids[20]).await;
    stack.kill_everything();

    let stack = api::start(dir.path(), &[]);
    let api = Api::of(&stack);
    for (n, id) in ids.iter().enumerate() {
        let job = api.ended(id).await;
        assert_eq!(job["state"], "succeeded", "{job}");
        assert_eq!(job["result"]["n"], n);
        assert_eq!(outcomes(&job).iter().filter(|outcome| **outcome == "succeeded").count(), 1, "{job}");
    }
    assert_eq!(
        api.get(&format!("/v1/jobs/{}", ids[20])).await,
        with_url(early, &stack.url),
        "an ended job is as it was"
    );
}

/// Replaces the port in `result_url`, because the stack came back on another port.
fn with_url(mut job: Value, url: &str) -> Value {
    job["result_url"] = format!("{url}/v1/jobs/{}/result", job["id"].as_str().unwrap()).into();
    job
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_survives_the_death_of_everything() {
    let (stack, dir) = api::stack(&[]);
    let _ = stack.stoke_ok(&["deploy", &api::handler("slow.py")]);
    let id = Api::of(&stack).submit("slow", json!({"n": 7})).await;
    assert_eq!(Api::of(&stack).ended(&id).await["state"], "succeeded");
    stack.kill_everything();
    let stack = api::start(dir.path(), &[]);
    let job: Value = serde_json::from_str(&stack.stoke_ok(&["get", &id, "--json"])).unwrap();
    assert_eq!((&job["state"], &job["result"]["n"]), (&Value::from("succeeded"), &Value::from(7)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_outlives_its_runner() {
    let (stack, _dir) = api::stack(&[]);
    let _ = stack.stoke_ok(&["deploy", &api::handler("slow.py")]);
    let api = Api::of(&stack);
    // Warm, so that the handler runs soon after the lease of the next job.
    let warm = api.submit("slow", json!({"n": 0})).await;
    api.ended(&warm).await;
    let id = api.submit("slow", json!({"n": 1, "seconds": 1.0})).await;
    api.running(&id, 1).await;
    for pid in stack.runners() {
        signal(pid, Signal::SIGKILL);
    }
    let job = api.ended(&id).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    assert_eq!(outcomes(&job), ["failed", "succeeded"], "{job}");
    assert_eq!(attempts(&job)[0]["error"]["code"], "runner_crashed", "{job}");
    assert_eq!(attempts(&job)[0]["error"]["class"], "SIGKILL", "{job}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_outlives_its_worker() {
    let (stack, _dir) = api::stack(&["--workers", "0"]);
    let _ = stack.stoke_ok(&["deploy", &api::handler("slow.py")]);
    let api = Api::of(&stack);
    let doomed = stack.start_worker("doomed", &[]);
    let id = api.submit("slow", json!({"n": 1, "seconds": 1.0})).await;
    api.running(&id, 1).await;
    // If the worker were killed before it has taken the lease, the lease would go back.
    while doomed.runners().is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    signal(doomed.pid(), Signal::SIGKILL);
    let _saviour = stack.start_worker("saviour", &[]);
    let job = api.ended(&id).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    assert_eq!(outcomes(&job), ["lost", "succeeded"], "{job}");
    assert_ne!(attempts(&job)[0]["worker_id"], attempts(&job)[1]["worker_id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_jobs_of_a_worker_that_stoke_dev_has_seen_die_do_not_wait_for_its_lease() {
    let dir = tempfile::tempdir().unwrap();
    let stack = api::start_with(dir.path(), &[], &[("STOKE_LEASE_MS", "300000")]);
    let _ = stack.stoke_ok(&["deploy", &api::handler("slow.py")]);
    let api = Api::of(&stack);
    let id = api.submit("slow", json!({"n": 1, "seconds": 2.0})).await;
    api.running(&id, 1).await;
    // If the worker were killed before it has taken the lease, the lease would go back.
    while stack.runners().is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let killed = std::time::Instant::now();
    stack.workers().into_iter().for_each(|pid| signal(pid, Signal::SIGKILL));
    let job = api.ended(&id).await;
    assert_eq!(outcomes(&job), ["lost", "succeeded"], "{job}");
    assert!(killed.elapsed().as_secs() < 60, "{:?}", killed.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn stoke_dev_starts_its_redis_again_when_that_dies() {
    let (stack, _dir) = api::stack(&[]);
    let _ = stack.stoke_ok(&["deploy", &api::handler("slow.py")]);
    let api = Api::of(&stack);
    let ids = api.submit_many("slow", (0..60).map(|n| json!({"n": n, "seconds": 0.05}))).await;
    let redis = stack.children("redis.sock");
    if redis.is_empty() {
        // In the other topologies Redis is not the stack's own.
        return;
    }
    redis.into_iter().for_each(|pid| signal(pid, Signal::SIGKILL));
    for (n, id) in ids.iter().enumerate() {
        let job = ended_whatever_happens(&api, id).await;
        assert_eq!((&job["state"], &job["result"]["n"]), (&json!("succeeded"), &json!(n)), "{job}");
    }
    assert!(stack.log().contains("Redis restarted"), "{}", stack.log_tail());
}

/// Does what [`Api::ended`] does, for an API that may be without its Redis for some seconds.
async fn ended_whatever_happens(api: &Api, id: &str) -> Value {
    for _ in 0..600 {
        if let Ok(answer) = api.request("GET", &format!("/v1/jobs/{id}")).send().await
            && let Ok(job) = answer.json::<Value>().await
            && !job["ended_at"].is_null()
            && job["id"] == id
        {
            return job;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("job {id} does not end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_wakes_after_its_lease_is_refused_and_never_seen() {
    let (stack, _dir) = api::stack(&["--workers", "0"]);
    let _ = stack.stoke_ok(&["deploy", &api::handler("slow.py")]);
    let api = Api::of(&stack);
    let sleeper = stack.start_worker("sleeper", &[]);
    // Warm, so that the next job is inside the handler soon after its lease.
    let warm = api.submit("slow", json!({"n": 0})).await;
    let sleeper_pid = api.ended(&warm).await["result"]["pid"].clone();
    let id = api.submit("slow", json!({"n": 1, "seconds": 1.0})).await;
    api.running(&id, 1).await;
    // Only the worker is stopped; its runner continues and finishes a job that its worker no longer holds.
    signal(sleeper.pid(), Signal::SIGSTOP);
    let _other = stack.start_worker("other", &[]);
    let job = api.ended(&id).await;
    assert_eq!(outcomes(&job), ["lost", "succeeded"], "{job}");
    assert_ne!(job["result"]["pid"], sleeper_pid, "{job}");
    assert!(!sleeper.log().contains("stale_fence"));
    signal(sleeper.pid(), Signal::SIGCONT);
    // Its report or its heartbeat is refused, or it has noticed its own silence, whichever comes first; the test below
    // shows that the gateway refuses it. Its log is a file: nothing signals a new line.
    let gives_up = || ["stale_fence", "lease lost"].iter().any(|words| sleeper.log().contains(words));
    for _ in 0..2_000 {
        if gives_up() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(gives_up(), "{}", sleeper.log());
    assert_eq!(api.get(&format!("/v1/jobs/{id}")).await, job, "what the sleeper says changes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_under_a_lease_that_ran_out_is_answered_stale_fence() {
    let (stack, _dir) = api::stack(&["--workers", "0"]);
    let _ = stack.stoke_ok(&["deploy", &api::handler("slow.py")]);
    let api = Api::of(&stack);
    let id = api.submit("slow", json!({"n": 1})).await;
    // The late worker is this test: it leases the job, sends nothing while another worker runs it, then reports its own
    // result.
    let http = reqwest::Client::new();
    let post = async |route: &str, token: &str, body: Value| -> Value {
        let request = http.post(format!("{}/worker/v1/{route}", stack.url)).bearer_auth(token).json(&body);
        request.send().await.unwrap().error_for_status().unwrap().json().await.unwrap()
    };
    let made = stack.stoke_ok(&["token", "create", "--kind", "join", "--name", "late", "--json"]);
    let join_token = serde_json::from_str::<Value>(&made).unwrap()["token"].as_str().unwrap().to_owned();
    let join = json!({"protocol": 1, "release": "test", "name": "late", "slots": 1, "gpus": []});
    let joined = post("join", &join_token, join).await;
    let token = joined["token"].as_str().unwrap();
    let leased = post("lease", token, json!({"want": 1, "reach_gib": 0, "wait_ms": 0})).await;
    let lease = &leased["leases"][0];
    assert_eq!(lease["job_id"], id.as_str(), "{leased}");

    let _other = stack.start_worker("other", &[]);
    let job = api.ended(&id).await;
    assert_eq!(outcomes(&job), ["lost", "succeeded"], "{job}");
    let late = json!({"job_id": id, "fence": lease["fence"], "outcome": "succeeded", "result": "too late"});
    let answer = post("finish", token, json!({"finish": [late]})).await;
    assert_eq!(answer["finished"], json!(["stale_fence"]), "{answer}");
    assert_eq!(api.get(&format!("/v1/jobs/{id}")).await, job, "what it said is never seen");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_worker_gives_its_jobs_back_unharmed() {
    let (stack, _dir) = api::stack(&["--workers", "0"]);
    let _ = stack.stoke_ok(&["deploy", &api::handler("slow.py")]);
    let api = Api::of(&stack);
    let leaving = stack.start_worker("leaving", &[("STOKE_DRAIN_GRACE_MS", "200")]);
    let id = api.submit("slow", json!({"n": 1, "seconds": 5.0})).await;
    api.running(&id, 1).await;
    signal(leaving.pid(), Signal::SIGTERM);
    assert!(leaving.wait().success(), "a drained worker exits with 0");
    let _other = stack.start_worker("other", &[]);
    let job = api.ended(&id).await;
    assert_eq!(outcomes(&job), ["released", "succeeded"], "{job}");
}
