//! What is to be done, and why. The printed plan is what operators, logs and goldens see.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::name::Name;

/// What is to be done now, in this order. Empty: nothing is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// In the order in which they are to be done.
    pub steps: Vec<Step>,
}

/// One thing to do, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// What.
    pub action: Action,
    /// Why.
    pub reason: Reason,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Action {
    /// Rent, or start, one machine of this offer.
    Rent {
        /// [`crate::Offer::id`].
        offer: Name,
        /// For an interruptible one: what to bid, dollars per hour.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bid_usd_per_hour: Option<f64>,
        /// Endpoints whose weights it should fetch as soon as it is there, the most wanted first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        prefetch: Vec<Name>,
    },
    /// Start a stopped machine.
    Resume {
        /// [`crate::Machine::id`].
        machine: Name,
    },
    /// Let it take no more jobs; it ends those it has.
    Drain {
        /// [`crate::Machine::id`].
        machine: Name,
    },
    /// Take a draining machine back into service.
    Undrain {
        /// [`crate::Machine::id`].
        machine: Name,
    },
    /// Give its cards back and keep its disk.
    Stop {
        /// [`crate::Machine::id`].
        machine: Name,
    },
    /// Give it back for good.
    Release {
        /// [`crate::Machine::id`].
        machine: Name,
    },
}

/// Why a step is taken. What `Display` says of it is for people.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Reason {
    /// Told by a policy that has no words for it.
    Policy {
        /// What it goes by.
        text: String,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy { text } => f.write_str(text),
        }
    }
}
