//! A future that is dropped, or suspended, after a number of polls: at one of its awaits, each of which yields once.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// The outcome of a limited number of polls.
pub(super) enum Killed<T> {
    /// The future completed: the number of polls, and its output.
    Ended(usize, T),
    /// The future is suspended: the number of polls, and the future. Dropping it kills it.
    At(usize, Pin<Box<dyn Future<Output = T> + Send>>),
}

/// Polls a future at most `polls` times.
pub(super) async fn killed_after<T>(polls: usize, future: Pin<Box<dyn Future<Output = T> + Send>>) -> Killed<T> {
    let mut future = Some(future);
    let mut polled = 0;
    poll_fn(move |context| {
        let Some(mut going) = future.take() else { return Poll::Pending };
        if polled >= polls {
            return Poll::Ready(Killed::At(polled, going));
        }
        polled += 1;
        match going.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Killed::Ended(polled, output)),
            Poll::Pending => {
                future = Some(going);
                Poll::Pending
            }
        }
    })
    .await
}
