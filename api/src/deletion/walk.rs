//! The open jobs, schedules and batches of a tenant that use a resource.

use serde::Deserialize;
use stokehold_queue::JobId;
use stokehold_queue::batches::{Batch, BatchState, Source};
use stokehold_queue::job::JobSpec;
use stokehold_queue::schedules::Schedule;

use super::{Error, Subject};
use crate::database::Database;
use crate::error::DependentKind;
use crate::jobs::inputs;

/// Schedules and batches that one call reads.
const PAGE: u32 = 100;

/// An open job that uses the resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct JobUse {
    pub(super) id: JobId,
    pub(super) kind: DependentKind,
    /// Whether it has steps, one of which may be open.
    pub(super) has_steps: bool,
}

/// A walk over the jobs of a tenant that are open at its beginning, newest first. It ends when it has read as many, so
/// that it is short for a tenant whose jobs have ended.
pub(super) struct JobWalk<'a> {
    db: &'a Database,
    tenant: &'a str,
    subject: &'a Subject,
    left: u64,
    before: String,
}

impl<'a> JobWalk<'a> {
    pub(super) async fn new(db: &'a Database, tenant: &'a str, subject: &'a Subject) -> Result<Self, Error> {
        let start = db.ask("count open jobs", db.home(tenant).await?.begin_open_jobs(tenant)).await?;
        let (left, before) = start.map_or_else(Default::default, |start| (start.jobs, start.from));
        Ok(Self { db, tenant, subject, left, before })
    }

    /// The next jobs that use the resource; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<JobUse>>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        let home = self.db.home(self.tenant).await?;
        let page = self.db.ask("read open jobs", home.open_jobs(self.tenant, &self.before)).await?;
        self.left = self.left.saturating_sub(page.jobs.len() as u64);
        match page.next {
            Some(next) => self.before = next,
            None => self.left = 0,
        }
        let used = |(id, spec): (JobId, JobSpec)| {
            let kind = use_of(self.subject, &spec)?;
            Some(JobUse { id, kind, has_steps: !spec.steps.is_empty() })
        };
        Ok(Some(page.jobs.into_iter().filter_map(used).collect()))
    }
}

/// How a job uses the resource.
fn use_of(subject: &Subject, spec: &JobSpec) -> Option<DependentKind> {
    match subject {
        Subject::Versions { endpoint, numbers, .. } => {
            let is_one = |name: &str, version: u32| *name == **endpoint && numbers.contains(&version);
            if is_one(&spec.endpoint, spec.version) {
                return Some(DependentKind::Job);
            }
            let has_step = spec.steps.iter().any(|step| is_one(&step.endpoint, step.version));
            has_step.then_some(DependentKind::Step)
        }
        Subject::File { id } => spec.files.contains(id).then_some(DependentKind::Job),
        Subject::Requirements { number } => {
            let steps = spec.steps.iter().map(|step| step.demands);
            steps.chain([spec.demands]).any(|demands| demands == *number).then_some(DependentKind::Job)
        }
    }
}

/// The endpoint to which a schedule submits.
#[derive(Deserialize)]
struct Submits {
    endpoint: String,
    version: Option<u32>,
}

/// Ids of the schedules that use the resource and are not paused.
pub(super) async fn schedules(db: &Database, tenant: &str, subject: &Subject) -> Result<Vec<String>, Error> {
    let schedules = db.home(tenant).await?.schedules();
    let (mut found, mut before) = (Vec::new(), None::<String>);
    loop {
        let page = schedules.list(tenant, before.as_deref(), PAGE as usize);
        let page = db.ask("list schedules", page).await?;
        let is_last = page.len() < PAGE as usize;
        before = page.last().map(|schedule| schedule.id.clone());
        found.extend(page.into_iter().filter(|one| submits_to(one, subject)).map(|schedule| schedule.id));
        if is_last {
            return Ok(found);
        }
    }
}

