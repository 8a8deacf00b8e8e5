//! Status of an instance, as its host reported it last.

use crate::state::{RUNNING, STOPPED};

/// Status of an instance, as its host reported it last: `actual_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Nothing was reported yet: `null`.
    None,
    /// Created; the container is not started.
    Created,
    /// The image is pulled, or the container starts.
    Loading,
    /// The container runs.
    Running,
    /// Stopped by the account, or by the provider.
    Stopped,
    /// The container exited.
    Exited,
    /// Paused in memory.
    Frozen,
    /// The container restarts.
    Rebooting,
    /// The host sends no heartbeats.
    Unknown,
    /// The host is disconnected.
    Offline,
}

impl Status {
    const ALL: [Self; 10] = [
        Self::None,
        Self::Created,
        Self::Loading,
        Self::Running,
        Self::Stopped,
        Self::Exited,
        Self::Frozen,
        Self::Rebooting,
        Self::Unknown,
        Self::Offline,
    ];

    /// The word on the wire; `None` is `null`.
    #[must_use]
    pub fn word(self) -> Option<&'static str> {
        Some(match self {
            Self::None => return None,
            Self::Created => "created",
            Self::Loading => "loading",
            Self::Running => RUNNING,
            Self::Stopped => STOPPED,
            Self::Exited => "exited",
            Self::Frozen => "frozen",
            Self::Rebooting => "rebooting",
            Self::Unknown => "unknown",
            Self::Offline => "offline",
        })
    }

    /// The status of a word; `None` if Vast.ai's documentation does not list it.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.word() == Some(word))
    }

    /// Whether the GPUs are charged for.
    #[must_use]
    pub fn charges_gpu(self) -> bool {
        matches!(self, Self::Running | Self::Frozen)
    }

    /// Whether the disk is charged for.
    #[must_use]
    pub fn charges_disk(self) -> bool {
        self != Self::Offline
    }

    /// Whether the container does not run and will not start by itself.
    #[must_use]
    pub fn is_halted(self) -> bool {
        matches!(self, Self::Stopped | Self::Exited)
    }
}
