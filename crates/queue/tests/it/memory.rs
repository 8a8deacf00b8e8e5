use stokehold_queue::{Clock, ManualClock, MemoryQueue};

use crate::conformance::{self, LEASE_MS, START_MS};

#[tokio::test]
async fn memory_keeps_every_promise() {
    conformance::exercise(async || {
        let clock = ManualClock::new(START_MS);
        (MemoryQueue::new(Clock::Manual(clock.clone()), LEASE_MS), clock)
    })
    .await;
}
