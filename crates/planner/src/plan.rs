//! Plans: actions and their reasons. Operators, logs and goldens show the printed form.

use std::fmt;

use serde::{Deserialize, Serialize};
use stokehold_units::{Mib, UsdMicros, gib, usd};

use crate::name::Name;

/// Actions for one round; empty if there is nothing to do.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Steps in order of execution.
    pub steps: Vec<Step>,
    /// Rents that a limit or the market prevents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub withheld: Vec<Withheld>,
}

/// An action and its reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The action.
    pub action: Action,
    /// The reason.
    pub reason: Reason,
}

/// A change to one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Action {
    /// Rents or starts one machine of an offer.
    Rent {
        /// [`crate::Offer::id`].
        offer: Name,
        /// Bid per hour for an interruptible machine.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "usd::option")]
        bid_usd_per_hour: Option<UsdMicros>,
        /// Reason for no bid, if the policy allows bids.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        no_bid: Option<NoBid>,
    },
    /// Starts a stopped machine.
    Resume {
        /// [`crate::Machine::id`].
        machine: Name,
    },
    /// Stops giving a machine new jobs; its current jobs run to their end.
    Drain {
        /// [`crate::Machine::id`].
        machine: Name,
    },
    /// Puts a draining machine back into service.
    Undrain {
        /// [`crate::Machine::id`].
        machine: Name,
    },
    /// Gives back the GPUs of a machine and keeps its disk.
    Stop {
        /// [`crate::Machine::id`].
        machine: Name,
    },
    /// Gives a machine back for good.
    Release {
        /// [`crate::Machine::id`].
        machine: Name,
    },
}

impl Action {
    /// Machine that the action changes; `None` for a rent.
    #[must_use]
    pub fn machine(&self) -> Option<&Name> {
        match self {
            Self::Rent { .. } => None,
            Self::Resume { machine }
            | Self::Drain { machine }
            | Self::Undrain { machine }
            | Self::Stop { machine }
            | Self::Release { machine } => Some(machine),
        }
    }
}

/// Reason to rent an on-demand machine although the policy allows bids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoBid {
    /// Interactive jobs wait, and there is no on-demand machine.
    Waited,
    /// The work is almost late.
    Late,
    /// The machine is one of the minimum number, see [`crate::Policy::min_machines`].
    Stays,
    /// The offer takes no bids.
    NotOffered,
    /// Runs take too long, so too large a share of them would be lost.
    LongRuns,
    /// A bid would save nothing after the expected losses.
    Dearer,
}

impl fmt::Display for NoBid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Waited => "interactive jobs wait, and no on-demand machine is there",
            Self::Late => "the work is almost late",
            Self::Stays => "it is one of min_machines",
            Self::NotOffered => "the offer takes no bids",
            Self::LongRuns => "runs are too long to risk losing them",
            Self::Dearer => "a bid would save nothing after the expected losses",
        })
    }
}

/// Reason of a step. `Display` is for people.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Reason {
    /// There is more work than the machines can do.
    Work(Shortage),
    /// A minimum number of machines stays on.
    Minimum {
        /// [`crate::Policy::min_machines`].
        machines: u32,
    },
    /// The machine is idle, and waiting for the next job costs more than starting it again.
    Idle {
        /// Idle time, seconds.
        idle_s: f64,
        /// Number of machines, including this one.
        level: usize,
        /// Time since that many machines were last needed at once, seconds; `None`: never.
        #[serde(default)]
        unused_s: Option<f64>,
    },
    /// The machine is stopped, and keeping its disk costs more than a new boot.
    Forgotten {
        /// Number of machines, including this one.
        level: usize,
        /// Time since that many machines were last needed at once, seconds; `None`: never.
        #[serde(default)]
        unused_s: Option<f64>,
    },
    /// The worker did not join within the deadline.
    BootFailed {
        /// Time since the rent, seconds.
        after_s: f64,
    },
    /// The machine did not resume within the deadline because its GPUs are rented to another.
    ResumeFailed {
        /// Time since the resume was requested, seconds.
        after_s: f64,
    },
    /// The machine was taken away, and would cost money again when it comes back.
    Lost,
    /// The machine was draining, and its jobs have ended.
    Drained,
    /// The machine was draining for too long; its jobs run again elsewhere.
    DrainDeadline {
        /// Time since the drain began, seconds.
        after_s: f64,
    },
    /// The day's budget is spent, and the machine costs money.
    BudgetSpent {
        /// Cost of rented machines since midnight UTC.
        spent_usd_micros: UsdMicros,
        /// [`crate::Policy::max_usd_per_day`].
        budget_usd_micros: UsdMicros,
    },
    /// A baseline policy of the simulator made the decision. The live autoscaler never has this reason.
    Baseline(Baseline),
}

