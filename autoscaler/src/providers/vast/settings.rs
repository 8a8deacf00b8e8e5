//! Settings of Vast.ai: `[vast]` in the configuration.

use std::time::Duration;

use serde::Deserialize;
use stokehold_planner::Policy;
use stokehold_queue::requirements_lock::listed_indexes;

use crate::secret::Secret;

/// Minimum size of a disk at Vast.ai, GB.
const DISK_GB_MIN: f64 = 8.0;

/// Maximum number of characters of a namespace, so that labels stay within their limit.
const NAMESPACE_MAX: usize = 24;

/// Settings of Vast.ai.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VastSettings {
    /// API key of the account; empty: nothing is rented there.
    pub api_key: Secret,
    /// Address of the API.
    pub url: String,
    /// Namespace of this autoscaler's rentals in the account.
    pub namespace: String,
    /// Image that rented machines run.
    pub image: String,
    /// Size of the image, GB.
    pub image_gb: f64,
    /// Disk of a rented machine, GB; it cannot be changed later.
    pub disk_gb: f64,
    /// Address at which rented machines reach the gateway; empty: the address for other workers.
    pub gateway_url: String,
    /// Package indexes that rented workers allow in locked requirements; empty: the default of workers.
    pub package_indexes: String,
    /// Minimum CUDA version of a host's driver.
    pub min_cuda: f64,
    /// Minimum compute capability of a GPU.
    pub min_compute_capability: f64,
    /// Minimum advertised download rate of a host, megabits per second.
    pub min_inet_down_mbit: f64,
    /// Whether only hosts verified by Vast.ai are rented from.
    pub verified_only: bool,
    /// Whether only hosts in data centers are rented from.
    pub datacenter_only: bool,
    /// Minimum remaining time of a listing, hours.
    pub min_duration_h: f64,
    /// Time that the worker of a rented machine has to join, seconds. After it the machine is given back.
    pub join_limit_s: u64,
    /// Time after the end of a machine at which its charges are final, seconds.
    pub charges_settle_s: u64,
    /// Maximum number of searches of each type per poll of the market.
    pub max_search_pages: u32,
}

impl VastSettings {
    /// Whether the provider is configured.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        !self.api_key.expose().trim().is_empty()
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// The first invalid setting, and the required change.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let wrong = |setting, why: &str| Err((setting, why.to_owned()));
        let is_namespace = |sign: char| sign.is_ascii_lowercase() || sign.is_ascii_digit() || sign == '-';
        if !self.url.starts_with("https://") && !self.url.starts_with("http://") {
            return wrong("vast.url", "must begin with https://");
        }
        if self.namespace.is_empty()
            || self.namespace.len() > NAMESPACE_MAX
            || !self.namespace.chars().all(is_namespace)
        {
            return wrong("vast.namespace", "must be 1 to 24 characters of a-z, 0-9 and -");
        }
        if self.is_enabled() && (self.image.trim().is_empty() || self.image.len() > 1_024) {
            return wrong("vast.image", "must name the image that rented machines run");
        }
        if let Err(why) = listed_indexes(&self.package_indexes) {
            return wrong("vast.package_indexes", why);
        }
        let not_negative = [
            ("vast.image_gb", self.image_gb),
            ("vast.min_cuda", self.min_cuda),
            ("vast.min_compute_capability", self.min_compute_capability),
            ("vast.min_inet_down_mbit", self.min_inet_down_mbit),
            ("vast.min_duration_h", self.min_duration_h),
        ];
        if let Some((setting, _)) = not_negative.iter().find(|(_, value)| !(value.is_finite() && *value >= 0.0)) {
            return wrong(setting, "must be 0 or greater");
        }
        if !(self.disk_gb.is_finite() && self.disk_gb >= DISK_GB_MIN) {
            return wrong("vast.disk_gb", "must be 8 or greater");
        }
        if self.join_limit_s == 0 {
            return wrong("vast.join_limit_s", "must be greater than 0");
        }
        if !(1..=20).contains(&self.max_search_pages) {
            return wrong("vast.max_search_pages", "must be from 1 to 20");
        }
        Ok(())
    }

    /// Address without a trailing slash.
    pub(super) fn base_url(&self) -> &str {
        self.url.trim_end_matches('/')
    }

    pub(super) fn join_limit(&self) -> Duration {
        Duration::from_secs(self.join_limit_s)
    }
}

