//! One scenario for each fault of rented machines that the reliability document lists. Each returns its violations.

pub(super) mod lists;
pub(super) mod losses;
pub(super) mod money;
pub(super) mod rents;

use stokehold_fake_vast::Listing;
use stokehold_queue::job::Priority;

use super::fleet::Endpoint;

/// Interactive work and batch work; any GPU here can do both.
const DRAW: Endpoint = Endpoint { name: "draw", class: 10, priority: Priority::Interactive };
const FILM: Endpoint = Endpoint { name: "film", class: 10, priority: Priority::Batch };

/// An offer of $0.42 an hour with its disk.
fn listing() -> Listing {
    Listing { usd_per_hour: 0.4, min_bid_usd_per_hour: 0.2, is_datacenter: true, ..Listing::default() }
}

fn nothing_is_wrong(wrong: &[String]) {
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn an_autoscaler_that_is_killed_in_the_middle_of_a_rent_leaves_a_machine_that_is_adopted_or_destroyed() {
    nothing_is_wrong(&rents::killed_in_the_middle());
}

#[test]
fn a_gpu_that_is_needed_is_found_behind_a_thousand_cheaper_ones() {
    nothing_is_wrong(&rents::large_among_small());
}

#[test]
fn batch_work_that_can_wait_is_bid_for_also_where_offers_fill_many_pages() {
    nothing_is_wrong(&rents::bids_for_batch());
}

#[test]
fn a_rent_whose_answer_is_lost_is_found_and_never_repeated() {
    nothing_is_wrong(&rents::answer_lost());
}

#[test]
fn a_machine_that_the_list_lacks_at_first_is_not_bought_twice() {
    nothing_is_wrong(&rents::hidden_for_a_while());
}

#[test]
fn a_machine_that_was_given_up_and_shows_after_all_is_destroyed() {
    nothing_is_wrong(&rents::hidden_for_long());
}

#[test]
fn two_autoscalers_one_of_which_stands_still_in_the_middle_of_rents_keep_the_limits() {
    nothing_is_wrong(&rents::two_at_once());
}

#[test]
fn while_the_list_is_empty_nothing_is_rented_or_given_back_and_afterwards_it_goes_on() {
    nothing_is_wrong(&lists::empty());
}

#[test]
fn while_the_list_says_that_there_is_nothing_it_is_not_believed_and_afterwards_it_goes_on() {
    nothing_is_wrong(&lists::bare());
}

#[test]
fn while_the_list_is_partial_nothing_is_rented_or_given_back_and_afterwards_it_goes_on() {
    nothing_is_wrong(&lists::partial());
}

#[test]
fn while_the_list_is_a_page_for_people_nothing_is_rented_or_given_back_and_afterwards_it_goes_on() {
    nothing_is_wrong(&lists::html());
}

#[test]
fn a_budget_holds_at_every_moment_and_what_somebody_waits_for_goes_first() {
    nothing_is_wrong(&money::budget());
}

#[test]
fn the_hourly_limit_holds_against_what_is_charged_and_hosts_that_say_less_are_left_alone() {
    nothing_is_wrong(&money::overcharged());
}

#[test]
fn until_the_bill_comes_estimates_are_within_two_percent_of_it() {
    nothing_is_wrong(&money::estimates());
}

#[test]
fn a_destroy_that_fails_for_hours_is_asked_again_for_ever_and_its_machine_counts() {
    nothing_is_wrong(&money::destroy_fails());
}

#[test]
fn below_the_least_credit_nothing_is_rented_until_somebody_pays() {
    nothing_is_wrong(&money::credit());
}

#[test]
fn machines_that_are_outbid_are_destroyed_their_jobs_end_elsewhere_and_bids_cost_less() {
    nothing_is_wrong(&losses::outbid());
}
