//! Tests of how attempts end.

use stokehold_protocol::gateway::{FinishOutcome, LeaseRef};
use stokehold_protocol::job::ErrorCode;
use stokehold_protocol::{Fence, JobId};
use stokehold_supervise::guard_beside;

use super::End;

#[tokio::test]
async fn an_attempt_that_panics_is_reported_and_costs_no_attempt_of_the_handlers() {
    let lease = LeaseRef { job_id: JobId::new(0), fence: Fence("1.x".to_owned()) };
    let ran = guard_beside("attempt", async { panic!("planned") }).await;
    let End::Report(report) = ran.unwrap_or_else(|panic| End::panicked(&lease, panic.message())) else {
        panic!("no report")
    };
    let FinishOutcome::Failed { error } = &report.outcome else { panic!("{report:?}") };
    assert_eq!((error.code, &*error.message), (ErrorCode::Infra, "the worker panicked: planned"));
    assert_eq!((report.job_id, &report.fence), (lease.job_id, &lease.fence));
}
