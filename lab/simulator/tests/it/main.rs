//! The simulation as a whole on synthetic traces: its invariants, and the repeatability of recorded decisions.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod recorded;
mod replay;
mod simulation;
