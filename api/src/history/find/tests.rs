use std::collections::BTreeSet;

use stokehold_objects::store::{self, StoreConfig};
use stokehold_objects::{Objects, ObjectsConfig};
use stokehold_queue::job::JobState;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::super::segment::tests::ended;
use super::super::segment::{Line, cut};
use super::*;

/// An archive in a real object store, deleted with the test.
struct Archive {
    history: History,
    _ends: DropGuard,
    _dir: TempDir,
}

impl Archive {
    async fn start() -> Self {
        let (dir, ends) = (TempDir::new().unwrap(), CancellationToken::new());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint_url = Some(format!("http://{}", listener.local_addr().unwrap()));
        let (id, secret) = ("test".to_owned(), "test-secret");
        let config =
            StoreConfig { dir: dir.path().to_owned(), access_key_id: id.clone(), secret_access_key: secret.into() };
        tokio::spawn(store::serve(listener, config, ends.clone().cancelled_owned()));
        let config = ObjectsConfig {
            endpoint_url,
            public_url: None,
            region: "us-east-1".to_owned(),
            bucket: "stokehold".to_owned(),
            access_key_id: Some(id),
            secret_access_key: Some(secret.into()),
            path_style: true,
        };
        let objects = Objects::connect(config).await.unwrap();
        objects.ensure_bucket().await.unwrap();
        Self { history: History::new(objects), _ends: ends.drop_guard(), _dir: dir }
    }

    /// Writes one segment with these jobs, all of one day.
    async fn write(&self, jobs: &[&Job]) {
        let lines = jobs.iter().map(|job| Line::of(job).unwrap()).collect();
        for piece in cut(lines) {
            self.history.write("acme", day_of(jobs[0].id), piece).await.unwrap();
        }
    }

    /// Lists all jobs in pages of `limit`.
    async fn list(&self, filter: &ListFilter, limit: usize) -> Vec<JobId> {
        let (mut seen, mut cursor) = (Vec::new(), Cursor(None));
        loop {
            let (jobs, next) = self.history.list("acme", filter, cursor, limit).await.unwrap();
            assert!(jobs.len() <= limit);
            seen.extend(jobs.iter().map(|job| job.id));
            let Some(next) = next else { return seen };
            assert_ne!(next, cursor, "every page goes forward");
            cursor = Cursor::parse(&next.to_string()).unwrap();
        }
    }

    async fn segments(&self, day: Date) -> usize {
        self.history.list_day("acme", day).await.unwrap().names.len()
    }
}

fn jobs(count: usize) -> Vec<Job> {
    (0..count).map(|n| ended("acme", &n.to_string())).collect()
}

/// Copies a job to another day.
fn on_day(job: &Job, ms: u64) -> Job {
    let id = format!("{ms:012x}{}", &job.id.to_string()[12..]);
    Job { id: id.parse().unwrap(), ..job.clone() }
}

fn newest_first(jobs: &[Job]) -> Vec<JobId> {
    let ids: BTreeSet<JobId> = jobs.iter().map(|job| job.id).collect();
    ids.into_iter().rev().collect()
}

#[tokio::test]
async fn archived_jobs_are_found_by_id_and_only_by_their_tenant() {
    let archive = Archive::start().await;
    let jobs = jobs(3);
    assert!(archive.history.get("acme", jobs[0].id).await.unwrap().is_none());
    // The day was listed as empty; the earlier listing must not hide later segments.
    archive.write(&[&jobs[0], &jobs[2]]).await;
    let found = archive.history.get("acme", jobs[0].id).await.unwrap().unwrap();
    assert_eq!((found.input.get(), found.state), ("0", JobState::Succeeded));
    assert!(archive.history.get("acme", jobs[1].id).await.unwrap().is_none(), "in the range but not in the segment");
    assert!(archive.history.get("other", jobs[0].id).await.unwrap().is_none());
}

#[tokio::test]
async fn archived_lists_are_newest_first_across_segments_and_days() {
    let archive = Archive::start().await;
    let today = jobs(60);
    let old: Vec<Job> = today.iter().take(10).map(|job| on_day(job, 1_600_000_000_000)).collect();
    let older: Vec<Job> = today.iter().take(5).map(|job| on_day(job, 1_500_000_000_000)).collect();
    // Overlapping, and some jobs twice, as after a crash between writing and deleting.
    for part in 0..4 {
        archive.write(&today.iter().skip(part).step_by(3).collect::<Vec<_>>()).await;
    }
    archive.write(&old.iter().collect::<Vec<_>>()).await;
    archive.write(&older.iter().collect::<Vec<_>>()).await;
    let all = [today.clone(), old.clone(), older].concat();
    for limit in [7, 100] {
        assert_eq!(archive.list(&ListFilter::default(), limit).await, newest_first(&all));
    }
    let none = ListFilter { state: Some(JobState::Failed), ..ListFilter::default() };
    assert!(archive.list(&none, 20).await.is_empty());
    assert!(archive.history.list("other", &none, Cursor(None), 20).await.unwrap().0.is_empty());
}

#[tokio::test]
async fn archived_jobs_survive_the_merging_of_their_segments() {
    let archive = Archive::start().await;
    let jobs = jobs(40);
    let day = day_of(jobs[0].id);
    for job in &jobs {
        archive.write(&[job]).await;
    }
    // State of an earlier read: names that no longer exist afterwards, segments that are still in memory.
    assert_eq!(archive.list(&ListFilter::default(), 100).await.len(), 40);
    archive.history.segments.invalidate_all();
    assert!(archive.history.compact("acme", day).await.unwrap());
    assert_eq!(archive.segments(day).await, 1);
    assert!(!archive.history.compact("acme", day).await.unwrap(), "once is enough");
    for job in &jobs {
        assert!(archive.history.get("acme", job.id).await.unwrap().is_some());
    }
    assert_eq!(archive.list(&ListFilter::default(), 100).await, newest_first(&jobs));
}

#[tokio::test]
async fn archived_jobs_are_found_with_a_listing_from_before_a_merge() {
    let archive = Archive::start().await;
    let jobs = jobs(20);
    let day = day_of(jobs[0].id);
    for job in &jobs {
        archive.write(&[job]).await;
    }
    let before = archive.history.listing("acme", day, None).await.unwrap();
    assert!(archive.history.compact("acme", day).await.unwrap());
    // As on another replica, whose cache is older.
    archive.history.listings.insert(("acme".to_owned(), day), before);
    assert!(archive.history.get("acme", jobs[3].id).await.unwrap().is_some());
}

#[tokio::test]
async fn a_crowd_of_overlapping_segments_is_pulled_apart() {
    let archive = Archive::start().await;
    let jobs = jobs(60);
    let day = day_of(jobs[0].id);
    for part in 0..12 {
        archive.write(&jobs.iter().skip(part).step_by(12).collect::<Vec<_>>()).await;
    }
    while archive.history.compact("acme", day).await.unwrap() {}
    let names = archive.history.list_day("acme", day).await.unwrap().names;
    assert!(names.iter().filter(|name| name.covers(jobs[30].id)).count() <= 8);
    assert_eq!(archive.list(&ListFilter::default(), 50).await, newest_first(&jobs));
}
