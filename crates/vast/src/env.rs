//! Environment variables that Vast.ai sets in each container.

/// ID of the instance.
pub const CONTAINER_ID: &str = "CONTAINER_ID";
/// API key that can start, stop and destroy this instance, and nothing else.
pub const CONTAINER_API_KEY: &str = "CONTAINER_API_KEY";
