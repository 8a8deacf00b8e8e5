//! One subscription per replica: what the queue says without being asked, handed to whoever waits for it.

use stokehold_queue::queue::Signal;
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
            Some(Signal::Missed) => {
                app.waits.tell_all();
                app.pulls.wake_all();
            }
            None => {
                tracing::error!("the queue's signals ended; waits and pulls go on with looking every few seconds");
                return;
            }
        }
    }
}
