//! Notices for the operator: conditions that prevent work, and since when. Each is logged when it begins and when it is
//! resolved.

use std::collections::{BTreeMap, VecDeque};

use stokehold_planner::plan::Withheld;
use stokehold_planner::{AtBudget, Policy};
use stokehold_queue::registry::{Caps, DECISIONS_MAX, Decision, Granted, MachineRecord, Notice};
use stokehold_units::UsdMicros;

use crate::live::collect::NoOffers;
use crate::provider::ProviderError;

/// Notices and decisions, carried from round to round.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    /// Current notices by kind.
    standing: BTreeMap<String, Notice>,
    round: BTreeMap<String, String>,
    /// Recent decisions, the newest first.
    decisions: VecDeque<Decision>,
    /// Whether a decision was added since the last report.
    is_news: bool,
}

impl Notices {
    pub(crate) fn provider_unreachable(&mut self, provider: &str, failure: &ProviderError) {
        let text = format!("{provider} cannot be reached ({failure}); nothing is rented or given back there");
        self.add(format!("provider_unreachable {provider}"), text);
    }

    pub(crate) fn gateway_unreachable(&mut self) {
        let text = "no worker has sent a heartbeat for a while, so the gateway may be down; machines stay as they are";
        self.add("gateway_unreachable".to_owned(), text.to_owned());
    }

    pub(crate) fn no_offers(&mut self, provider: &str, why: &NoOffers) {
        let (kind, text) = match why {
            NoOffers::Poor { credit, least } => (
                "credit",
                format!(
                    "{provider} has ${credit} of credit left, and nothing is rented below ${least} \
                     (min_credit_usd); add credit"
                ),
            ),
            NoOffers::Failed(why) => ("no_offers", format!("cannot rent at {provider}: {why}")),
        };
        self.add(format!("{kind} {provider}"), text);
    }

    pub(crate) fn unread(&mut self, machines: &[&str]) {
        if !machines.is_empty() {
            let text = format!(
                "the recorded offer of {} cannot be read; the GPUs of each machine are unknown until its worker joins. \
                 Costs, limits and idle times apply to it as to others",
                machines.join(", ")
            );
            self.add("unread_offer".to_owned(), text);
        }
    }

    pub(crate) fn overcharged(&mut self, machines: &[&MachineRecord]) {
        let of = |machine: &&MachineRecord| {
            let agreed = UsdMicros::from(machine.agreed_usd_micros_per_hour.unwrap_or_default());
            let charged = UsdMicros::from(machine.usd_micros_per_hour);
            format!("{} costs ${charged:.3}/h instead of ${agreed:.3}/h", machine.id)
        };
        if !machines.is_empty() {
            let all = machines.iter().map(of).collect::<Vec<_>>().join(", ");
            let text = format!(
                "more is charged than was offered: {all}. Nothing is rented from these hosts for a while, and max_usd_per_hour \
                 applies to the charged prices"
            );
            self.add("overcharged".to_owned(), text);
        }
    }

    pub(crate) fn low(&mut self, spent: UsdMicros, policy: &Policy) {
        let most = policy.max_per_day().unwrap_or_default();
        self.add("budget".to_owned(), format!("${spent} of today's budget of ${most} is spent (max_usd_per_day)"));
    }

    pub(crate) fn spent(&mut self, spent: UsdMicros, policy: &Policy) {
        let goes = match policy.at_budget {
            AtBudget::Drain => "rented machines are given back when their jobs have ended",
            AtBudget::Stop => "rented machines are given back at once",
        };
        let most = policy.max_per_day().unwrap_or_default();
        let text = format!(
            "${spent} of today's budget of ${most} is spent (max_usd_per_day). Nothing is rented until \
             00:00 UTC, and {goes}"
        );
        self.add("budget".to_owned(), text);
    }

    pub(crate) fn withheld(&mut self, withheld: &Withheld) {
        let kind = match withheld {
            Withheld::MaxMachines { .. } => "max_machines",
            Withheld::MaxSpend { .. } => "max_usd_per_hour",
            Withheld::NoOffer { .. } => "no_offer",
        };
        self.add(kind.to_owned(), withheld.to_string());
    }

