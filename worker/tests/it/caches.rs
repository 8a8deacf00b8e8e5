//! Caches between jobs and between workers.

use serde_json::json;
use stokehold_protocol::endpoint::EndpointSpec;
use stokehold_protocol::job::ErrorCode;

use crate::stage::{Setup, Stage, error, pack, result, spec};

#[tokio::test(flavor = "multi_thread")]
async fn a_package_is_fetched_once_for_all_workers() {
    // A unique source, so that no other run of this test has fetched it.
    let source = format!("{}\n# {}", include_str!("handlers/plain.py"), stokehold_protocol::nonce());
    for fetched in [1, 0] {
        let stage = Stage::single().await;
        stage.gateway.deploy("fresh", pack(&source), spec("plain"));
        result(&stage.gateway.end(&stage.submit_to("fresh", json!({"how": "fine"}))).await);
        assert_eq!(stage.gateway.seen().fetched, fetched);
    }
}

/// Not an infrastructure error, which would be retried ten times, each time with a new download.
#[tokio::test(flavor = "multi_thread")]
async fn a_package_that_unpacks_to_too_much_fails_its_jobs_for_good_with_the_reason() {
    let variables = vec![("STOKE_PACKAGE_BYTES", "1000000".to_owned())];
    let stage = Stage::with(Setup { variables, ..Setup::default() }).await;
    let zeros = format!("# {}\n# {}", "0".repeat(2_000_000), stokehold_protocol::nonce());
    stage.gateway.deploy("large", pack(&zeros), spec("plain"));
    for _ in 0..2 {
        let end = stage.gateway.end(&stage.submit_to("large", json!({}))).await;
        let message = &error(&end, ErrorCode::EnvironmentFailed).message;
        assert!(
            message.contains("larger than this worker's limit of 1.0 MB") && message.contains("STOKE_PACKAGE_BYTES"),
            "{message}"
        );
    }
    assert_eq!(stage.gateway.seen().fetched, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_that_clash_run_side_by_side() {
    let setup = Setup { variables: vec![("STOKE_SLOTS", "2".to_owned())], ..Setup::default() };
    let stage = Stage::with(setup).await;
    let source = "
import six
from stokehold import endpoint

@endpoint(name='six')
def version() -> str:
    return six.__version__
";
    let mut jobs = Vec::new();
    for (name, version) in [("old", "1.16.0"), ("new", "1.17.0")] {
        let requirements_lock = format!("six=={version}\n");
        stage.gateway.deploy(name, pack(source), EndpointSpec { requirements_lock, ..spec("version") });
        jobs.push((version, stage.submit_to(name, json!({}))));
    }
    for (version, job) in jobs {
        assert_eq!(result(&stage.gateway.end(&job).await), version);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_runners_make_room_for_others() {
    let variables = vec![("STOKE_SLOTS", "1".to_owned()), ("STOKE_MAX_LOADED", "1".to_owned())];
    let stage = Stage::with(Setup { variables, ..Setup::default() }).await;
    result(&stage.end_of("fine").await);
    result(&stage.gateway.end(&stage.submit_to("together", json!({"runs": 1}))).await);
    stage.gateway.until("one loaded model", |seen| (seen.status.loaded == ["together@1"]).then_some(())).await;
}
