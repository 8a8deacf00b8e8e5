//! The GPU memory that a language model takes in an inference engine, computed from its `config.json` or from the
//! header of a GGUF file:
//!
//! ```text
//! memory of a GPU = weights + adapters + KV cache of the longest sequences + activations + context and graphs
//! ```
//!
//! [`Model::parse`] and [`gguf::read`] read the shape of a model. [`Shape::parameters`] counts its parameters.
//! [`estimate`] adds up the memory for an engine and its settings. Formulas and constants name their sources.
//!
//! The crate opens no file and no connection.

mod config;
mod error;
mod fields;
mod format;
pub mod gguf;
mod kv;
mod lora;
mod parameters;
mod shape;
mod vram;

pub use config::{Model, index_bytes};
pub use error::Error;
pub use format::{Dtype, Format, Scope};
pub use kv::KvDtype;
pub use parameters::Parameters;
pub use shape::{Attention, Experts, Mlp, Shape, Windows};
pub use vram::{BATCH_TOKENS, Engine, Estimate, Settings, estimate};
