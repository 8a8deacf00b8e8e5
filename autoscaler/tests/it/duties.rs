//! Background duties of an autoscaler: one that panics runs again, and is counted.
#![cfg(debug_assertions)]

use std::time::Duration;

use stokehold_autoscaler::live::{Autoscaler, Settings};
use stokehold_autoscaler::metrics;
use stokehold_metrics::Metrics;
use stokehold_planner::Policy;
use stokehold_queue::{RedisConfig, Shards};
use stokehold_supervise::{Backoff, Supervisor};
use stokehold_tests::redis_server::RedisServer;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn each_duty_that_panics_runs_again_and_is_counted() {
    stokehold_metrics::install(&metrics::catalogues());
    let dir = tempfile::tempdir().unwrap();
    let redis = RedisServer::start(dir.path(), &[]);
    let queue = Shards::connect(RedisConfig { url: redis.url(), ..RedisConfig::default() }).await.unwrap();
    let supervisor = Supervisor::new(Backoff { first: Duration::from_millis(1), max: Duration::from_millis(10) });
    let settings = Settings { tick: Duration::from_millis(10), policy: Policy::default(), holder: None };
    let mut autoscaler =
        Autoscaler::new(queue, std::iter::empty().collect(), settings, None).with_supervisor(supervisor.clone());
    let shutdown = CancellationToken::new();
    let injecting = async {
        let mut states = supervisor.subscribe();
        let all = states.wait_for(|states| states.len() == 2 && states.iter().all(|state| state.started > 0));
        let duties = timeout(PATIENCE, all).await.expect("the autoscaler starts its duties").unwrap().clone();
        for duty in duties {
            let name = duty.name;
            supervisor.inject_panics(name, 3);
            for panics in [3, 0] {
                let reached = |panicked: u32| if panics > 0 { panicked >= panics } else { panicked == 0 };
                let reached = states.wait_for(|states| {
                    states.iter().any(|state| state.name == name && reached(state.panicked_in_a_row))
                });
                drop(timeout(PATIENCE, reached).await.unwrap_or_else(|_| panic!("{name}: {panics} panics")).unwrap());
            }
            let text = Metrics::default().events();
            for series in [
                format!("stokehold_duty_failures_total{{duty=\"{name}\",kind=\"panic\"}} 3"),
                format!("stokehold_duty_restarts_total{{duty=\"{name}\"}} 3"),
            ] {
                assert!(text.contains(&series), "{series} is not in {text}");
            }
        }
        shutdown.cancel();
    };
    let (ran, ()) = tokio::join!(autoscaler.run(shutdown.clone()), injecting);
    ran.unwrap();
}
