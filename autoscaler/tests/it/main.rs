//! The autoscaler as a whole: what it may never do, what it does, and that it does it again.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod bootstrap;
mod duties;
mod goldens;
mod kubernetes;
mod large;
mod made_up;
mod placement;
mod properties;
mod scale;
mod vast;
