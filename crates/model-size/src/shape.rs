//! The shape of a decoder model: what its parameters and its KV cache are counted from.

/// The shape of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// Width of the hidden state.
    pub hidden: u64,
    /// Number of layers.
    pub layers: u64,
    /// Number of tokens in the vocabulary.
    pub vocab: u64,
    /// Whether the output head is the embedding matrix.
    pub is_tied: bool,
    /// The attention of each layer.
    pub attention: Attention,
    /// The feed-forward network of a dense layer.
    pub mlp: Mlp,
    /// The mixture of experts, if there is one.
    pub experts: Option<Experts>,
    /// Norms of the hidden width in each layer.
    pub norms: u64,
    /// Whether norms have a bias too.
    pub has_norm_bias: bool,
    /// Layers that keep only the last tokens.
    pub windows: Windows,
}

/// The attention of a layer.
#[derive(Debug, Clone, PartialEq)]
pub enum Attention {
    /// Grouped queries: `kv_heads` equal to `heads` is multi-head attention, and 1 is multi-query attention.
    Grouped {
        /// Query heads.
        heads: u64,
        /// Key and value heads.
        kv_heads: u64,
        /// Width of a head.
        head_dim: u64,
        /// Whether queries, keys and values have a bias.
        has_qkv_bias: bool,
        /// Whether the output has a bias.
        has_output_bias: bool,
        /// Whether queries and keys have a norm of this many elements together.
        qk_norm: u64,
        /// Further elements in each layer, e.g. a sink for each head.
        extra: u64,
    },
    /// Multi-head latent attention of DeepSeek: keys and values are cached as one compressed vector.
    Latent {
        /// Query heads.
        heads: u64,
        /// Rank of the query compression; 0 for none.
        q_rank: u64,
        /// Rank of the compressed keys and values.
        kv_rank: u64,
        /// Width of a head without position.
        nope_dim: u64,
        /// Width of the position part, which is cached beside the compressed vector.
        rope_dim: u64,
        /// Width of a value head.
        value_dim: u64,
    },
}

/// The feed-forward network of a dense layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Mlp {
    /// Inner width.
    pub intermediate: u64,
    /// Matrices: 3 with a gate, 2 without.
    pub matrices: u64,
    /// Whether they have a bias.
    pub has_bias: bool,
}

/// A mixture of experts.
#[derive(Debug, Clone, PartialEq)]
pub struct Experts {
    /// Routed experts in each layer.
    pub count: u64,
    /// Experts that compute each token.
    pub per_token: u64,
    /// Inner width of an expert.
    pub intermediate: u64,
    /// Inner width of the shared expert, of all shared experts together; 0 for none.
    pub shared_intermediate: u64,
    /// Elements beside the router's matrix in each layer, e.g. its bias or the gate of the shared expert.
    pub router_extra: u64,
    /// Whether experts have biases.
    pub has_bias: bool,
    /// Layers with experts; the others are dense.
    pub layers: u64,
}

/// Layers with sliding-window attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Windows {
    /// Number of such layers.
    pub layers: u64,
    /// Tokens that they keep.
    pub tokens: u64,
    /// Layers without a cache that grows, e.g. linear attention.
    pub stateless_layers: u64,
}
