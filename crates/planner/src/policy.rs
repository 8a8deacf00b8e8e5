//! Limits and weights of decisions.

use serde::{Deserialize, Serialize};
use stokehold_serde_words::json_in_words;
use stokehold_units::UsdMicros;

/// Settings of earlier releases that have no effect any more. Configuration files and recorded histories that contain
/// them are still read.
pub const RETIRED: [&str; 1] = ["prefetch_max"];

/// Treatment of rented machines when the budget of a day is spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AtBudget {
    /// Rented machines are given back when their jobs have ended.
    #[default]
    Drain,
    /// Rented machines are given back at once. Their jobs are queued again and run when a new day's budget allows it.
    Stop,
}

/// Settings of decisions, with amounts in dollars as operators write them. All figures in the documentation were
/// measured with the defaults, on every trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Maximum number of machines that run at once, without stopped ones.
    pub max_machines: u32,
    /// Number of machines that stay on even without jobs.
    pub min_machines: u32,
    /// Limit for the cost of all running machines together, dollars per hour; 0 allows none that cost anything.
    pub max_usd_per_hour: f64,
    /// Limit for the cost of all rented machines per day (UTC), dollars; 0 allows none. `None`: no limit.
    pub max_usd_per_day: Option<f64>,
    /// Treatment of rented machines when `max_usd_per_day` is reached.
    pub at_budget: AtBudget,
    /// Maximum number of rents of machines with a price within one hour. Bounds the damage of any fault.
    pub max_rents_per_hour: u32,
    /// Minimum credit at a prepaid provider, dollars. Below it nothing is rented there.
    pub min_credit_usd: f64,
    /// Kinds of GPU that may be rented, as offers name them; empty: any.
    pub kinds: Vec<String>,
    /// Whether machines may be stopped and resumed.
    pub may_stop: bool,
    /// Whether interruptible machines may be rented.
    pub may_bid: bool,
    /// Margin of a bid over the minimum bid, as a share of it.
    pub bid_margin: f64,
    /// Share of runs that may be lost with an interruptible machine, 0 to 1. Endpoints whose runs take too long to stay
    /// below it get other machines.
    pub lost_share_max: f64,
    /// Minimum reliability of a host, 0 to 1: the share of the time that it was reachable.
    pub min_reliability: f64,

    /// Target for the start of interactive jobs, seconds after the submit.
    pub interactive_target_s: f64,
    /// Target for the start of standard jobs, seconds.
    pub standard_target_s: f64,
    /// Target for the start of batch jobs, seconds.
    pub batch_target_s: f64,
    /// Share of interactive jobs that may be late, 0 to 1. The price of a late job is controlled so that this share is
    /// reached.
    pub late_share: f64,
    /// Initial price of a late interactive job, dollars.
    pub late_usd: f64,
    /// Upper limit of that price, as a multiple of its initial value.
    pub late_rise_max: f64,
    /// Lower limit of that price: its initial value divided by this.
    pub late_fall_max: f64,
    /// Gain of the control: the logarithm of the price rises by this with each late job.
    pub late_gain: f64,
    /// Share of deferrable jobs that may be late, 0 to 1. Their start is controlled so that this share
    /// is reached.
    pub deferred_late_share: f64,
    /// Gain of that control per late job.
    pub deferred_late_gain: f64,

    /// Time that an interactive job may queue, seconds; the rest of its target is for loading and for variation. It
    /// falls by `queueing_gain` as the price of a late job rises.
    pub queueing_s: f64,
    /// Decrease of the logarithm of `queueing_s` when the logarithm of the price of a late job rises by one.
    pub queueing_gain: f64,
    /// How long the backlog of a burst may last once a new machine could help, seconds.
    pub drain_s: f64,
    /// How long before its target a deferrable job is started, in addition to the time of a boot and a load, seconds.
    pub deferred_margin_s: f64,
    /// Fraction of a machine that interactive work must need before another machine is started for it, 0 to 1.
    pub round_up_from: f64,

    /// Assumed number of jobs that are late because of a boot of a new machine.
    pub boot_late: f64,
    /// Assumed number of jobs that are late because of a resume.
    pub resume_late: f64,
    /// Assumed duration of a run of an endpoint before one has ended, seconds.
    pub run_prior_s: f64,
    /// Assumed loading time per run where endpoints share a machine, before it is measured, seconds.
    pub load_prior_s: f64,
    /// Assumed cost of an hour of an owned machine, dollars: power and other uses that it could have.
    pub owned_usd_per_hour: f64,

    /// Deadline of a boot, seconds. After it the machine is given back.
    pub boot_deadline_s: f64,
    /// Deadline of a resume, seconds. After it the machine is given back.
    pub resume_deadline_s: f64,
    /// Time that a draining machine has for its jobs, seconds.
    pub drain_deadline_s: f64,
    /// Time during which nothing is rented from a host on which a boot failed, seconds.
    pub host_penalty_s: f64,
    /// Time after which an idle machine is given up even if a job is expected soon, seconds; 0: at once. Jobs that
    /// arrived longer ago and no longer wait do not count as demand. `None`: a machine is given up when waiting for the
    /// next job costs more than starting again.
    pub max_idle_s: Option<f64>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_machines: 64,
            min_machines: 0,
            max_usd_per_hour: 100.0,
            max_usd_per_day: None,
            at_budget: AtBudget::Drain,
            max_rents_per_hour: 120,
            min_credit_usd: 1.0,
            kinds: Vec::new(),
            may_stop: true,
            may_bid: false,
            bid_margin: 0.05,
            lost_share_max: 0.02,
            min_reliability: 0.95,
            interactive_target_s: 30.0,
            standard_target_s: 300.0,
            batch_target_s: 3_600.0,
            late_share: 0.02,
            late_usd: 0.1,
            late_rise_max: 30.0,
            late_fall_max: 100.0,
            late_gain: 0.06,
            deferred_late_share: 0.005,
            deferred_late_gain: 0.05,
            queueing_s: 10.0,
            queueing_gain: 0.5,
            drain_s: 45.0,
            deferred_margin_s: 180.0,
            round_up_from: 0.1,
            boot_late: 3.0,
            resume_late: 0.5,
            run_prior_s: 15.0,
            load_prior_s: 4.0,
            owned_usd_per_hour: 0.05,
            boot_deadline_s: 900.0,
            resume_deadline_s: 45.0,
            drain_deadline_s: 600.0,
            host_penalty_s: 3_600.0,
            max_idle_s: None,
        }
    }
}

