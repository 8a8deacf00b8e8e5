//! The worker's bearer token. The response to a heartbeat, or a new join, may replace it during other calls.

use tokio::sync::watch;

use crate::secret::Secret;

/// The token that calls carry. Each token has a number, so that a late answer to an old token changes nothing.
pub(super) struct WorkerToken(watch::Sender<State>);

#[derive(Clone)]
struct State {
    number: u64,
    token: Secret,
    is_refused: bool,
}

impl WorkerToken {
    /// No token yet: the worker has not joined.
    pub(super) fn none() -> Self {
        Self(watch::Sender::new(State { number: 0, token: Secret::new(""), is_refused: false }))
    }

    /// The current token and its number.
    pub(super) fn current(&self) -> (u64, Secret) {
        let state = self.0.borrow();
        (state.number, state.token.clone())
    }

    /// Replaces the token after a join.
    pub(super) fn replace(&self, token: Secret) {
        self.0.send_modify(|state| *state = State { number: state.number + 1, token, is_refused: false });
    }

    /// Replaces the token `number` with its successor, unless a join has replaced it already.
    pub(super) fn renew(&self, number: u64, token: Secret) {
        let _ = self.0.send_if_modified(|state| {
            let is_current = state.number == number;
            if is_current {
                *state = State { number: number + 1, token, is_refused: false };
            }
            is_current
        });
    }

    /// Notes that the gateway answered 401 to the token `number`.
    pub(super) fn refuse(&self, number: u64) {
        let _ = self.0.send_if_modified(|state| {
            let is_news = state.number == number && !state.is_refused;
            state.is_refused |= is_news;
            is_news
        });
    }

    /// Waits until the current token is refused.
    pub(super) async fn refused(&self) {
        self.wait_for(|state| state.is_refused).await;
    }

    /// Waits until there is another token than the one with this number.
    pub(super) async fn replaced(&self, number: u64) {
        self.wait_for(|state| state.number != number).await;
    }

    async fn wait_for(&self, condition: impl FnMut(&State) -> bool) {
        // The sender is `self`: the channel cannot be closed meanwhile.
        let _ = self.0.subscribe().wait_for(condition).await;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_late_answer_to_an_old_token_changes_nothing() {
        let token = WorkerToken::none();
        token.replace(Secret::new("wt_1"));
        let (first, _) = token.current();
        token.refuse(first);
        assert!(token.refused().now_or_never().is_some());
        assert!(token.replaced(first).now_or_never().is_none());
        token.replace(Secret::new("wt_2"));
        assert!(token.replaced(first).now_or_never().is_some());
        // Two calls that were sent with the first token are answered now.
        token.refuse(first);
        token.renew(first, Secret::new("wt_1b"));
        assert!(token.refused().now_or_never().is_none());
        let (second, text) = token.current();
        assert_eq!(text.expose(), "wt_2");
        token.renew(second, Secret::new("wt_3"));
        assert_eq!(token.current().1.expose(), "wt_3");
    }
}