/// The rule by which a baseline policy of the simulator takes a step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "rule", rename_all = "snake_case")]
pub enum Baseline {
    /// A fleet of fixed size.
    Fixed {
        /// Machines in the fleet.
        machines: usize,
    },
    /// A number of machines that follows the load.
    Load {
        /// Machines' worth of work.
        load: f64,
        /// Machines that it needs.
        machines: usize,
    },
    /// A number of machines that follows the length of the queue in steps.
    QueueSteps {
        /// Machines that the queue needs.
        machines: usize,
    },
    /// A number of machines that follows the number of jobs.
    Jobs {
        /// Number of jobs, now or on average.
        jobs: f64,
        /// Machines that they need.
        machines: usize,
    },
    /// Jobs that waited for longer than a limit.
    Waited {
        /// Jobs that waited for longer.
        jobs: usize,
        /// The limit, seconds.
        limit_s: f64,
    },
    /// A machine that was idle for longer than the policy keeps one.
    Idle,
}

/// Work of a group and its machines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Shortage {
    /// Required memory of a GPU.
    #[serde(rename = "vram_gib", alias = "vram_gb", with = "gib")]
    pub vram: Mib,
    /// Machines that run or start.
    pub have: usize,
    /// Machines that are needed.
    pub need: usize,
    /// Number of these that interactive work needs so that no job queues for too long.
    pub interactive: f64,
    /// Number of these that work off the backlog of a burst.
    pub burst: f64,
    /// Number of these for deferrable work that must begin now to start in time.
    pub deferred: f64,
    /// Number of these for deferrable work that is almost late.
    pub urgent: f64,
    /// Waiting jobs: interactive and deferrable.
    pub waiting: (u64, u64),
}

/// Reason why a needed machine is not rented.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Withheld {
    /// The number of machines is at its limit.
    MaxMachines {
        /// [`crate::Policy::max_machines`].
        machines: u32,
        /// The unmet need.
        shortage: Shortage,
    },
    /// The cost per hour would exceed its limit.
    MaxSpend {
        /// [`crate::Policy::max_usd_per_hour`].
        #[serde(with = "usd")]
        usd_per_hour: UsdMicros,
        /// The unmet need.
        shortage: Shortage,
    },
    /// No offer meets the requirements.
    NoOffer {
        /// The unmet need.
        shortage: Shortage,
    },
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rent { offer, bid_usd_per_hour: None, no_bid: None } => write!(f, "rent {offer}"),
            Self::Rent { offer, bid_usd_per_hour: None, no_bid: Some(why) } => {
                write!(f, "rent {offer}, without a bid ({why})")
            }
            Self::Rent { offer, bid_usd_per_hour: Some(bid), .. } => write!(f, "rent {offer}, bidding ${bid:.3}/h"),
            Self::Resume { machine } => write!(f, "resume {machine}"),
            Self::Drain { machine } => write!(f, "drain {machine}"),
            Self::Undrain { machine } => write!(f, "undrain {machine}"),
            Self::Stop { machine } => write!(f, "stop {machine}"),
            Self::Release { machine } => write!(f, "release {machine}"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.action, self.reason)
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.waiting {
            (0, 0) => f.write_str("no job waits")?,
            (jobs, 0) => write!(f, "{jobs} interactive {}", if jobs == 1 { "job waits" } else { "jobs wait" })?,
            (0, jobs) => write!(f, "{jobs} deferrable {}", if jobs == 1 { "job waits" } else { "jobs wait" })?,
            (interactive, deferrable) => write!(f, "{interactive} interactive and {deferrable} deferrable jobs wait")?,
        }
        write!(f, "; needs {} {}", self.need, if self.need == 1 { "machine" } else { "machines" })?;
        if self.vram > Mib::ZERO {
            write!(f, " of {} GiB", self.vram.gib())?;
        }
        write!(f, ", has {}", self.have)?;
        let parts = [
            (self.interactive, "interactive"),
            (self.burst, "burst"),
            (self.deferred, "deferred"),
            (self.urgent, "urgent"),
        ];
        let named: Vec<String> = parts
            .iter()
            .filter(|(machines, _)| *machines >= 0.005)
            .map(|(machines, part)| format!("{part} {machines:.2}"))
            .collect();
        if named.is_empty() { Ok(()) } else { write!(f, " ({})", named.join(", ")) }
    }
}

