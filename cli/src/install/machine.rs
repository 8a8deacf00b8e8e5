//! Facts about the machine to install on.

use std::path::Path;

use anyhow::Result;

use crate::dev::redis_memory_bytes;

/// The state of the machine.
pub(super) struct Machine {
    /// Memory limit of Redis, bytes.
    pub(super) redis_memory_bytes: u64,
    /// Set when the user that owns jobs and objects is missing.
    pub(super) lacks_user: bool,
    /// The installed ones of [`PROGRAMS`].
    present: Vec<&'static str>,
}

/// The user that owns jobs and objects.
pub(super) const USER: &str = "stokehold";

/// Programs, their Debian and Ubuntu packages, and the units that need them; `None` means the worker.
const PROGRAMS: [(&str, &str, Option<&str>); 5] = [
    ("/usr/bin/redis-server", "redis-server", Some("stoke-redis.service")),
    ("/usr/bin/caddy", "caddy", Some("stoke-proxy.service")),
    ("/usr/bin/prometheus", "prometheus", Some("stoke-prometheus.service")),
    ("/usr/bin/bwrap", "bubblewrap", None),
    // uv needs distutils, which Debian's plain Python lacks.
    ("/usr/lib/python3/dist-packages/distutils/version.py", "python3-venv", None),
];

/// Packages that start their own service when they are installed.
pub(super) const WITH_SERVICES: [&str; 3] = ["redis-server", "caddy", "prometheus"];

impl Machine {
    pub(super) fn here() -> Result<Self> {
        let present = PROGRAMS.into_iter().map(|(program, ..)| program).filter(|program| Path::new(program).exists());
        let lacks_user = nix::unistd::User::from_name(USER)?.is_none();
        Ok(Self { redis_memory_bytes: redis_memory_bytes(), lacks_user, present: present.collect() })
    }

    /// Missing packages of these services.
    pub(super) fn missing(&self, services: &[&str], worker: bool) -> Vec<&'static str> {
        let is_wanted = |unit: Option<&str>| unit.map_or(worker, |unit| services.contains(&unit));
        PROGRAMS
            .into_iter()
            .filter(|(program, _, unit)| is_wanted(*unit) && !self.present.contains(program))
            .map(|(_, package, _)| package)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_wanted_and_not_here_is_installed() {
        let machine =
            |present: &[&'static str]| Machine { redis_memory_bytes: 1, lacks_user: true, present: present.to_vec() };
        let services = ["stoke-redis.service", "stoke-api.service", "stoke-proxy.service"];
        assert_eq!(machine(&[]).missing(&services, false), ["redis-server", "caddy"]);
        assert_eq!(
            machine(&["/usr/bin/caddy"]).missing(&services, true),
            ["redis-server", "bubblewrap", "python3-venv"]
        );
        assert!(WITH_SERVICES.iter().all(|package| PROGRAMS.iter().any(|(_, known, _)| known == package)));
    }
}
