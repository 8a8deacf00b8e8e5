//! The stoke command.
fn main() {}
