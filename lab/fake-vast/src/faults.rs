//! Faults that can be injected, one by one.

use serde::{Deserialize, Serialize};
use stokehold_vast::Route;

use crate::draw::Draw;

/// Appearance of an instance that lost its GPUs to a higher bid. Reports differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutbidLook {
    /// `actual_status` is `exited`, the rest `stopped`, and the message reports success.
    #[default]
    Exited,
    /// All states are `stopped`.
    Stopped,
    /// `actual_status` is `loading`, the rest `stopped`.
    Loading,
    /// `actual_status` is `exited`, and the intended state is still running.
    StillIntended,
}

/// A fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// The call is lost before it is carried out.
    DropBefore {
        /// The connection stays open; otherwise it is closed.
        #[serde(default)]
        hold: bool,
    },
    /// The call is carried out and its response is lost.
    DropAfter {
        /// The connection stays open; otherwise it is closed.
        #[serde(default)]
        hold: bool,
    },
    /// An error response; the call is not carried out.
    StatusBefore {
        /// Status, e.g. 500 or 502.
        status: u16,
    },
    /// An error response, although the call is carried out.
    StatusAfter {
        /// Status, e.g. 500 or 502.
        status: u16,
    },
    /// Too many calls.
    TooMany {
        /// Value of the header `Retry-After`, seconds.
        #[serde(default)]
        retry_after_s: Option<f64>,
    },
    /// The daily quota of searches is exhausted.
    SearchQuota,
    /// Status 200 with a body that reports a failure.
    Unsuccessful {
        /// Message of the body.
        #[serde(default)]
        message: String,
    },
    /// An error response to a rent that carries the ID of an instance, which is created and stopped.
    RefusedButCreated,
    /// The instance costs a multiple of the price of its offer.
    ChargedTimes {
        /// The factor; less than 1 makes it cheaper.
        factor: f64,
    },
    /// The offer is gone.
    NoSuchAsk {
        /// Status: 400, 404 or 410.
        status: u16,
    },
    /// The account has no credit.
    InsufficientCredit,
    /// Status 404 with a message about the key or the session.
    NotFoundForAuth,
    /// Status 401.
    Unauthorized,
    /// A list without rows.
    EmptyList,
    /// A list without every second row; its counts and its token are those of the whole list.
    PartialList,
    /// JSON that is cut in the middle.
    Malformed,
    /// An HTML page with status 200.
    Html,
    /// JSON of another type.
    WrongType,
    /// A search leaves some offers out, different ones each time.
    Varying {
        /// Share of the offers that are returned, 0 to 1.
        keep: f64,
    },
    /// A start waits for GPUs although they are free.
    QueuedStart {
        /// Duration, seconds.
        for_s: f64,
    },
    /// A new instance is missing from lists.
    HiddenAtFirst {
        /// Duration, seconds.
        for_s: f64,
    },
    /// An instance loads and never runs.
    StuckLoading,
    /// An instance is created and its container runtime fails.
    RuntimeError,
    /// An instance boots more slowly.
    SlowBoot {
        /// Factor of the time to boot.
        factor: f64,
    },
    /// A destroyed instance is still listed.
    Ghost {
        /// Duration, seconds.
        for_s: f64,
    },
    /// The host is disconnected.
    HostOffline {
        /// Time since the start of the run, seconds.
        after_s: f64,
        /// Duration, seconds.
        for_s: f64,
    },
    /// The host sends no heartbeats.
    HostUnknown {
        /// Time since the start of the run, seconds.
        after_s: f64,
        /// Duration, seconds.
        for_s: f64,
    },
    /// An interruptible instance loses its GPUs.
    Outbid {
        /// Time since the start of the run, seconds.
        after_s: f64,
        /// How the instance looks afterwards.
        #[serde(default)]
        look: OutbidLook,
    },
    /// The container exits by itself.
    Exit {
        /// Time since the start of the run, seconds.
        after_s: f64,
    },
    /// The host requests a higher price.
    PriceIncrease {
        /// Time since the start of the run, seconds.
        after_s: f64,
        /// Factor of the price.
        factor: f64,
    },
}

/// The point at which a fault is injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    /// A call.
    Call(Route),
    /// The creation of an instance.
    Boot,
    /// The start of a run.
    Run,
    /// The destruction of an instance.
    End,
}