/// Requirements for offers from the settings and the policy.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OfferFilter {
    /// Allowed kinds of GPU; empty: any.
    pub(super) kinds: Vec<String>,
    pub(super) may_bid: bool,
    pub(super) min_reliability: f64,
    pub(super) max_usd_per_hour: f64,
    pub(super) min_cuda: f64,
    /// Minimum compute capability in the unit of Vast.ai: 8.9 is 890.
    pub(super) min_compute_cap: f64,
    pub(super) min_inet_down_mbit: f64,
    pub(super) min_duration_s: f64,
    pub(super) verified_only: bool,
    pub(super) datacenter_only: bool,
    pub(super) disk_gb: f64,
    pub(super) image_gb: f64,
    pub(super) pages_max: u32,
}

impl OfferFilter {
    pub(super) fn new(settings: &VastSettings, policy: &Policy) -> Self {
        Self {
            kinds: policy.kinds.clone(),
            may_bid: policy.may_bid,
            min_reliability: policy.min_reliability,
            max_usd_per_hour: policy.max_usd_per_hour,
            min_cuda: settings.min_cuda,
            min_compute_cap: (settings.min_compute_capability * 100.0).round(),
            min_inet_down_mbit: settings.min_inet_down_mbit,
            min_duration_s: settings.min_duration_h * 3_600.0,
            verified_only: settings.verified_only,
            datacenter_only: settings.datacenter_only,
            disk_gb: settings.disk_gb,
            image_gb: settings.image_gb,
            pages_max: settings.max_search_pages,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// Default settings with a key.
    pub(in super::super) fn settings() -> VastSettings {
        let table: toml::Table = toml::from_str(crate::config::DEFAULT).unwrap();
        let settings: VastSettings = table["vast"].clone().try_into().unwrap();
        VastSettings { api_key: Secret::new("verysecret"), ..settings }
    }

    #[test]
    fn the_defaults_can_be_meant_and_what_cannot_is_refused_by_name() {
        let defaults = settings();
        assert_eq!((defaults.check(), defaults.base_url()), (Ok(()), stokehold_vast::URL));
        assert!(defaults.is_enabled() && !VastSettings { api_key: Secret::new(" "), ..settings() }.is_enabled());
        let refused = |settings: VastSettings| settings.check().unwrap_err().0;
        assert_eq!(refused(VastSettings { url: "console.vast.ai".to_owned(), ..settings() }), "vast.url");
        for namespace in ["", "A", "a:b", &"a".repeat(25)] {
            assert_eq!(refused(VastSettings { namespace: namespace.to_owned(), ..settings() }), "vast.namespace");
        }
        assert_eq!(refused(VastSettings { image: String::new(), ..settings() }), "vast.image");
        assert_eq!(
            refused(VastSettings { package_indexes: "pypi.org".to_owned(), ..settings() }),
            "vast.package_indexes"
        );
        assert_eq!(refused(VastSettings { disk_gb: 7.0, ..settings() }), "vast.disk_gb");
        assert_eq!(refused(VastSettings { min_cuda: f64::NAN, ..settings() }), "vast.min_cuda");
        assert_eq!(refused(VastSettings { max_search_pages: 0, ..settings() }), "vast.max_search_pages");
        assert_eq!(refused(VastSettings { join_limit_s: 0, ..settings() }), "vast.join_limit_s");
    }

    #[test]
    fn the_key_does_not_print() {
        assert!(!format!("{:?}", settings()).contains("verysecret"));
    }
}
