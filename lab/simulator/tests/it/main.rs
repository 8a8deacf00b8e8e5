//! The simulation as a whole, on synthetic traces: its invariants, and that recorded histories are decided again alike.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod recorded;
mod replay;
mod simulation;
