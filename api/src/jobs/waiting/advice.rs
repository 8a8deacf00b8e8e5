//! An addition to the reason of a job that no worker here could ever run: why the autoscaler has not rented an instance
//! for it. Pure.

use stokehold_queue::registry::{AutoscalerStatus, Notice};

use crate::workers::fleet::Waiting;

/// Kinds of the autoscaler's notices that prevent rentals, and the reason in words; the most general ones first. The
/// texts of the notices are for the operator: they name amounts.
const PREVENTS: [(&str, &str); 8] = [
    ("budget", "its budget for today (max_usd_per_day) is spent or almost spent"),
    ("max_usd_per_hour", "its limit of the cost per hour (max_usd_per_hour) is reached"),
    ("max_machines", "its limit of instances (max_machines) is reached"),
    ("max_rents_per_hour", "its limit of rentals per hour (max_rents_per_hour) is reached"),
    ("credit", "the credit at its provider is below its minimum (min_credit_usd)"),
    ("provider_unreachable", "its provider cannot be reached"),
    ("no_offers", "the offers of its provider cannot be read"),
    ("no_offer", "no offer meets the requirements of jobs that wait"),
];

/// Adds to the reason for which no worker could ever run a job why the autoscaler has not rented one that could.
/// `status` is that of an autoscaler that runs. Without one, the reason remains as it is, with its advice to start a
/// worker.
pub(super) fn with_advice(waiting: Waiting, has_no_workers: bool, status: Option<&AutoscalerStatus>) -> Waiting {
    let (Waiting::Unschedulable(why), Some(status)) = (&waiting, status) else { return waiting };
    let why = if has_no_workers { "there are no workers" } else { why };
    Waiting::Unschedulable(match prevents(status) {
        Some(prevents) => format!("{why}, and the autoscaler rents no instance: {prevents}"),
        None => format!("{why}; the autoscaler runs and has not rented an instance for the job yet"),
    })
}

/// The first condition that keeps the autoscaler from renting.
fn prevents(status: &AutoscalerStatus) -> Option<&'static str> {
    let is_of = |notice: &Notice, kind: &str| notice.kind.split(' ').next() == Some(kind);
    let noticed = PREVENTS.iter().find(|(kind, _)| status.notices.iter().any(|notice| is_of(notice, kind)));
    let failed = status.decisions.iter().find(|decision| matches!(decision.action.as_str(), "rent" | "resume"));
    let failed = failed.filter(|decision| decision.failure.is_some());
    noticed.map(|(_, words)| *words).or_else(|| failed.map(|_| "its last attempt failed"))
}

#[cfg(test)]
mod tests {
    use stokehold_queue::registry::Decision;

    use super::*;

    fn notices(kinds: &[&str]) -> AutoscalerStatus {
        let notice = |kind: &&str| Notice { kind: (*kind).to_owned(), text: "$5 of $5".to_owned(), since_ms: 1 };
        AutoscalerStatus { notices: kinds.iter().map(notice).collect(), ..AutoscalerStatus::default() }
    }

    fn advised(has_no_workers: bool, status: Option<&AutoscalerStatus>) -> String {
        let waiting = Waiting::Unschedulable("no worker has a GPU".to_owned());
        match with_advice(waiting, has_no_workers, status) {
            Waiting::Unschedulable(why) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_autoscaler_that_runs_names_what_keeps_it_from_renting() {
        assert_eq!(advised(true, None), "no worker has a GPU", "no autoscaler");
        assert_eq!(
            advised(true, Some(&notices(&["gateway_unreachable", "no_offer", "credit vast"]))),
            "there are no workers, and the autoscaler rents no instance: the credit at its provider is below its \
             minimum (min_credit_usd)"
        );
        assert_eq!(
            advised(false, Some(&notices(&["no_offer"]))),
            "no worker has a GPU, and the autoscaler rents no instance: no offer meets the requirements of jobs that \
             wait"
        );
        assert_eq!(
            advised(true, Some(&notices(&[]))),
            "there are no workers; the autoscaler runs and has not rented an instance for the job yet"
        );
    }

    #[test]
    fn only_the_last_rental_counts() {
        let decision = |failure: Option<&str>| Decision {
            at_ms: 1,
            action: "rent".to_owned(),
            reason: String::new(),
            machine: None,
            failure: failure.map(str::to_owned),
        };
        let of = |decisions| AutoscalerStatus { decisions, ..AutoscalerStatus::default() };
        let failed = of(vec![decision(Some("402")), decision(None)]);
        assert!(advised(true, Some(&failed)).ends_with("rents no instance: its last attempt failed"));
        let done = of(vec![decision(None), decision(Some("402"))]);
        assert!(advised(true, Some(&done)).ends_with("has not rented an instance for the job yet"));
    }

    #[test]
    fn only_a_job_that_nothing_could_run_has_advice() {
        let busy = Waiting::Busy("every slot is in use".to_owned());
        assert_eq!(with_advice(busy.clone(), false, Some(&notices(&["budget"]))), busy);
    }
}
