//! A sorted set like Redis's: members ordered by score, then by the members themselves.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// A score, never NaN: the weights of tenants are above zero.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Score(f64);

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// A sorted set.
#[derive(Debug, Clone)]
pub(super) struct Ranked<M> {
    scores: BTreeMap<M, f64>,
    order: BTreeSet<(Score, M)>,
}

impl<M> Default for Ranked<M> {
    fn default() -> Self {
        Self { scores: BTreeMap::new(), order: BTreeSet::new() }
    }
}

impl<M: Ord + Clone> Ranked<M> {
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn score(&self, member: &M) -> Option<f64> {
        self.scores.get(member).copied()
    }

    /// Inserts the member, or changes its score.
    pub(super) fn put(&mut self, member: M, score: f64) {
        self.remove(&member);
        // Adding zero turns -0.0 into 0.0; the two are equal in Redis.
        self.order.insert((Score(score + 0.0), member.clone()));
        self.scores.insert(member, score + 0.0);
    }

    /// Inserts the member unless the set has it.
    pub(super) fn put_new(&mut self, member: M, score: f64) {
        if !self.scores.contains_key(&member) {
            self.put(member, score);
        }
    }

    pub(super) fn remove(&mut self, member: &M) -> bool {
        let Some(score) = self.scores.remove(member) else { return false };
        self.order.remove(&(Score(score), member.clone()))
    }

    /// The members in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&M, f64)> {
        self.order.iter().map(|(score, member)| (member, score.0))
    }

    pub(super) fn first(&self) -> Option<(&M, f64)> {
        self.iter().next()
    }

    /// The first `most` members whose score is at most `now`.
    pub(super) fn due(&self, now: u64, most: usize) -> Vec<M> {
        self.iter().take_while(|(_, due)| *due <= now as f64).take(most).map(|(member, _)| member.clone()).collect()
    }

    /// The lowest score, for scores that are times.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "unix ms fits a double's 53 bits")]
    pub(super) fn next_due_ms(&self) -> Option<u64> {
        self.first().map(|(_, due)| due as u64)
    }
}
