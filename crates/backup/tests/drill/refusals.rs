//! Backups that are not restored, and the errors.

use bytes::Bytes;
use stokehold_backup::{BackupId, BackupKeys, Error};
use stokehold_queue::{RedisConfig, Shards};

use crate::world::{World, populate};

async fn world() -> World {
    let world = World::new().await;
    populate(&world.queue().await, &world.objects, 200).await;
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_holds_something_is_refused_and_left_as_it_is() {
    let world = world().await;
    world.backup().await;
    let error = world.restore(None).await.unwrap_err();
    let Error::Occupied(keys) = &error else { panic!("{error}") };
    assert!(!keys.is_empty() && error.to_string().contains("Nothing was written"), "{error}");
    // Another prefix has room.
    let beside = RedisConfig { prefix: "other*".to_owned(), ..world.redis() };
    let outcome = world.restore_with(beside, &world.keys, None).await.unwrap();
    assert_eq!(outcome.differences, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_number_of_shards_may_be_larger() {
    let world = world().await;
    world.backup().await;
    world.wipe().await;
    let fewer = RedisConfig { shards: 1, ..world.redis() };
    let error = world.restore_with(fewer, &world.keys, None).await.unwrap_err();
    assert!(matches!(error, Error::FewerShards { wanted: 2, here: 1 }), "{error}");
    let more = RedisConfig { shards: 4, ..world.redis() };
    assert_eq!(world.restore_with(more, &world.keys, None).await.unwrap().differences, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_key_is_named_and_an_old_one_still_opens() {
    let world = world().await;
    let manifest = world.backup().await;
    world.wipe().await;
    let other = BackupKeys::parse(&"77".repeat(32)).unwrap();
    let error = world.restore_with(world.redis(), &other, None).await.unwrap_err();
    assert!(matches!(&error, Error::WrongKey { wanted, .. } if *wanted == manifest.key), "{error}");
    let rotated = BackupKeys::parse(&format!("{},{}", "77".repeat(32), "5a".repeat(32))).unwrap();
    assert_eq!(world.restore_with(world.redis(), &rotated, None).await.unwrap().differences, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_backup_is_none() {
    let world = world().await;
    let whole = world.backup().await;
    let half = BackupId::new(whole.ended_ms + 60_000);
    world.objects.put(&format!("backups/{half}/part-00001"), Bytes::from_static(b"?"), "x/y").await.unwrap();
    let listed = world.store.list().await.unwrap();
    assert_eq!(listed.iter().map(|listed| listed.manifest.is_some()).collect::<Vec<_>>(), [true, false]);
    world.wipe().await;
    let error = world.restore(Some(&half)).await.unwrap_err();
    assert!(matches!(error, Error::NotFound(_)), "{error}");
    assert_eq!(world.restore(None).await.unwrap().manifest.id, whole.id, "the newest whole one");
    // A day later there is no backup any more.
    let day_ms = 24 * 60 * 60 * 1_000;
    assert_eq!(world.store.thin_out(whole.ended_ms).await.unwrap(), []);
    assert_eq!(world.store.thin_out(half.began_ms() + day_ms).await.unwrap(), [half]);
    assert_eq!(world.store.list().await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_part_is_named_and_nobody_starts_on_half_a_queue() {
    let world = world().await;
    let manifest = world.backup().await;
    let key = format!("backups/{}/{}", manifest.id, manifest.parts[0].name);
    let body = world.objects.get(&key, u64::MAX).await.unwrap().unwrap();
    let mut changed = body.to_vec();
    changed[100] ^= 1;
    world.objects.put(&key, changed.into(), "x/y").await.unwrap();
    world.wipe().await;
    let error = world.restore(None).await.unwrap_err().to_string();
    assert!(error.contains("part-00001") && error.contains("damaged"), "{error}");
    let Err(refusal) = Shards::connect(world.redis()).await else { panic!("the queue is half") };
    assert!(refusal.to_string().contains(&manifest.id), "{refusal}");
    // Emptied, and with the part as it was, the restore works.
    world.wipe().await;
    world.objects.put(&key, body, "x/y").await.unwrap();
    assert_eq!(world.restore(None).await.unwrap().differences, [""; 0]);
    Shards::connect(world.redis()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn results_that_are_gone_are_counted_and_named() {
    let world = world().await;
    world.backup().await;
    let results: Vec<String> = world.stored("results/").await.into_keys().collect();
    world.objects.delete(&results[..1]).await.unwrap();
    world.wipe().await;
    let outcome = world.restore(None).await.unwrap();
    assert_eq!((outcome.missing_results, outcome.missing.as_slice()), (1, &results[..1]));
    assert!(!outcome.is_whole() && outcome.differences.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_listed_kept_and_passed_over() {
    let world = world().await;
    let whole = world.backup().await;
    let manifest = world.objects.get(&format!("backups/{}/manifest.json", whole.id), u64::MAX).await.unwrap().unwrap();
    let [newer, moved] = [BackupId::new(whole.ended_ms + 60_000), BackupId::new(whole.ended_ms + 120_000)];
    let later = Bytes::from_static(br#"{"format": 99, "release": "9.0.0"}"#);
    for (id, body) in [(&newer, later), (&moved, manifest)] {
        world.objects.put(&format!("backups/{id}/manifest.json"), body, "x/y").await.unwrap();
    }
    let listed = world.store.list().await.unwrap();
    let said: Vec<String> = listed.iter().filter_map(|listed| listed.unreadable.clone()).collect();
    assert!(said.len() == 2 && said[0].contains("9.0.0") && said[1].contains(&whole.id), "{said:?}");
    let year_ms = 365 * 24 * 60 * 60 * 1_000;
    assert_eq!(world.store.thin_out(whole.ended_ms + year_ms).await.unwrap(), []);
    world.wipe().await;
    assert_eq!(world.restore(None).await.unwrap().manifest.id, whole.id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_years_ahead_costs_ten_backups_and_not_all() {
    let world = world().await;
    let whole = world.backup().await;
    let seal = world.objects.get(&format!("backups/{}/manifest.json", whole.id), u64::MAX).await.unwrap().unwrap();
    let text = String::from_utf8(seal.to_vec()).unwrap();
    for hours in 1..=15 {
        let id = BackupId::new(whole.began_ms + hours * 3_600_000);
        let body = text.replace(&whole.id, id.as_str());
        world.objects.put(&format!("backups/{id}/manifest.json"), body.into(), "x/y").await.unwrap();
    }
    let decade_ms = 10 * 366 * 24 * 60 * 60 * 1_000;
    let gone = world.store.thin_out(whole.began_ms + decade_ms).await.unwrap();
    assert_eq!((gone.len(), world.store.list().await.unwrap().len()), (10, 6));
}
