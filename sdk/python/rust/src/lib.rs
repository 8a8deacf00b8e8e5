//! sdk/python/rust
