//! Background duties of a worker: one that panics is started again, and counted.
#![cfg(debug_assertions)]

use std::time::Duration;

use stokehold_metrics::Metrics;
use stokehold_supervise::{Backoff, Supervisor};
use stokehold_worker::metrics;
use tokio::time::timeout;

use crate::stage::{Setup, Stage, result};

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn each_duty_that_panics_is_started_again_and_counted() {
    stokehold_metrics::install(&metrics::catalogues());
    let supervisor = Supervisor::new(Backoff { first: Duration::from_millis(1), max: Duration::from_millis(10) });
    let stage = Stage::with(Setup { supervisor: supervisor.clone(), ..Setup::default() }).await;
    let mut states = supervisor.subscribe();
    // The heartbeat is the last one that is started.
    let all = states.wait_for(|states| states.iter().any(|state| state.name == "heartbeat"));
    let duties = timeout(PATIENCE, all).await.expect("the worker starts its duties").unwrap().clone();
    for duty in duties {
        let name = duty.name;
        supervisor.inject_panics(name, 3);
        let again = states.wait_for(|states| states.iter().any(|state| state.name == name && state.started >= 4));
        drop(timeout(PATIENCE, again).await.unwrap_or_else(|_| panic!("{name} is started again")).unwrap());
        let text = Metrics::default().events();
        for series in [
            format!("stokehold_duty_failures_total{{duty=\"{name}\",kind=\"panic\"}} 3"),
            format!("stokehold_duty_restarts_total{{duty=\"{name}\"}} 3"),
        ] {
            assert!(text.contains(&series), "{series} is not in {text}");
        }
    }
    assert!(result(&stage.end_of("fine").await)["pid"].is_number());
}
