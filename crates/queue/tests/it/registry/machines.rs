//! Rented instances, the autoscaler that leads, and join tokens of instances.

use stokehold_queue::registry::{AutoscalerStatus, Caps, Granted, MachineRecord, Wanted};
use stokehold_queue::{Clock, Error, TokenRecord, now_ms};

use super::token;
use crate::redis::{queue, server};

#[tokio::test]
async fn a_single_use_token_is_claimed_once() {
    let (server, _dir) = server(&[]);
    let registry = queue(&server, Clock::Own).await.registry();
    let token = token("00");
    registry.put_token(&token).await.unwrap();
    assert_eq!(registry.tokens().await.unwrap(), std::slice::from_ref(&token));
    let (one, two) = tokio::join!(registry.claim_token(&token.id), registry.claim_token(&token.id));
    assert_eq!([one.unwrap(), two.unwrap()].iter().flatten().count(), 1);
    assert_eq!(registry.tokens().await.unwrap(), []);
}

#[tokio::test]
async fn a_machines_token_gives_way_to_the_next_once_and_goes_with_its_machine() {
    let (server, _dir) = server(&[]);
    let registry = queue(&server, Clock::Own).await.registry();
    let term = registry.lead("one", 60_000).await.unwrap().unwrap();
    registry.put_machine(term, &machine("m1")).await.unwrap();
    assert_eq!(registry.machine("m1").await.unwrap(), Some(machine("m1")));
    assert_eq!(registry.machine("m2").await.unwrap(), None);
    let first =
        TokenRecord { id: TokenRecord::id_of_machine("m1"), expires_ms: Some(now_ms() + 60_000), ..token("00") };
    let next = TokenRecord { hash: "11".into(), expires_ms: None, ..first.clone() };
    assert!(!registry.swap_token("00", &next).await.unwrap(), "there is none yet");
    registry.put_token(&first).await.unwrap();
    let (one, two) = tokio::join!(registry.swap_token("00", &next), registry.swap_token("00", &next));
    assert_eq!(u8::from(one.unwrap()) + u8::from(two.unwrap()), 1);
    assert_eq!(registry.token(&first.id).await.unwrap(), Some(next));

    assert!(registry.drop_machine(term, "m1").await.unwrap());
    assert_eq!(registry.token(&first.id).await.unwrap(), None);
    assert_eq!(registry.tokens().await.unwrap(), []);
}

fn machine(id: &str) -> MachineRecord {
    MachineRecord {
        id: id.to_owned(),
        provider: "cloud".to_owned(),
        rental: None,
        offer: serde_json::Value::Null,
        wanted: Wanted::Running,
        wanted_ms: 1,
        is_done: false,
        rented_ms: 1,
        drained_ms: None,
        then: None,
        usd_micros_per_hour: 0,
        agreed_usd_micros_per_hour: None,
        booting_usd_micros_per_hour: None,
        made_ms: None,
        listed_ms: None,
        released_ms: None,
        stopped_usd_micros_per_hour: 0,
        is_interruptible: false,
        missed_ms: None,
        on_disk: Vec::new(),
    }
}

#[tokio::test]
async fn of_two_autoscalers_only_the_one_that_leads_writes_machines_down() {
    let (server, _dir) = server(&[]);
    let registry = queue(&server, Clock::Own).await.registry();
    let first = registry.lead("first", 60_000).await.unwrap().expect("nobody else leads");
    assert_eq!(registry.lead("second", 60_000).await.unwrap(), None);
    assert_eq!(registry.lead("first", 60_000).await.unwrap(), Some(first), "the same term goes on");
    assert!(registry.put_machine(first, &machine("m-1")).await.unwrap());
    assert!(registry.drain(first, "m-1", Some(7)).await.unwrap());

    registry.lead("first", 0).await.unwrap();
    let second = registry.lead("second", 60_000).await.unwrap().expect("the lead was given up");
    assert!(second > first);
    assert!(!registry.put_machine(first, &machine("m-2")).await.unwrap(), "its term is over");
    assert!(!registry.shun(first, "box", 9).await.unwrap());
    assert_eq!(registry.machines().await.unwrap().into_keys().collect::<Vec<_>>(), ["m-1"]);
    assert_eq!(registry.drains().await.unwrap(), [("m-1".to_owned(), 7)].into());
    assert!(registry.drop_machine(second, "m-1").await.unwrap());
    assert!(registry.machines().await.unwrap().is_empty() && registry.drains().await.unwrap().is_empty());
}

