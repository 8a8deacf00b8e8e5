//! A future that is dropped, or set aside, when it has been polled so often: at an await of its own, each of which
//! gives way once.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// What became of it.
pub(super) enum Killed<T> {
    /// It came to its end, after so many polls.
    Ended(usize, T),
    /// It stands where it stood at this poll. Dropping it kills it.
    At(usize, Pin<Box<dyn Future<Output = T> + Send>>),
}

/// Polls it so often at most.
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
