//! Permissions of API keys.

use serde::{Deserialize, Serialize};

/// Permission of an API key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Search.
    Misc,
    /// Read instances and their logs.
    InstanceRead,
    /// Rent, change and destroy instances.
    InstanceWrite,
    /// Read the credit.
    UserRead,
    /// Read the charges.
    BillingRead,
}

impl Scope {
    /// Name of the permission in Vast.ai's API.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Misc => "misc",
            Self::InstanceRead => "instance_read",
            Self::InstanceWrite => "instance_write",
            Self::UserRead => "user_read",
            Self::BillingRead => "billing_read",
        }
    }
}
