//! The planner as a whole: its invariants, its actions, and their repeatability.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod goldens;
mod large;
mod made_up;
mod placement;
mod prompts;
mod properties;
mod scale;
