//! Everything that goes wrong, switchable one by one.

use serde::{Deserialize, Serialize};
use stokehold_vast::Route;

use crate::draw::Draw;

/// How an instance looks that lost its cards to a higher bid. Reports differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutbidLook {
    /// `actual_status` is `exited`, the rest `stopped`, the message still that of success.
    #[default]
    Exited,
    /// All are `stopped`.
    Stopped,
    /// `actual_status` is `loading`, the rest `stopped`.
    Loading,
    /// `actual_status` is `exited`, and it is still intended to run.
    StillIntended,
}

/// One thing that goes wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// The call is lost before anything is done.
    DropBefore {
        /// The connection stays open; it is closed otherwise.
        #[serde(default)]
        hold: bool,
    },
    /// What was asked for is done and the answer is lost.
    DropAfter {
        /// The connection stays open; it is closed otherwise.
        #[serde(default)]
        hold: bool,
    },
    /// An error, and nothing is done.
    StatusBefore {
        /// 500, 502 ...
        status: u16,
    },
    /// An error, and yet it is done.
    StatusAfter {
        /// 500, 502 ...
        status: u16,
    },
    /// Too many calls.
    TooMany {
        /// Said in the header.
        #[serde(default)]
        retry_after_s: Option<f64>,
    },
    /// The searches of the day are used up.
    SearchQuota,
    /// 200, and the body says no.
    Unsuccessful {
        /// Its text.
        #[serde(default)]
        message: String,
    },
    /// A rent is answered by an error that carries the instance, which is made and stopped.
    RefusedButCreated,
    /// What is rented costs so many times what its offer said.
    ChargedTimes {
        /// Less than 1: it costs less.
        factor: f64,
    },
    /// The offer is gone.
    NoSuchAsk {
        /// 400, 404 or 410.
        status: u16,
    },
    /// The account is said to have no money.
    InsufficientCredit,
    /// 404 with a text about the key or the session.
    NotFoundForAuth,
    /// 401.
    Unauthorized,
    /// A list without rows.
    EmptyList,
    /// Every second row of a list is missing, the counts and the token are as if they were there.
    PartialList,
    /// JSON that ends in the middle.
    Malformed,
    /// A page for people, with 200.
    Html,
    /// JSON of another type.
    WrongType,
    /// A search leaves some offers out, others each time.
    Varying {
        /// The share that is left.
        keep: f64,
    },
    /// A start waits for cards though they are free.
    QueuedStart {
        /// For how long.
        for_s: f64,
    },
    /// A new instance is missing from lists.
    HiddenAtFirst {
        /// For how long.
        for_s: f64,
    },
    /// It loads and never runs.
    StuckLoading,
    /// It is created and the container runtime fails.
    RuntimeError,
    /// It boots so many times slower.
    SlowBoot {
        /// How many times.
        factor: f64,
    },
    /// What is destroyed is still listed.
    Ghost {
        /// For how long.
        for_s: f64,
    },
    /// The host is disconnected.
    HostOffline {
        /// Into the run.
        after_s: f64,
        /// For how long.
        for_s: f64,
    },
    /// The host sends no heartbeat.
    HostUnknown {
        /// Into the run.
        after_s: f64,
        /// For how long.
        for_s: f64,
    },
    /// An interruptible loses its cards.
    Outbid {
        /// Into the run.
        after_s: f64,
        /// What is seen of it.
        #[serde(default)]
        look: OutbidLook,
    },
    /// The container ends by itself.
    Exit {
        /// Into the run.
        after_s: f64,
    },
    /// The host asks for more.
    PriceIncrease {
        /// Into the run.
        after_s: f64,
        /// How many times the price.
        factor: f64,
    },
}

/// At what moment a fault can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    /// A call.
    Call(Route),
    /// An instance is made.
    Boot,
    /// An instance begins to run.
    Run,
    /// An instance is destroyed.
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

/// When which fault is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Calls of this route alone; without, of every route that the fault can be at.
    #[serde(default)]
    pub on: Option<Route>,
    /// What goes wrong.
    pub fault: Fault,
    /// Each time with this chance.
    #[serde(default = "always")]
    pub probability: f64,
    /// At most so often.
    #[serde(default)]
    pub count: Option<u32>,
    /// Not before.
    #[serde(default)]
    pub from_s: Option<f64>,
    /// Not from here on.
    #[serde(default)]
    pub until_s: Option<f64>,
}

fn always() -> f64 {
    1.0
}

impl Rule {
    /// Always, where the fault can be.
    #[must_use]
    pub fn of(fault: Fault) -> Self {
        Self { on: None, fault, probability: 1.0, count: None, from_s: None, until_s: None }
    }

    /// Always, at calls of one route.
    #[must_use]
    pub fn on(route: Route, fault: Fault) -> Self {
        Self { on: Some(route), ..Self::of(fault) }
    }

    /// So often and no more.
    #[must_use]
    pub fn times(self, count: u32) -> Self {
        Self { count: Some(count), ..self }
    }

    /// With a chance.
    #[must_use]
    pub fn with_probability(self, probability: f64) -> Self {
        Self { probability, ..self }
    }

    /// Until a moment.
    #[must_use]
    pub fn until(self, until_s: f64) -> Self {
        Self { until_s: Some(until_s), ..self }
    }
}

/// All that goes wrong.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Faults {
    /// Each is drawn by itself.
    pub rules: Vec<Rule>,
}

impl From<Vec<Rule>> for Faults {
    fn from(rules: Vec<Rule>) -> Self {
        Self { rules }
    }
}

impl Faults {
    /// What goes wrong now, at this point.
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