fn submits_to(schedule: &Schedule, subject: &Subject) -> bool {
    if schedule.paused {
        return false;
    }
    match subject {
        Subject::Versions { endpoint, numbers, is_whole } => {
            let submits = serde_json::from_str::<Submits>(schedule.job.get()).inspect_err(|error| {
                tracing::error!(schedule.id, %error, "the job of a schedule cannot be read; it counts as no dependent");
            });
            let Ok(submits) = submits else { return false };
            let is_one = *is_whole || submits.version.is_some_and(|version| numbers.contains(&version));
            submits.endpoint == *endpoint && is_one
        }
        Subject::File { id } => inputs::files_of(schedule.job.get()).contains(id),
        Subject::Requirements { .. } => false,
    }
}

/// Ids of the batches that use the resource and have lines that have not ended.
pub(super) async fn batches(db: &Database, tenant: &str, subject: &Subject) -> Result<Vec<String>, Error> {
    let batches = db.home(tenant).await?.batches();
    let mut found = Vec::new();
    for state in [BatchState::Validating, BatchState::Running] {
        let mut cursor = None::<String>;
        loop {
            let page = batches.list(tenant, Some(state), cursor.as_deref(), PAGE);
            let page = db.ask("list batches", page).await?;
            found.extend(page.batches.into_iter().filter(|one| runs_on(one, subject)).map(|batch| batch.id));
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
    }
    Ok(found)
}

fn runs_on(batch: &Batch, subject: &Subject) -> bool {
    match subject {
        Subject::Versions { endpoint, numbers, is_whole } => {
            // Until its lines are validated, the batch may not have chosen a version.
            let chosen = batch.versions.get(endpoint).copied();
            let chosen = chosen.or(batch.spec.version.filter(|_| batch.spec.endpoint == *endpoint));
            match chosen {
                Some(version) => *is_whole || numbers.contains(&version),
                None => *is_whole && batch.spec.endpoint == *endpoint,
            }
        }
        // Once its lines have been copied, the batch does not need the file.
        Subject::File { id } => {
            let file = inputs::file_key(&batch.spec.tenant, id);
            batch.input.is_none() && matches!(&batch.spec.source, Source::Object { key } if *key == file)
        }
        Subject::Requirements { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use stokehold_queue::job::{Stage, StepSpec};

    use super::*;

    fn spec(endpoint: &str, version: u32) -> JobSpec {
        JobSpec { endpoint: endpoint.to_owned(), version, ..JobSpec::default() }
    }

    #[test]
    fn a_job_uses_its_version_its_steps_its_files_and_its_requirement_set() {
        let versions = |numbers: &[u32]| Subject::Versions {
            endpoint: "echo".to_owned(),
            numbers: numbers.to_vec(),
            is_whole: false,
        };
        assert_eq!(use_of(&versions(&[1, 3]), &spec("echo", 3)), Some(DependentKind::Job));
        assert_eq!(use_of(&versions(&[1, 3]), &spec("echo", 2)), None);
        assert_eq!(use_of(&versions(&[1, 3]), &spec("other", 3)), None);
        let step = StepSpec {
            name: "check".to_owned(),
            stage: Stage::Before,
            endpoint: "echo".to_owned(),
            version: 1,
            vram_class_gib: 0,
            demands: 7,
            thresholds: std::collections::BTreeMap::new(),
            timeout_ms: 1,
            max_attempts: 1,
        };
        let stepped = JobSpec { steps: vec![step], ..spec("other", 1) };
        assert_eq!(use_of(&versions(&[1]), &stepped), Some(DependentKind::Step));
        assert_eq!(use_of(&Subject::Requirements { number: 7 }, &stepped), Some(DependentKind::Job));
        assert_eq!(use_of(&Subject::Requirements { number: 8 }, &stepped), None);
        let file = Subject::File { id: "file_a".to_owned() };
        assert_eq!(
            use_of(&file, &JobSpec { files: vec!["file_a".to_owned()], ..spec("echo", 1) }),
            Some(DependentKind::Job)
        );
        assert_eq!(use_of(&file, &spec("echo", 1)), None);
    }
}
