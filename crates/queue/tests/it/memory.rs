use stokehold_queue::{Clock, ManualClock};
use stokehold_queue_model::MemoryQueue;

use crate::conformance::{LEASE_MS, START_MS};

async fn fresh() -> (MemoryQueue, ManualClock) {
    let clock = ManualClock::new(START_MS);
    (MemoryQueue::new(Clock::Manual(clock.clone()), LEASE_MS), clock)
}

mod conformance {
    crate::conformance::cases!(crate::memory::fresh);
}
