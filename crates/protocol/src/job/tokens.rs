//! The tokens that a language model read and wrote.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// Maximum of each number of one run. A larger one is an error of the engine. Sums stay exact in a double.
pub const TOKENS_MAX: u64 = 1 << 40;

/// Tokens of a run, or of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenUsage {
    /// Tokens of the prompts, including the cached ones.
    pub prompt_tokens: u64,
    /// Tokens of the prompts that the engine had in its cache.
    pub cached_tokens: u64,
    /// Tokens that the model wrote.
    pub completion_tokens: u64,
}

impl TokenUsage {
    /// The numbers of one run that are possible: a number above [`TOKENS_MAX`] counts as 0, and no more tokens are
    /// cached than the prompt has. `None` if none is left.
    #[must_use]
    pub fn checked(self) -> Option<Self> {
        let [prompt_tokens, cached_tokens, completion_tokens] =
            self.numbers().map(|tokens| if tokens > TOKENS_MAX { 0 } else { tokens });
        Self { prompt_tokens, cached_tokens: cached_tokens.min(prompt_tokens), completion_tokens }.known()
    }

    /// `None` if there are no tokens.
    #[must_use]
    pub fn known(self) -> Option<Self> {
        (self.total() > 0).then_some(self)
    }

    /// Tokens read and written. The cached ones are part of the prompt.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.prompt_tokens.saturating_add(self.completion_tokens)
    }

    /// Prompt, cached and completion tokens, in the order in which they are stored.
    #[must_use]
    pub fn numbers(&self) -> [u64; 3] {
        [self.prompt_tokens, self.cached_tokens, self.completion_tokens]
    }

    /// The price of a million of these tokens, micro-dollars; `None` without tokens.
    #[must_use]
    pub fn per_million(&self, usd_micros: u64) -> Option<u64> {
        let all = u128::from(usd_micros) * 1_000_000;
        let per_million = all.checked_div(u128::from(self.total()))?;
        Some(u64::try_from(per_million).unwrap_or(u64::MAX))
    }
}

impl From<[u64; 3]> for TokenUsage {
    fn from([prompt_tokens, cached_tokens, completion_tokens]: [u64; 3]) -> Self {
        Self { prompt_tokens, cached_tokens, completion_tokens }
    }
}

impl AddAssign for TokenUsage {
    fn add_assign(&mut self, other: Self) {
        self.prompt_tokens += other.prompt_tokens;
        self.cached_tokens += other.cached_tokens;
        self.completion_tokens += other.completion_tokens;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_numbers_do_not_count() {
        let checked = |numbers: [u64; 3]| TokenUsage::from(numbers).checked().map(|usage| usage.numbers());
        assert_eq!(checked([12, 4, 3]), Some([12, 4, 3]));
        assert_eq!(checked([TOKENS_MAX, 0, TOKENS_MAX + 1]), Some([TOKENS_MAX, 0, 0]));
        assert_eq!(checked([5, 9, 0]), Some([5, 5, 0]));
        assert_eq!((checked([0, 7, 0]), checked([u64::MAX, 0, 0])), (None, None));
    }

    #[test]
    fn the_price_is_that_of_a_million_tokens_read_or_written() {
        let usage = TokenUsage::from([1_500_000, 1_000_000, 500_000]);
        assert_eq!(usage.per_million(220_000), Some(110_000));
        assert_eq!(usage.per_million(u64::MAX), Some(u64::MAX / 2));
        assert_eq!(TokenUsage::default().per_million(220_000), None);
        assert_eq!(TokenUsage::from([1, 0, 0]).per_million(u64::MAX), Some(u64::MAX));
    }
}