fn needed(f: &mut fmt::Formatter<'_>, machines: usize, unused_s: Option<f64>) -> fmt::Result {
    write!(f, "{machines} {} ", if machines == 1 { "machine was" } else { "machines were" })?;
    match unused_s {
        Some(unused_s) => write!(f, "last needed {unused_s:.0} s ago"),
        None => f.write_str("never needed before"),
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Work(shortage) => shortage.fmt(f),
            Self::Minimum { machines } => {
                let machine_s = if *machines == 1 { "machine stays" } else { "machines stay" };
                write!(f, "at least {machines} {machine_s} on (min_machines)")
            }
            Self::Idle { idle_s, level, unused_s } => {
                write!(f, "idle for {idle_s:.0} s, and ")?;
                needed(f, *level, *unused_s)
            }
            Self::Forgotten { level, unused_s } => needed(f, *level, *unused_s),
            Self::BootFailed { after_s } => write!(f, "its worker did not join within {after_s:.0} s"),
            Self::ResumeFailed { after_s } => {
                write!(f, "it did not resume within {after_s:.0} s: its GPUs are rented to another")
            }
            Self::Lost => f.write_str("it was taken away"),
            Self::Drained => f.write_str("its jobs have ended"),
            Self::DrainDeadline { after_s } => {
                write!(f, "it still runs jobs {after_s:.0} s after its drain began")
            }
            Self::BudgetSpent { spent_usd_micros: spent, budget_usd_micros: budget } => {
                write!(f, "${spent} of today's budget of ${budget} is spent (max_usd_per_day)")
            }
            Self::Baseline(rule) => rule.fmt(f),
        }
    }
}

impl fmt::Display for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed { machines } => write!(f, "always {machines}"),
            Self::Load { load, machines } => write!(f, "a load of {load:.1} needs {machines}"),
            Self::QueueSteps { machines } => write!(f, "the queue needs {machines}"),
            Self::Jobs { jobs, machines } => write!(f, "{jobs:.1} jobs need {machines}"),
            Self::Waited { jobs, limit_s } => write!(f, "{jobs} jobs waited longer than {limit_s} s"),
            Self::Idle => f.write_str("idle for long enough"),
        }
    }
}

impl fmt::Display for Withheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MaxMachines { machines, shortage } => {
                write!(f, "the limit is {machines} machines (max_machines): {shortage}")
            }
            Self::MaxSpend { usd_per_hour, shortage } => {
                write!(f, "the limit is ${usd_per_hour:.2}/h (max_usd_per_hour): {shortage}")
            }
            Self::NoOffer { shortage } => write!(f, "no offer meets the requirements: {shortage}"),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.steps.is_empty() && self.withheld.is_empty() {
            return writeln!(f, "nothing to do");
        }
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))?;
        self.withheld.iter().try_for_each(|withheld| writeln!(f, "withheld: {withheld}"))
    }
}
