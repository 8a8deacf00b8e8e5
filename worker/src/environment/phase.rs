//! The steps of building an environment, as shown to users.

use std::fmt;

/// A step of building an environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Waiting for another build of the same environment.
    Waiting,
    /// Creating an empty environment.
    CreatingVenv,
    /// Downloading and installing the requirements.
    Installing {
        /// Number of packages.
        packages: usize,
    },
    /// Installing the runner.
    InstallingRunner,
    /// Compiling modules that no other environment has compiled.
    Compiling,
    /// Flushing the environment to disk and moving it into place.
    Publishing,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting => f.write_str("waiting for another build of the same environment"),
            Self::CreatingVenv => f.write_str("creating the virtual environment"),
            Self::Installing { packages: 1 } => f.write_str("installing 1 package"),
            Self::Installing { packages } => write!(f, "installing {packages} packages"),
            Self::InstallingRunner => f.write_str("installing the runner"),
            Self::Compiling => f.write_str("compiling modules"),
            Self::Publishing => f.write_str("publishing"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_read_as_words() {
        assert_eq!(Phase::Installing { packages: 1 }.to_string(), "installing 1 package");
        assert_eq!(Phase::Installing { packages: 12 }.to_string(), "installing 12 packages");
    }
}
