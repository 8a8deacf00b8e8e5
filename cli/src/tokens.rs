//! Tokens of language models, as text.

use stokehold_client::models::TokenUsage;
use stokehold_queue::job;

use crate::{money, output};

/// The numbers of tokens, e.g. `1,200 prompt (800 cached), 50 completion`.
pub(crate) fn counts(usage: TokenUsage) -> String {
    let TokenUsage { prompt_tokens, cached_tokens, completion_tokens } = usage;
    let cached = match cached_tokens {
        0 => String::new(),
        cached => format!(" ({} cached)", output::count(cached)),
    };
    format!("{} prompt{cached}, {} completion", output::count(prompt_tokens), output::count(completion_tokens))
}

/// What a million of the tokens cost, e.g. `$0.11 per 1M tokens`; `None` without tokens or without a cost.
pub(crate) fn price(usage: Option<TokenUsage>, usd_micros: u64) -> Option<String> {
    let TokenUsage { prompt_tokens, cached_tokens, completion_tokens } = usage?;
    let usage = job::TokenUsage { prompt_tokens, cached_tokens, completion_tokens };
    let per_million = usage.per_million(usd_micros).filter(|_| usd_micros > 0)?;
    Some(format!("{} per 1M tokens", money::dollars(per_million)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_counted_and_priced() {
        let usage = TokenUsage { prompt_tokens: 1_200_000, cached_tokens: 800, completion_tokens: 800_000 };
        assert_eq!(counts(usage), "1,200,000 prompt (800 cached), 800,000 completion");
        assert_eq!(counts(TokenUsage { cached_tokens: 0, ..usage }), "1,200,000 prompt, 800,000 completion");
        assert_eq!(price(Some(usage), 220_000).as_deref(), Some("$0.11 per 1M tokens"));
        assert_eq!((price(Some(usage), 0), price(None, 5), price(Some(TokenUsage::default()), 5)), (None, None, None));
    }
}
