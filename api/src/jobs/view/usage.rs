//! The tokens of jobs.

use serde::Serialize;
use stokehold_queue::job::TokenUsage;
use utoipa::ToSchema;

/// Tokens of language models, as the results of jobs report them.
#[derive(Serialize, ToSchema)]
#[schema(as = TokenUsage)]
pub(crate) struct TokenUsageView {
    /// Tokens of the prompts, including the cached ones.
    prompt_tokens: u64,
    /// Tokens of the prompts that the engine had in its cache.
    cached_tokens: u64,
    /// Tokens that the model wrote.
    completion_tokens: u64,
}

impl TokenUsageView {
    /// The view; `None` without tokens.
    pub(crate) fn of(usage: TokenUsage) -> Option<Self> {
        let TokenUsage { prompt_tokens, cached_tokens, completion_tokens } = usage.known()?;
        Some(Self { prompt_tokens, cached_tokens, completion_tokens })
    }
}
