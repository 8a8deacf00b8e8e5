//! Codes of error responses.

/// The key is missing, invalid or lacks a permission.
pub const AUTH_ERROR: &str = "auth_error";
/// The account lacks credit.
pub const INSUFFICIENT_CREDIT: &str = "insufficient_credit";
/// The bid is invalid or too low.
pub const INVALID_PRICE: &str = "invalid_price";
/// The path or the object does not exist.
pub const NOT_FOUND: &str = "not_found";
/// The offer is gone.
pub const NO_SUCH_ASK: &str = "no_such_ask";
/// The instance is gone.
pub const NO_SUCH_INSTANCE: &str = "no_such_instance";
/// The searches of the day are used up.
pub const SEARCH_QUOTA_EXCEEDED: &str = "search_quota_exceeded";
