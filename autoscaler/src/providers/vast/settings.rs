//! What the operator says about Vast.ai: `[vast]` in the settings.

use std::time::Duration;

use serde::Deserialize;
use stokehold_queue::requirements_lock::listed_indexes;

use crate::policy::Policy;
use crate::secret::Secret;

/// Where Vast.ai is.
pub const DEFAULT_URL: &str = "https://console.vast.ai";

/// Vast.ai rents no smaller disk, GB.
const DISK_GB_MIN: f64 = 8.0;

/// Characters of a namespace: with a machine's id it stays within what a label may be.
const NAMESPACE_MAX: usize = 24;

/// What the operator says about Vast.ai.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VastSettings {
    /// The account's key; empty: nothing is rented there.
    pub api_key: Secret,
    /// Where it is.
    pub url: String,
    /// What sets our rentals apart from others of the account.
    pub namespace: String,
    /// What a rented machine runs.
    pub image: String,
    /// How large that is, GB.
    pub image_gb: f64,
    /// The disk to rent, GB; it cannot be changed later.
    pub disk_gb: f64,
    /// Where rented machines reach the gateway; empty: as others do.
    pub gateway_url: String,
    /// Package indexes that rented workers let locked requirements name; empty: those that a worker does by itself.
    pub package_indexes: String,
    /// The least CUDA that a host's driver serves.
    pub min_cuda: f64,
    /// The least compute capability of a card.
    pub min_compute_capability: f64,
    /// The least that a host says it fetches, megabits per second.
    pub min_inet_down_mbit: f64,
    /// Whether only hosts that Vast.ai has looked at are rented from.
    pub verified_only: bool,
    /// Whether only those in data centres are.
    pub datacenter_only: bool,
    /// How long a host must be listed for yet, hours.
    pub min_duration_h: f64,
    /// A machine whose worker has not joined by then is given back, seconds.
    pub join_limit_s: u64,
    /// What it has charged for a machine so long after its end is its last word, seconds.
    pub charges_settle_s: u64,
    /// Searches of each type that one look at the market takes at most.
    pub max_search_pages: u32,
}

impl VastSettings {
    /// Whether anything is rented there.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        !self.api_key.expose().trim().is_empty()
    }

    /// What is wrong with it, if anything: the setting, and why.
    ///
    /// # Errors
    /// The first setting that cannot be meant.
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

    /// Without the last slash.
    pub(super) fn base_url(&self) -> &str {
        self.url.trim_end_matches('/')
    }

    pub(super) fn join_limit(&self) -> Duration {
        Duration::from_secs(self.join_limit_s)
    }
}

/// What an offer must be like, by the operator's settings and policy.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Wishes {
    /// Empty: any.
    pub(super) kinds: Vec<String>,
    pub(super) may_bid: bool,
    pub(super) min_reliability: f64,
    pub(super) max_usd_per_hour: f64,
    pub(super) min_cuda: f64,
    /// As Vast.ai counts it: 8.9 is 890.
    pub(super) min_compute_cap: f64,
    pub(super) min_inet_down_mbit: f64,
    pub(super) min_duration_s: f64,
    pub(super) verified_only: bool,
    pub(super) datacenter_only: bool,
    pub(super) disk_gb: f64,
    pub(super) image_gb: f64,
    pub(super) pages_max: u32,
}

impl Wishes {
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

    /// The defaults, with a key.
    pub(in super::super) fn settings() -> VastSettings {
        let table: toml::Table = toml::from_str(crate::config::DEFAULT).unwrap();
        let settings: VastSettings = table["vast"].clone().try_into().unwrap();
        VastSettings { api_key: Secret::new("verysecret"), ..settings }
    }

    #[test]
    fn the_defaults_can_be_meant_and_what_cannot_is_refused_by_name() {
        let defaults = settings();
        assert_eq!((defaults.check(), defaults.base_url()), (Ok(()), DEFAULT_URL));
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
