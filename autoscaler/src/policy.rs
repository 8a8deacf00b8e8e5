//! What a decision must respect, and how it weighs what it sees.

use serde::{Deserialize, Serialize};
use stokehold_queue::json_in_words;

/// Settings of earlier releases that have no effect any more. Configuration files and recorded histories that contain them are still read.
pub(crate) const RETIRED: [&str; 1] = ["prefetch_max"];

/// What becomes of rented machines when a day's budget is spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AtBudget {
    /// They end the jobs that they have, and go.
    #[default]
    Drain,
    /// They go at once; their jobs are run again, when there is money for it.
    Stop,
}

/// The settings of a decision. All figures in the documentation were taken with the defaults, on every trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Machines that run at once, at most; stopped ones are not counted.
    pub max_machines: u32,
    /// Machines that stay on, whatever there is to do.
    pub min_machines: u32,
    /// What all machines together may cost while they run, dollars per hour; 0: nothing.
    pub max_usd_per_hour: f64,
    /// What all machines together may have cost in a day, UTC, dollars; 0: nothing. No limit without.
    pub max_usd_per_day: Option<f64>,
    /// What becomes of rented machines when that is reached.
    pub at_budget: AtBudget,
    /// Machines that cost something and are rented within one hour, at most: whatever goes wrong, no more are bought.
    pub max_rents_per_hour: u32,
    /// Nothing is rented from a provider that is paid ahead and has less of our money left, dollars.
    pub min_credit_usd: f64,
    /// Kinds of card that may be rented, as offers name them; empty: any.
    pub kinds: Vec<String>,
    /// Whether machines may be stopped and resumed.
    pub may_stop: bool,
    /// Whether interruptible machines may be rented.
    pub may_bid: bool,
    /// What is bid beyond the least that is asked for, as a share of it.
    pub bid_margin: f64,
    /// Runs that may be lost with an interruptible machine, as a share of them, 0 to 1: longer runs go to others.
    pub lost_share_max: f64,
    /// Hosts that were reachable for a smaller share of the time are not rented from, 0 to 1.
    pub min_reliability: f64,

    /// Interactive jobs are to start within this time, seconds.
    pub interactive_target_s: f64,
    /// Standard jobs are to start within this time, seconds.
    pub standard_target_s: f64,
    /// Batch jobs are to start within this time, seconds.
    pub batch_target_s: f64,
    /// The share of interactive jobs that may be late, 0 to 1: the price of a late job is steered towards it.
    pub late_share: f64,
    /// What a late interactive job is thought to cost at first, dollars.
    pub late_usd: f64,
    /// That price stays within so many times of where it began, either way: the most it may rise.
    pub late_rise_max: f64,
    /// And the most it may fall.
    pub late_fall_max: f64,
    /// How fast it follows: its logarithm rises by so much with each late job.
    pub late_gain: f64,
    /// The share of deferrable jobs that may be late, 0 to 1: how early they are started is steered towards it.
    pub deferred_late_share: f64,
    /// How fast that follows, per late job.
    pub deferred_late_gain: f64,

    /// How long an interactive job may queue, seconds; what is left of its target is for loading and for chance. Falls as the price of a late job
    /// rises, by `queueing_gain`.
    pub queueing_s: f64,
    /// See `queueing_s`: its logarithm falls by so much when that of the price rises by one.
    pub queueing_gain: f64,
    /// What a burst leaves behind is worked off within this time once a new machine could help, seconds.
    pub drain_s: f64,
    /// A deferrable job is started so long before it would be late, beside what a boot and a load take, seconds.
    pub deferred_margin_s: f64,
    /// How much of a machine interactive work must need before one more is switched on for it, 0 to 1.
    pub round_up_from: f64,

    /// Late jobs that a boot from nothing leads to.
    pub boot_late: f64,
    /// Late jobs that a resume leads to.
    pub resume_late: f64,
    /// Seconds that a run of an endpoint is thought to take before one has ended.
    pub run_prior_s: f64,
    /// Seconds of loading per run, where many endpoints share a machine, before that has been measured.
    pub load_prior_s: f64,
    /// What an hour of an owned machine is thought to cost, dollars: power, and what else could run there.
    pub owned_usd_per_hour: f64,

    /// A boot that has not come to anything for so long never will, seconds.
    pub boot_deadline_s: f64,
    /// A resume that has not come to anything for so long never will, seconds.
    pub resume_deadline_s: f64,
    /// A machine that is draining has so long for the jobs that it holds, seconds.
    pub drain_deadline_s: f64,
    /// A host on which a boot failed is left alone for so long, seconds.
    pub host_penalty_s: f64,
    /// A machine that has been idle for so long goes, seconds, however soon the next job is thought to come: what came longer ago, and no longer
    /// waits, asks for nothing. 0: at once. Without, as soon as it is not worth waiting for that.
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

/// A setting that does not exist, or a value that does not fit it.
#[derive(Debug, thiserror::Error)]
#[error("cannot set {key}: {why}")]
pub struct NoSetting {
    key: String,
    why: String,
}

impl Policy {
    /// With one setting changed, as `--set key=value` has it. The value is JSON, or text that is none: `kinds` takes names with commas.
    ///
    /// # Errors
    /// [`NoSetting`] names what is there.
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
            let told = || no(format!("{value:?} is neither a number nor true or false"));
            is_word.or_else(|| serde_json::from_str(value).ok()).ok_or_else(told)?
        };
        all[key] = new;
        let policy: Self = serde_json::from_value(all).map_err(|error| no(json_in_words(&error)))?;
        policy.check().map_err(|(key, why)| NoSetting { key: key.to_owned(), why: why.to_owned() })?;
        Ok(policy)
    }

    /// What is wrong with it, if anything: the setting, and why.
    ///
    /// # Errors
    /// The first setting that makes no sense.
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
