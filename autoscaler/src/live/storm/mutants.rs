//! Mutation test of storms and scenarios: at least one of them must catch each planted bug.

use super::planted::{MUTANTS, with};
use super::scenarios::{lists, losses, money, rents};
use super::{ROUNDS, run};

type Scenario = (&'static str, fn() -> Vec<String>);

const SCENARIOS: [Scenario; 13] = [
    ("killed in the middle of a rent", rents::killed_in_the_middle),
    ("answer lost", rents::answer_lost),
    ("hidden for a while", rents::hidden_for_a_while),
    ("hidden for long", rents::hidden_for_long),
    ("two at once", rents::two_at_once),
    ("empty list", lists::empty),
    ("bare list", lists::bare),
    ("partial list", lists::partial),
    ("page for people", lists::html),
    ("budget", money::budget),
    ("destroy fails", money::destroy_fails),
    ("credit", money::credit),
    ("outbid", losses::outbid),
];

/// Seeds of the storms, which run after the scenarios because they take longer.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=4;

/// The first scenario or storm that catches a bug, and its finding.
fn caught(name: &'static str) -> Option<(String, String)> {
    let of = |run: &dyn Fn() -> Vec<String>| {
        // A bug may also end in a panic of the scenario.
        let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| with(name, run)));
        played.unwrap_or_else(|_| vec!["a panic".to_owned()]).into_iter().next()
    };
    let scenario = SCENARIOS.iter().find_map(|(by, run)| Some(((*by).to_owned(), of(run)?)));
    scenario.or_else(|| {
        SEEDS.into_iter().find_map(|seed| Some((format!("storm {seed}"), of(&|| run(seed, ROUNDS).wrong)?)))
    })
}

#[test]
#[ignore = "minutes; `make storm-mutants` runs it"]
fn every_planted_bug_is_caught() {
    let (first, second) = MUTANTS.split_at(MUTANTS.len() / 2);
    let escaped: Vec<&str> = std::thread::scope(|scope| {
        let of = |half: &'static [(&str, &str)]| {
            scope.spawn(move || {
                half.iter()
                    .filter_map(|(name, _)| {
                        let caught = caught(name);
                        println!("{name}: {caught:?}");
                        caught.is_none().then_some(*name)
                    })
                    .collect::<Vec<_>>()
            })
        };
        let threads = [of(first), of(second)];
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(escaped, [""; 0]);
}
