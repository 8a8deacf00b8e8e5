//! Counts of records: of a queue as it is copied, of a backup as it is read, and of the restored queue. If the three
//! differ, something was lost.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::entry::{Bytes, Content, Entry, Root};
use super::family::{self, Fate};
use crate::job::JobState;

/// Counts of the records in a backup.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Census {
    /// Number of keys.
    pub keys: u64,
    /// Records that stay until they are deleted, by kind.
    pub records: BTreeMap<String, u64>,
    /// Records that expire by themselves, of which a later count finds fewer, by kind.
    pub passing: BTreeMap<String, u64>,
    /// Jobs, by state.
    pub jobs: BTreeMap<String, u64>,
    /// Keys of families that are unknown to this release, by their first word. They are kept.
    pub unknown: BTreeMap<String, u64>,
    /// Digest of the records of all ended jobs, independent of their order: state, result, attempts, errors.
    pub ended_digest: String,
    #[serde(skip)]
    digest: [u8; 32],
}

impl Census {
    /// Counts an entry.
    pub fn note(&mut self, entry: &Entry) {
        if entry.is_more {
            return;
        }
        self.keys += 1;
        match family::of(entry.root, &entry.name.0) {
            Some((label, Fate::Record)) => {
                let counts = if entry.expires_ms.is_some() { &mut self.passing } else { &mut self.records };
                *counts.entry(label.to_owned()).or_default() += 1;
            }
            Some(_) => {}
            None => {
                let word = String::from_utf8_lossy(family::word(&entry.name.0)).into_owned();
                *self.unknown.entry(word).or_default() += 1;
            }
        }
        if let (Some(id), Content::Hash(fields)) = (job_of(entry), &entry.content) {
            self.note_job(id, fields);
        }
    }

    fn note_job(&mut self, id: &[u8], fields: &[(Bytes, Bytes)]) {
        let state = fields.iter().find(|(field, _)| field.0 == b"state").and_then(|(_, state)| state.text());
        // A record without a state is what a power failure has left of it (record.rs).
        let state = state.unwrap_or("none");
        *self.jobs.entry(state.to_owned()).or_default() += 1;
        if JobState::from_word(state).is_some_and(JobState::is_terminal) {
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_unstable();
            let mut digest = Sha256::new().chain_update(id);
            for part in sorted.into_iter().flat_map(|(field, value)| [field, value]) {
                digest = digest.chain_update((part.0.len() as u64).to_be_bytes()).chain_update(&part.0);
            }
            self.digest.iter_mut().zip(digest.finalize()).for_each(|(sum, byte)| *sum ^= byte);
            self.ended_digest = hex::encode(self.digest);
        }
    }

    /// Number of jobs in this state.
    #[must_use]
    pub fn jobs_in(&self, state: JobState) -> u64 {
        self.jobs.get(state.as_str()).copied().unwrap_or(0)
    }

    /// The differences between this census and the census of the restored queue, as text; empty if nothing is missing.
    /// Running jobs of the backup count as queued.
    #[must_use]
    pub fn differences(&self, restored: &Self) -> Vec<String> {
        let mut wanted = self.jobs.clone();
        if let Some(running) = wanted.remove(JobState::Running.as_str()) {
            *wanted.entry(JobState::Queued.as_str().to_owned()).or_default() += running;
        }
        let mut found = Vec::new();
        let mut compare = |what: &str, wanted: &BTreeMap<String, u64>, have: &BTreeMap<String, u64>| {
            let names: std::collections::BTreeSet<&String> = wanted.keys().chain(have.keys()).collect();
            for name in names {
                let (wanted, have) = (wanted.get(name).unwrap_or(&0), have.get(name).unwrap_or(&0));
                if wanted != have {
                    found.push(format!("{what}{name}: {wanted} in the backup, {have} restored"));
                }
            }
        };
        compare("jobs ", &wanted, &restored.jobs);
        compare("", &self.records, &restored.records);
        if self.ended_digest != restored.ended_digest {
            found.push("the records of ended jobs differ from those in the backup".to_owned());
        }
        found
    }
}

/// The id of the job whose record the entry is.
pub(super) fn job_of(entry: &Entry) -> Option<&[u8]> {
    match entry.root {
        Root::Shard(_) => entry.name.0.strip_prefix(b"j:"),
        Root::Registry => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: &str, fields: &[(&str, &str)]) -> Entry {
        let fields = fields.iter().map(|(field, value)| (Bytes::from(*field), Bytes::from(*value))).collect();
        let name = Bytes::from(format!("j:{id}").as_str());
        Entry { root: Root::Shard(0), name, expires_ms: None, is_more: false, content: Content::Hash(fields) }
    }

    fn census(entries: &[Entry]) -> Census {
        let mut census = Census::default();
        entries.iter().for_each(|entry| census.note(entry));
        census
    }

    #[test]
    fn a_restored_queue_is_the_same_in_any_order_and_what_ran_is_queued() {
        let ended =
            [job("1", &[("state", "succeeded"), ("inline", "1")]), job("2", &[("state", "failed"), ("error", "{}")])];
        let before = census(&[&ended[..], &[job("3", &[("state", "running")])]].concat());
        let after = census(&[
            job("3", &[("state", "queued")]),
            job("2", &[("error", "{}"), ("state", "failed")]),
            ended[0].clone(),
        ]);
        assert_eq!(before.differences(&after), [""; 0]);
        assert_eq!(before.jobs_in(JobState::Running), 1);
    }

    #[test]
    fn what_is_missing_or_another_is_named() {
        let before = census(&[job("1", &[("state", "succeeded"), ("inline", "1")]), job("2", &[("state", "queued")])]);
        let lost = census(&[job("1", &[("state", "succeeded"), ("inline", "1")])]);
        assert_eq!(
            before.differences(&lost),
            ["jobs queued: 1 in the backup, 0 restored", "jobs: 2 in the backup, 1 restored"]
        );
        let other = census(&[job("1", &[("state", "succeeded"), ("inline", "2")]), job("2", &[("state", "queued")])]);
        assert_eq!(before.differences(&other), ["the records of ended jobs differ from those in the backup"]);
    }
}