/// A setting that does not exist, or a value that is not valid for it.
#[derive(Debug, thiserror::Error)]
#[error("cannot set {key}: {why}")]
pub struct NoSetting {
    key: String,
    why: String,
}

impl Policy {
    /// [`Policy::max_usd_per_hour`].
    #[must_use]
    pub fn max_per_hour(&self) -> UsdMicros {
        UsdMicros::from_usd(self.max_usd_per_hour)
    }

    /// [`Policy::max_usd_per_day`].
    #[must_use]
    pub fn max_per_day(&self) -> Option<UsdMicros> {
        self.max_usd_per_day.map(UsdMicros::from_usd)
    }

    /// [`Policy::min_credit_usd`].
    #[must_use]
    pub fn min_credit(&self) -> UsdMicros {
        UsdMicros::from_usd(self.min_credit_usd)
    }

    /// Returns the policy with one setting changed, as for `--set key=value`. The value is JSON or plain text; `kinds`
    /// takes names separated by commas.
    ///
    /// # Errors
    /// [`NoSetting`] if the setting does not exist, with the names of all settings, or if the value is not valid.
    pub fn with(&self, key: &str, value: &str) -> Result<Self, NoSetting> {
        let no = |why: String| NoSetting { key: key.to_owned(), why };
        let mut all = serde_json::to_value(self).map_err(|error| no(error.to_string()))?;
        let known =
            || all.as_object().map(|all| all.keys().cloned().collect::<Vec<_>>().join(", ")).unwrap_or_default();
        let Some(place) = all.get(key) else {
            return Err(no(format!("no such setting; the settings are {}", known())));
        };
        let new = if place.is_array() {
            serde_json::json!(value.split(',').filter(|name| !name.is_empty()).collect::<Vec<_>>())
        } else {
            let is_word = place.is_string().then(|| value.into());
            let invalid = || no(format!("{value:?} is neither a number nor true or false"));
            is_word.or_else(|| serde_json::from_str(value).ok()).ok_or_else(invalid)?
        };
        all[key] = new;
        let policy: Self = serde_json::from_value(all).map_err(|error| no(json_in_words(&error)))?;
        policy.check().map_err(|(key, why)| NoSetting { key: key.to_owned(), why: why.to_owned() })?;
        Ok(policy)
    }

    /// Checks that every setting is in its range.
    ///
    /// # Errors
    /// The first setting that is out of range, and its range.
    pub fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let shares = [
            ("late_share", self.late_share),
            ("deferred_late_share", self.deferred_late_share),
            ("round_up_from", self.round_up_from),
            ("min_reliability", self.min_reliability),
            ("lost_share_max", self.lost_share_max),
        ];
        let positive = [
            ("late_usd", self.late_usd),
            ("late_rise_max", self.late_rise_max),
            ("late_fall_max", self.late_fall_max),
            ("interactive_target_s", self.interactive_target_s),
            ("standard_target_s", self.standard_target_s),
            ("batch_target_s", self.batch_target_s),
            ("queueing_s", self.queueing_s),
            ("drain_s", self.drain_s),
            ("run_prior_s", self.run_prior_s),
            ("boot_deadline_s", self.boot_deadline_s),
            ("resume_deadline_s", self.resume_deadline_s),
        ];
        let not_negative = [
            ("max_usd_per_hour", self.max_usd_per_hour),
            ("max_usd_per_day", self.max_usd_per_day.unwrap_or_default()),
            ("min_credit_usd", self.min_credit_usd),
            ("bid_margin", self.bid_margin),
            ("late_gain", self.late_gain),
            ("deferred_late_gain", self.deferred_late_gain),
            ("queueing_gain", self.queueing_gain),
            ("deferred_margin_s", self.deferred_margin_s),
            ("boot_late", self.boot_late),
            ("resume_late", self.resume_late),
            ("load_prior_s", self.load_prior_s),
            ("owned_usd_per_hour", self.owned_usd_per_hour),
            ("drain_deadline_s", self.drain_deadline_s),
            ("host_penalty_s", self.host_penalty_s),
            ("max_idle_s", self.max_idle_s.unwrap_or_default()),
        ];
        if let Some((key, _)) = shares.iter().find(|(_, value)| !(0.0..=1.0).contains(value)) {
            return Err((key, "must be between 0 and 1"));
        }
        if let Some((key, _)) = positive.iter().find(|(_, value)| !(value.is_finite() && *value > 0.0)) {
            return Err((key, "must be greater than 0"));
        }
        if let Some((key, _)) = not_negative.iter().find(|(_, value)| !(value.is_finite() && *value >= 0.0)) {
            return Err((key, "must be 0 or greater"));
        }
        if self.min_machines > self.max_machines {
            return Err(("min_machines", "must be at most max_machines"));
        }
        Ok(())
    }
}
