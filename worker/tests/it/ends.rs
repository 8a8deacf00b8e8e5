//! How attempts end; the end of a runner never ends the worker.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use stokehold_protocol::endpoint::EndpointSpec;
use stokehold_protocol::job::ErrorCode;

use crate::stage::{Setup, Stage, error, pack, result, spec};

#[tokio::test(flavor = "multi_thread")]
async fn a_loaded_runner_is_used_again_and_only_the_first_job_pays_for_it() {
    let stage = Stage::single().await;
    let (first, second) = (stage.end_of("fine").await, stage.end_of("fine").await);
    assert_eq!(result(&first)["pid"], result(&second)["pid"]);
    assert!(first.timing.boot_ms > 0, "{:?}", first.timing);
    let paid = (second.timing.env_ms, second.timing.boot_ms, second.timing.load_ms);
    assert_eq!(paid, (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_sees_nothing_of_its_workers_environment_but_what_is_meant_for_it() {
    let stage = Stage::single().await;
    let environment = result(&stage.end_of("environment").await);
    assert_eq!(environment["CUDA_VISIBLE_DEVICES"], "");
    assert_ne!(environment["HOME"], std::env::var("HOME").unwrap_or_default());
    let leaked = |name: &&String| ["CARGO", "STOKE", "CONTAINER"].iter().any(|prefix| name.starts_with(prefix));
    assert_eq!(environment.as_object().unwrap().keys().find(leaked), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_raises_fails_its_job_and_goes_on() {
    let stage = Stage::single().await;
    let pid = result(&stage.end_of("fine").await)["pid"].clone();
    let raised = stage.end_of("throw").await;
    let error = error(&raised, ErrorCode::HandlerError);
    assert_eq!((error.class.as_str(), error.message.as_str()), ("LookupError", "no such thing"));
    assert!(error.traceback.as_ref().unwrap().contains("endpoint.py"));
    assert!(error.stderr.as_ref().unwrap().contains("about to raise"));
    assert_eq!(result(&stage.end_of("fine").await)["pid"], pid);
}

/// Runs one job that ends its runner, then one that shows that a new runner was started.
async fn ends_the_runner(how: &str, code: ErrorCode) -> stokehold_protocol::job::JobError {
    let stage = Stage::single().await;
    let pid = result(&stage.end_of("fine").await)["pid"].clone();
    let ended = stage.end_of(how).await;
    assert_ne!(result(&stage.end_of("fine").await)["pid"], pid);
    error(&ended, code).clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_exits_fails_its_job_with_the_exit_code() {
    let error = ends_the_runner("leave", ErrorCode::RunnerExited).await;
    assert!(error.message.contains('3'), "{error:?}");
    assert!(error.stderr.unwrap().contains("about to exit"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_segfaults_fails_its_job_with_the_signal_and_where() {
    let error = ends_the_runner("segfault", ErrorCode::RunnerCrashed).await;
    assert_eq!(error.class, "SIGSEGV");
    assert!(error.stderr.unwrap().contains("endpoint.py"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_floods_its_log_is_stopped() {
    let error = ends_the_runner("flood", ErrorCode::LogFlood).await;
    assert!(error.message.contains("16 MiB"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_writes_into_its_runners_wire_fails_its_job_and_costs_its_runner() {
    let (babbled, overfilled) =
        tokio::join!(ends_the_runner("babble", ErrorCode::Protocol), ends_the_runner("overfill", ErrorCode::Protocol));
    assert!(babbled.message.contains("a frame announces a header of 4294967295 bytes"), "{babbled:?}");
    assert!(overfilled.message.contains("is not a valid message"), "{overfilled:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_stands_still_is_missed_and_killed() {
    let error = ends_the_runner("freeze", ErrorCode::Protocol).await;
    assert!(error.message.contains("no heartbeat for"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_ignores_signals_and_holds_the_interpreter_is_killed_at_its_timeout() {
    let stage = Stage::single().await;
    let job = stage.gateway.submit("plain", &json!({"how": "spin"}), Duration::from_millis(200));
    let pid: i32 = stage.gateway.first_log(&job).await.trim().parse().unwrap();
    error(&stage.gateway.end(&job).await, ErrorCode::Timeout);
    assert!(kill(Pid::from_raw(pid), None).is_err(), "its process is gone");
    result(&stage.end_of("fine").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_is_killed_fails_its_job_only() {
    let stage = Stage::single().await;
    let job = stage.submit("stubborn");
    let pid: i32 = stage.gateway.first_log(&job).await.trim().parse().unwrap();
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    let end = stage.gateway.end(&job).await;
    assert_eq!(error(&end, ErrorCode::RunnerCrashed).class, "SIGKILL");
    assert_ne!(result(&stage.end_of("fine").await)["pid"], pid);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_time_is_up_is_cancelled_and_its_runner_lives() {
    let stage = Stage::single().await;
    let pid = result(&stage.end_of("fine").await)["pid"].clone();
    let job = stage.gateway.submit("plain", &json!({"how": "wait", "path": "/none"}), Duration::from_millis(200));
    let end = stage.gateway.end(&job).await;
    assert!(error(&end, ErrorCode::Timeout).message.contains("0.2 s"));
    assert_eq!(result(&stage.end_of("fine").await)["pid"], pid);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_time_is_up_and_will_not_stop_costs_its_runner() {
    let stage = Stage::single().await;
    let pid = result(&stage.end_of("fine").await)["pid"].clone();
    let job = stage.gateway.submit("plain", &json!({"how": "stubborn"}), Duration::from_millis(200));
    error(&stage.gateway.end(&job).await, ErrorCode::Timeout);
    assert_ne!(result(&stage.end_of("fine").await)["pid"], pid);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_setup_that_raises_fails_the_job_with_its_words() {
    let stage = Stage::single().await;
    let end = stage.gateway.end(&stage.submit_to("broken", json!({}))).await;
    let error = error(&end, ErrorCode::SetupFailed);
    assert_eq!((error.class.as_str(), error.message.as_str()), ("OSError", "no weights here"));
}

#[tokio::test(flavor = "multi_thread")]
async fn requirements_that_cannot_be_met_fail_the_job_with_uvs_words() {
    let variables = vec![("STOKE_SLOTS", "1".to_owned()), ("STOKE_PACKAGE_INDEXES", "http://127.0.0.1:9".to_owned())];
    let stage = Stage::with(Setup { variables, ..Setup::default() }).await;
    let hash = "0".repeat(64);
    let lock = format!("missing @ http://127.0.0.1:9/missing-1-py3-none-any.whl --hash=sha256:{hash}\n");
    let spec = EndpointSpec { requirements_lock: lock, ..spec("plain") };
    stage.gateway.deploy("unmet", pack(""), spec);
    let end = stage.gateway.end(&stage.submit_to("unmet", json!({}))).await;
    assert!(error(&end, ErrorCode::EnvironmentFailed).message.contains("missing-1-py3-none-any.whl"));
}

/// Deployed before the API rejected such names: uv never reads it, and the job is not retried elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn requirements_that_name_files_of_the_worker_fail_the_job_unread() {
    let stage = Stage::single().await;
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "JOIN_TOKEN=canary\n").unwrap();
    for option in ["-r", "-c", "--requirement="] {
        let lock = format!("six==1.17.0\n{option} {}\n", secret.path().display());
        let spec = EndpointSpec { requirements_lock: lock, ..spec("plain") };
        stage.gateway.deploy("curious", pack(""), spec);
        let end = stage.gateway.end(&stage.submit_to("curious", json!({}))).await;
        let said = &error(&end, ErrorCode::EnvironmentFailed).message;
        assert!(said.contains("line 2: ") && said.contains("is not allowed in a lock"), "{said}");
        assert!(!said.contains("canary"), "{said}");
    }
}

/// Neither counts as an infrastructure error, which would be retried ten times.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_package_is_the_deployers_failure() {
    let stage = Stage::single().await;
    stage.gateway.deploy("torn", b"not an archive".to_vec(), spec("plain"));
    let end = stage.gateway.end(&stage.submit_to("torn", json!({}))).await;
    assert!(error(&end, ErrorCode::EnvironmentFailed).message.contains("cannot unpack the package"));

    stage.gateway.deploy("swapped", pack("# in the cache of no other test"), spec("plain"));
    stage.gateway.swap_package("swapped", pack("# other"));
    let end = stage.gateway.end(&stage.submit_to("swapped", json!({}))).await;
    assert!(error(&end, ErrorCode::EnvironmentFailed).message.contains("differs from the deployed one"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_was_deleted_is_the_deployers_failure() {
    let stage = Stage::single().await;
    stage.gateway.undeploy("gone");
    let end = stage.gateway.end(&stage.submit_to("gone", json!({}))).await;
    assert_eq!(error(&end, ErrorCode::EnvironmentFailed).message, "as the test wants it");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_async_runner_takes_as_many_runs_at_once_as_it_says() {
    let setup = Setup { variables: vec![("STOKE_SLOTS", "3".to_owned())], ..Setup::default() };
    let stage = Stage::with(setup).await;
    let jobs: Vec<_> = (0..3).map(|_| stage.submit_to("together", json!({"runs": 3}))).collect();
    for job in &jobs {
        assert_eq!(result(&stage.gateway.end(job).await), Value::from(3));
    }
}

/// Each ends only when all four are running.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_takes_one_slot_however_many_runs_it_takes_at_once() {
    let stage = Stage::single().await;
    let jobs: Vec<_> = (0..4).map(|_| stage.submit_to("together", json!({"runs": 4}))).collect();
    for job in &jobs {
        assert_eq!(result(&stage.gateway.end(job).await), Value::from(4));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_is_free_is_filled_while_the_others_are_busy() {
    let setup = Setup { variables: vec![("STOKE_SLOTS", "4".to_owned())], ..Setup::default() };
    let stage = Stage::with(setup).await;
    // Three that never end: they wait for one more than will come.
    let busy: Vec<_> = (0..3).map(|_| stage.submit_to("together", json!({"runs": 4}))).collect();
    stage.gateway.until("three leases", |seen| (seen.extended.len() == busy.len()).then_some(())).await;
    result(&stage.end_of("fine").await);
}