impl Fault {
    fn is_of(&self, point: Point) -> bool {
        match self {
            Self::HiddenAtFirst { .. } | Self::StuckLoading | Self::RuntimeError | Self::SlowBoot { .. } => {
                point == Point::Boot
            }
            Self::HostOffline { .. }
            | Self::HostUnknown { .. }
            | Self::Outbid { .. }
            | Self::Exit { .. }
            | Self::PriceIncrease { .. } => point == Point::Run,
            Self::Ghost { .. } => point == Point::End,
            Self::EmptyList | Self::PartialList => {
                matches!(point, Point::Call(Route::Search | Route::List | Route::ListOld))
            }
            Self::Varying { .. } | Self::SearchQuota => point == Point::Call(Route::Search),
            Self::ChargedTimes { .. } | Self::RefusedButCreated | Self::NoSuchAsk { .. } | Self::InsufficientCredit => {
                point == Point::Call(Route::Rent)
            }
            Self::QueuedStart { .. } => matches!(point, Point::Call(Route::Set | Route::SetMany)),
            Self::DropBefore { .. }
            | Self::DropAfter { .. }
            | Self::StatusBefore { .. }
            | Self::StatusAfter { .. }
            | Self::TooMany { .. }
            | Self::Unsuccessful { .. }
            | Self::NotFoundForAuth
            | Self::Unauthorized
            | Self::Malformed
            | Self::Html
            | Self::WrongType => matches!(point, Point::Call(_)),
        }
    }
}

/// A fault and the conditions under which it is injected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The call to which it applies; `None`: every call to which the fault can apply.
    #[serde(default)]
    pub on: Option<Route>,
    /// The fault.
    pub fault: Fault,
    /// Probability at each occasion.
    #[serde(default = "always")]
    pub probability: f64,
    /// Maximum number of injections.
    #[serde(default)]
    pub count: Option<u32>,
    /// Start of the period, seconds.
    #[serde(default)]
    pub from_s: Option<f64>,
    /// End of the period, seconds.
    #[serde(default)]
    pub until_s: Option<f64>,
}

fn always() -> f64 {
    1.0
}

impl Rule {
    /// Injects the fault at every occasion.
    #[must_use]
    pub fn of(fault: Fault) -> Self {
        Self { on: None, fault, probability: 1.0, count: None, from_s: None, until_s: None }
    }

    /// Injects the fault at every call of one route.
    #[must_use]
    pub fn on(route: Route, fault: Fault) -> Self {
        Self { on: Some(route), ..Self::of(fault) }
    }

    /// Limits the number of injections.
    #[must_use]
    pub fn times(self, count: u32) -> Self {
        Self { count: Some(count), ..self }
    }

    /// Sets the probability.
    #[must_use]
    pub fn with_probability(self, probability: f64) -> Self {
        Self { probability, ..self }
    }

    /// Sets the end of the period.
    #[must_use]
    pub fn until(self, until_s: f64) -> Self {
        Self { until_s: Some(until_s), ..self }
    }
}

/// All rules.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Faults {
    /// The rules; each is drawn independently.
    pub rules: Vec<Rule>,
}

impl From<Vec<Rule>> for Faults {
    fn from(rules: Vec<Rule>) -> Self {
        Self { rules }
    }
}

impl Faults {
    /// Draws the faults of this occasion.
    pub(crate) fn drawn(&mut self, point: Point, now_s: f64, draw: &mut Draw) -> Vec<Fault> {
        let mut found = Vec::new();
        for rule in &mut self.rules {
            let is_here = match (rule.on, point) {
                (Some(on), Point::Call(route)) => on == route,
                (Some(_), _) => false,
                (None, _) => true,
            };
            let is_now = rule.from_s.is_none_or(|from| from <= now_s) && rule.until_s.is_none_or(|until| now_s < until);
            let is_left = rule.count != Some(0);
            if is_here && is_now && is_left && rule.fault.is_of(point) && draw.chance(rule.probability) {
                rule.count = rule.count.map(|count| count - 1);
                found.push(rule.fault.clone());
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_rule_holds_where_when_and_as_often_as_it_says() {
        let rule = Rule::on(Route::Rent, Fault::StatusAfter { status: 502 }).times(2).until(10.0);
        let mut faults = Faults::from(vec![rule]);
        let mut draw = Draw::new(1, 2);
        let mut at = |route, now_s| faults.drawn(Point::Call(route), now_s, &mut draw).len();
        assert_eq!([at(Route::List, 0.0), at(Route::Rent, 0.0), at(Route::Rent, 10.0)], [0, 1, 0]);
        assert_eq!([at(Route::Rent, 5.0), at(Route::Rent, 5.0)], [1, 0]);
    }

    #[test]
    fn faults_are_written_as_json() {
        let text = r#"{"rules":[{"on":"rent","fault":{"kind":"drop_after"},"count":1},{"fault":{"kind":"stuck_loading"},"probability":0.1}]}"#;
        let faults: Faults = serde_json::from_str(text).unwrap();
        assert_eq!(faults.rules[0], Rule::on(Route::Rent, Fault::DropAfter { hold: false }).times(1));
        assert!(serde_json::from_str::<Faults>(r#"{"rules":[{"fault":{"kind":"html"},"probabilty":0.1}]}"#).is_err());
    }
}
