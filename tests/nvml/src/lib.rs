//! A stand-in for `libnvidia-ml.so.1`: a worker loads it as it would load NVIDIA's and sees the cards that a test has written down. By its
//! other name, `libcuda.so.1`, it is what the worker's probe of a card calls.
//!
//! A folder holds the library and what it says: `cards.json`, and `claims/<pid>.<card>` with the MiB that a process holds on a card,
//! which count while that process lives. A model in a test takes memory by writing such a file; the folder is the one on its
//! `LD_LIBRARY_PATH`.

mod cuda;
mod folder;
mod symbols;

pub use folder::{FakeGpu, FakeGpus, StandIn};
