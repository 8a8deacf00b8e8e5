//! Tests on paused time.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

const MS: Duration = Duration::from_millis(1);
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(10), max: Duration::from_millis(40) };

/// What a round does.
#[derive(Clone, Copy)]
enum Act {
    Work,
    Panic,
    Fail,
    Hang,
}

/// Acts in each round as its script says.
struct Scripted {
    round: u32,
    script: fn(u32) -> Act,
}

impl Duty for Scripted {
    const NAME: &'static str = "scripted";
    const ROUND_TIMEOUT: Duration = MS;
    const RETRY_DELAY: Duration = MS;

    async fn round(&mut self) -> Result<Duration, BoxError> {
        self.round += 1;
        match (self.script)(self.round) {
            Act::Work => Ok(MS),
            Act::Panic => panic!("round {}", self.round),
            Act::Fail => Err("no".into()),
            Act::Hang => std::future::pending().await,
        }
    }
}

/// Runs a script until this number of rounds have started. Returns the time that took, and the supervisor then.
async fn run(script: fn(u32) -> Act, rounds: u64) -> (Duration, Supervisor) {
    let (supervisor, shutdown) = (Supervisor::new(BACKOFF), CancellationToken::new());
    let begun = Instant::now();
    let mut states = supervisor.subscribe();
    let running = supervisor.run_until_shutdown(Scripted { round: 0, script }, shutdown.clone());
    let watching = async {
        states.wait_for(|states| states[0].started >= rounds).await.unwrap();
        shutdown.cancel();
        begun.elapsed()
    };
    let ((), took) = tokio::join!(running, watching);
    (took, supervisor)
}

#[tokio::test(start_paused = true)]
async fn a_duty_that_panics_is_restarted_after_its_backoff() {
    let (took, supervisor) = run(|round| if round <= 3 { Act::Panic } else { Act::Work }, 6).await;
    assert_eq!(took, (10 + 20 + 40 + 2) * MS);
    assert!(supervisor.failing().is_empty() && !supervisor.blocks_readiness());
}

#[tokio::test(start_paused = true)]
async fn a_duty_that_panics_repeatedly_is_failing_until_it_works() {
    let (took, supervisor) = run(|_| Act::Panic, 8).await;
    assert_eq!(took, (10 + 20 + 5 * 40) * MS);
    assert_eq!((supervisor.failing(), supervisor.blocks_readiness()), (vec!["scripted"], true));
    let (_, supervisor) = run(|round| if round <= 8 { Act::Panic } else { Act::Work }, 11).await;
    assert_eq!((supervisor.failing(), supervisor.blocks_readiness()), (vec![], false));
}

#[tokio::test(start_paused = true)]
async fn a_duty_that_hangs_or_fails_is_failing_and_does_not_block_readiness() {
    for (script, took_ms) in [((|_| Act::Hang) as fn(u32) -> Act, 14), (|_| Act::Fail, 7)] {
        let (took, supervisor) = run(script, 8).await;
        assert_eq!((supervisor.failing(), supervisor.blocks_readiness()), (vec!["scripted"], false));
        assert_eq!(took, took_ms * MS);
    }
}

/// Waits for an hour before its first round.
struct Slow;

impl Duty for Slow {
    const NAME: &'static str = "slow";
    const ROUND_TIMEOUT: Duration = MS;
    const INITIAL_DELAY: Duration = Duration::from_secs(3600);
    const BLOCKS_READINESS: bool = false;

    async fn round(&mut self) -> Result<Duration, BoxError> {
        Ok(Self::INITIAL_DELAY)
    }
}

#[cfg(debug_assertions)]
#[tokio::test(start_paused = true)]
async fn injected_panics_end_the_wait_and_not_the_backoff() {
    let (supervisor, shutdown) = (Supervisor::new(BACKOFF), CancellationToken::new());
    let mut states = supervisor.subscribe();
    let running = tokio::spawn(supervisor.run_until_shutdown(Slow, shutdown.clone()));
    let begun = Instant::now();
    supervisor.inject_panics("other", 9);
    supervisor.inject_panics("slow", 2);
    states.wait_for(|states| states[0].panicked_in_a_row == 2).await.unwrap();
    assert_eq!(begun.elapsed(), 10 * MS);
    states.wait_for(|states| states[0].panicked_in_a_row == 0).await.unwrap();
    assert_eq!((begun.elapsed(), states.borrow()[0].started), (30 * MS, 3));
    shutdown.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_task_that_panics_is_restarted_until_it_ends() {
    let (supervisor, starts, begun) = (Supervisor::new(BACKOFF), AtomicU32::new(0), Instant::now());
    let task = supervisor.restart_on_panic("tested", || async {
        match starts.fetch_add(1, Ordering::Relaxed) {
            0..=3 => panic!("planned"),
            4 => {
                sleep(LONG_RUN + MS).await;
                panic!("planned, after a long run")
            }
            start => start,
        }
    });
    assert_eq!(task.await, 5);
    assert_eq!(begun.elapsed(), LONG_RUN + (1 + 10 + 20 + 40 + 40 + 10) * MS);
    assert_eq!(supervisor.states()[0].started, 6);
}

#[cfg(debug_assertions)]
#[tokio::test(start_paused = true)]
async fn an_injected_panic_interrupts_a_task() {
    let supervisor = Supervisor::new(BACKOFF);
    let mut states = supervisor.subscribe();
    let task = tokio::spawn(supervisor.restart_on_panic("tested", std::future::pending::<()>));
    states.wait_for(|states| states[0].started == 1).await.unwrap();
    supervisor.inject_panics("tested", 1);
    states.wait_for(|states| states[0].started == 2).await.unwrap();
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_loop_of_its_own_gets_the_result_of_each_round() {
    let supervisor = Supervisor::new(BACKOFF);
    let rounds = supervisor.rounds("tested", 5 * MS);
    assert_eq!(rounds.run(async { Ok(7) }).await, Ok(7));
    assert_eq!(rounds.run(async { Err::<(), _>("no".into()) }).await, Err(RoundFailure::Error));
    assert_eq!(rounds.run(std::future::pending::<Result<(), _>>()).await, Err(RoundFailure::Timeout));
    let paused = async || {
        let begun = Instant::now();
        rounds.pause(15 * MS).await;
        begun.elapsed()
    };
    assert_eq!(paused().await, 15 * MS);
    for backoff_ms in [10, 15] {
        assert_eq!(rounds.run::<()>(async { panic!("planned") }).await, Err(RoundFailure::Panic));
        assert_eq!(paused().await, backoff_ms * MS);
    }
    assert_eq!(supervisor.states()[0].failed_in_a_row, 4);
}
