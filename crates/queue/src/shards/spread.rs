//! Calls that go to the shard of each item, or to every shard.

use futures::FutureExt;
use futures::future::{BoxFuture, join_all, try_join_all};

use super::Shards;
use crate::error::Error;
use crate::id::JobId;
use crate::queue::Swept;
use crate::redis_queue::RedisQueue;

impl Shards {
    /// The shard, if there is only one.
    pub(super) fn only(&self) -> Option<&RedisQueue> {
        match self.all() {
            [only] => Some(only),
            _ => None,
        }
    }

    /// The shard of a job; `None` if there is no such shard.
    pub(super) fn holds(&self, id: JobId) -> Option<&RedisQueue> {
        self.all().get(usize::from(id.shard()))
    }

    /// Calls each shard with its own part of `items`, all at once, and puts the answers in order. The answer to an item
    /// of a shard that does not exist is `unknown`.
    pub(super) async fn each<'a, T, A>(
        &'a self,
        items: &'a [T],
        id: impl Fn(&T) -> JobId,
        unknown: A,
        ask: impl Fn(&'a RedisQueue, Vec<T>) -> BoxFuture<'a, Result<Vec<A>, Error>>,
    ) -> Result<Vec<A>, Error>
    where
        T: Clone,
        A: Clone,
    {
        let mut parts: Vec<(Vec<usize>, Vec<T>)> = vec![Default::default(); self.all().len()];
        for (number, item) in items.iter().enumerate() {
            if let Some((numbers, part)) = parts.get_mut(usize::from(id(item).shard())) {
                numbers.push(number);
                part.push(item.clone());
            }
        }
        let mut answers = vec![unknown; items.len()];
        let asked = self.all().iter().zip(parts).filter(|(_, (numbers, _))| !numbers.is_empty());
        let asked = asked.map(|(shard, (numbers, part))| ask(shard, part).map(|said| said.map(|said| (numbers, said))));
        for (numbers, said) in try_join_all(asked).await? {
            for (number, answer) in numbers.into_iter().zip(said) {
                answers[number] = answer;
            }
        }
        Ok(answers)
    }

    /// Calls every shard. A shard that fails does not affect the others, and is called again in the next round.
    pub(super) async fn everywhere<'a, A>(
        &'a self,
        what: &'static str,
        ask: impl Fn(&'a RedisQueue) -> BoxFuture<'a, Result<A, Error>>,
    ) -> Result<Vec<A>, Error> {
        let mut failure = None;
        let mut done = Vec::with_capacity(self.all().len());
        for (shard, outcome) in join_all(self.all().iter().map(ask)).await.into_iter().enumerate() {
            match outcome {
                Ok(answer) => done.push(answer),
                Err(error) => {
                    tracing::warn!(shard, error = &error as &dyn std::error::Error, "a shard failed to {what}");
                    failure = Some(error);
                }
            }
        }
        match failure {
            Some(error) if done.is_empty() => Err(error),
            _ => Ok(done),
        }
    }

    pub(super) async fn sweep<'a>(
        &'a self,
        what: &'static str,
        ask: impl Fn(&'a RedisQueue) -> BoxFuture<'a, Result<Swept, Error>>,
    ) -> Result<Swept, Error> {
        let swept = self.everywhere(what, ask).await?;
        let next_due_ms = swept.iter().filter_map(|swept| swept.next_due_ms).min();
        Ok(Swept { jobs: swept.iter().map(|swept| swept.jobs).sum(), next_due_ms })
    }
}