#[tokio::test]
async fn an_instance_whose_record_cannot_be_read_hides_no_other() {
    let (server, _dir) = server(&[]);
    let registry = queue(&server, Clock::Own).await.registry();
    let term = registry.lead("first", 60_000).await.unwrap().expect("nobody else leads");
    assert!(registry.put_machine(term, &machine("m-1")).await.unwrap());
    let status = AutoscalerStatus { at_ms: 1_000, ..AutoscalerStatus::default() };
    assert!(registry.put_autoscaler(term, &status).await.unwrap());
    assert_eq!(registry.autoscaler().await.unwrap(), Some(status.clone()));
    assert!(status.is_current(60_999) && !status.is_current(61_000));

    for (name, field) in [("machines", "m-2"), ("autoscaler", "status")] {
        let keys: Vec<String> = server.ask(&["KEYS", &format!("*:registry}}:{name}")]);
        let [key] = keys.as_slice() else { panic!("{keys:?}") };
        server.ask::<u32>(&["HSET", key, field, "{"]);
    }
    assert_eq!(registry.machines().await.unwrap().into_keys().collect::<Vec<_>>(), ["m-1"]);
    assert_eq!(registry.autoscaler().await.unwrap(), None);
    // The autoscaler would give back an instance that it does not find here.
    assert!(matches!(registry.every_machine().await, Err(Error::Corrupt { .. })));
}

#[tokio::test]
async fn machines_are_only_rented_within_the_limits_whoever_asks() {
    let (server, _dir) = server(&[]);
    let registry = queue(&server, Clock::Own).await.registry();
    let term = registry.lead("first", 60_000).await.unwrap().expect("nobody else leads");
    let caps = Caps { machines: 3, usd_micros_per_hour: 1_000_000, rents: 4, window_ms: 60_000 };
    let costing = |id: &str| MachineRecord { usd_micros_per_hour: 400_000, is_done: true, ..machine(id) };
    let (rented_of, costing_of) = (&registry, &costing);
    let rent = |id: &'static str, at_ms| async move {
        rented_of.rent(term, &costing_of(id), caps, Some(at_ms)).await.unwrap()
    };
    assert_eq!(rent("m-1", 1_000).await, Granted::Yes);
    assert_eq!(rent("m-1", 1_000).await, Granted::Yes, "it is the same");
    assert_eq!(rent("m-2", 2_000).await, Granted::Yes);
    assert_eq!(rent("m-3", 3_000).await, Granted::Spend(800_000));
    let ending = MachineRecord { wanted: Wanted::Gone, ..costing("m-2") };
    assert!(registry.put_machine(term, &ending).await.unwrap());
    assert_eq!(rent("m-3", 4_000).await, Granted::Spend(800_000), "it may be there still");
    let stopped = MachineRecord { wanted: Wanted::Stopped, stopped_usd_micros_per_hour: 100_000, ..costing("m-2") };
    assert!(registry.put_machine(term, &stopped).await.unwrap());
    assert_eq!(rent("m-3", 5_000).await, Granted::Yes, "a disk costs less");
    assert_eq!(rent("m-2", 6_000).await, Granted::Spend(800_000), "to be resumed it is counted anew");
    assert!(registry.drop_machine(term, "m-3").await.unwrap());
    assert_eq!(rent("m-4", 7_000).await, Granted::Yes);
    assert!(registry.drop_machine(term, "m-4").await.unwrap());
    assert_eq!(rent("m-5", 8_000).await, Granted::Rents(4), "as many as may be within a minute");
    assert_eq!(rent("m-5", 61_500).await, Granted::Yes);
    let many = Caps { machines: 2, ..caps };
    assert_eq!(registry.rent(term, &machine("desk"), many, Some(62_000)).await.unwrap(), Granted::Machines(2));
    assert_eq!(registry.rent(0.into(), &machine("desk"), caps, Some(62_000)).await.unwrap(), Granted::Stale);
}
