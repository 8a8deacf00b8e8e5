//! A stand-in for `libnvidia-ml.so.1`: a worker loads it as it would load NVIDIA's and sees the GPUs that a test has
//! defined. Under its other name, `libcuda.so.1`, it serves the calls of the worker's probe of a GPU.
//!
//! A folder contains the library and its state: `cards.json`, and `claims/<pid>.<card>` with the MiB that a process
//! holds on a GPU, which count while that process lives. A model in a test takes memory by writing such a file; the
//! folder is the one on its `LD_LIBRARY_PATH`.

mod cuda;
mod folder;
mod symbols;

pub use folder::{FakeGpu, FakeGpus, StandIn};
