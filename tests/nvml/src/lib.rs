//! A stand-in for `libnvidia-ml.so.1`: a worker loads it as it would load NVIDIA's and sees the cards that a test has written down.
//!
//! A folder holds the library and what it says: `cards.json`, and `claims/<pid>.<card>` with the MiB that a process holds on a card,
//! which count while that process lives. A model in a test takes memory by writing such a file; the folder is the one on its
//! `LD_LIBRARY_PATH`.

mod folder;
mod symbols;

pub use folder::{Card, Cards, StandIn};