    pub(crate) fn limited(&mut self, granted: Granted, caps: Caps) {
        let (kind, text) = match granted {
            Granted::Yes | Granted::Stale => return,
            Granted::Machines(machines) => {
                let text = format!(
                    "{machines} machines exist or are being given back; the limit is {} (max_machines)",
                    caps.machines
                );
                ("max_machines", text)
            }
            Granted::Spend(micros) => {
                let (now, most) = (UsdMicros::from(micros), UsdMicros::from(caps.usd_micros_per_hour));
                let text = format!(
                    "machines that exist or are being given back cost ${now}/h; the limit is ${most}/h (max_usd_per_hour)"
                );
                ("max_usd_per_hour", text)
            }
            Granted::Rents(rents) => {
                let text = format!(
                    "{rents} machines were rented within the last hour, which is the limit (max_rents_per_hour); \
                     check whether their workers join"
                );
                ("max_rents_per_hour", text)
            }
        };
        self.add(kind.to_owned(), text);
    }

    /// Adds a decision. A step that fails in every round in the same way is added once.
    pub(crate) fn decided(&mut self, decision: Decision) {
        let same =
            |last: &Decision| Decision { at_ms: last.at_ms, reason: last.reason.clone(), ..decision.clone() } == *last;
        if decision.failure.is_some() && self.decisions.front().is_some_and(same) {
            return;
        }
        self.decisions.push_front(decision);
        self.decisions.truncate(DECISIONS_MAX);
        self.is_news = true;
    }

    /// Recent decisions, the newest first.
    pub(crate) fn decisions(&self) -> Vec<Decision> {
        self.decisions.iter().cloned().collect()
    }

    pub(crate) fn add(&mut self, kind: String, text: String) {
        self.round.entry(kind).or_insert(text);
    }

    /// Ends a round. Returns the current notices and whether anything changed.
    pub(crate) fn end_round(&mut self, now_ms: u64) -> (Vec<Notice>, bool) {
        let round = std::mem::take(&mut self.round);
        let mut changed = std::mem::take(&mut self.is_news);
        self.standing.retain(|kind, notice| {
            let stands = round.contains_key(kind);
            if !stands {
                tracing::info!(notice = kind, "resolved: {}", notice.text);
                changed = true;
            }
            stands
        });
        for (kind, text) in round {
            match self.standing.get_mut(&kind) {
                Some(notice) => notice.text = text,
                None => {
                    tracing::warn!(notice = kind, "{text}");
                    changed = true;
                    self.standing.insert(kind.clone(), Notice { kind, text, since_ms: now_ms });
                }
            }
        }
        (self.standing.values().cloned().collect(), changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_stands_for_as_long_as_it_is_said() {
        let mut notices = Notices::default();
        let unreachable = ProviderError::Unknown("HTML".to_owned());
        notices.provider_unreachable("vast", &unreachable);
        let (standing, changed) = notices.end_round(1_000);
        assert!(changed && standing[0].text.contains("nothing is rented or given back"));
        notices.provider_unreachable("vast", &ProviderError::Unknown("empty".to_owned()));
        let (standing, changed) = notices.end_round(2_000);
        assert_eq!((standing[0].since_ms, changed), (1_000, false), "it goes on");
        assert!(standing[0].text.contains("empty"));
        assert_eq!(notices.end_round(3_000), (vec![], true));
    }

    #[test]
    fn what_was_done_is_told_newest_first_and_what_keeps_failing_once() {
        let decision = |at_ms, action: &str, failure: Option<&str>| Decision {
            at_ms,
            action: action.to_owned(),
            reason: format!("{at_ms} jobs wait"),
            machine: None,
            failure: failure.map(str::to_owned),
        };
        let mut notices = Notices::default();
        notices.decided(decision(1, "rent", None));
        notices.decided(decision(2, "stop", Some("refused")));
        notices.decided(decision(3, "stop", Some("refused")));
        notices.decided(decision(4, "stop", None));
        let at: Vec<u64> = notices.decisions().iter().map(|decision| decision.at_ms).collect();
        assert_eq!(at, [4, 2, 1]);
        assert!(notices.end_round(5).1 && !notices.end_round(6).1, "news are told at once, and once");
        (0..100).for_each(|at_ms| notices.decided(decision(at_ms, "rent", None)));
        assert_eq!(notices.decisions().len(), DECISIONS_MAX);
    }
}
