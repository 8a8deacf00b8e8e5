//! One subscription per replica: what the queue says without being asked, handed to whoever waits for it.

use stokehold_queue::queue::{Signal, Work};
use tokio::sync::mpsc;

use crate::state::App;

/// Hands signals on until the subscription or the replica ends.
pub(crate) async fn run(app: App, mut heard: mpsc::Receiver<Signal>) {
    loop {
        let signal = tokio::select! {
            signal = heard.recv() => signal,
            () = app.shutdown.cancelled() => return,
        };
        match signal {
            Some(Signal::Wake(waiter)) => {
                if !app.pulls.wake(waiter) {
                    app.pulls.hand_on();
                }
            }
            Some(Signal::Job(id)) => app.waits.tell(id),
            Some(Signal::Work(work)) => app.work.tell(work),
            // The autoscaler's business.
            Some(Signal::Unmet) => {}
            Some(Signal::Missed) => {
                app.waits.tell_all();
                Work::ALL.into_iter().for_each(|work| app.work.tell(work));
                app.pulls.wake_all();
            }
            None => {
                tracing::error!("the queue's signals ended; waits and pulls go on with looking every few seconds");
                return;
            }
        }
    }
}
