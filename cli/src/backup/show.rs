//! Output of `stoke backup`: tables and JSON.

use anyhow::Result;
use serde_json::{Value, json};
use stokehold_backup::{Listed, Manifest, Outcome};
use stokehold_queue::now_ms;

use crate::{Global, output};

/// Prints the backups, newest first.
pub(super) fn list(global: &Global, mut listed: Vec<Listed>) -> Result<()> {
    listed.reverse();
    if global.json {
        let all: Vec<Value> = listed
            .iter()
            .map(|one| match &one.manifest {
                Some(whole) => manifest(whole),
                None => json!({"id": one.id.as_str(), "is_whole": false, "unreadable": one.unreadable}),
            })
            .collect();
        return output::json(&json!({ "backups": all }));
    }
    let mut table = output::table(["backup", "created", "jobs", "keys", "size", "consistent", "key"]);
    for one in &listed {
        let age = format!("{} ago", output::millis(now_ms().saturating_sub(one.id.began_ms())));
        let row = match &one.manifest {
            Some(whole) => [
                one.id.to_string(),
                age,
                output::count(whole.census.jobs.values().sum::<u64>()),
                output::count(whole.census.keys),
                mb(whole.size_bytes()),
                if whole.is_exact() { "yes" } else { "no" }.to_owned(),
                whole.key.clone(),
            ],
            None => {
                let what = if one.unreadable.is_some() { "unreadable" } else { "incomplete" };
                [one.id.as_str(), &age, what, "", "", "", ""].map(str::to_owned)
            }
        };
        table.add_row(row);
    }
    for error in listed.iter().filter_map(|one| one.unreadable.as_ref()) {
        output::note(error);
    }
    output::print_table(&table, "no backups; create one with `stoke backup create`")
}

/// A manifest as JSON, without the names of its parts.
pub(super) fn manifest(manifest: &Manifest) -> Value {
    json!({
        "id": manifest.id, "is_whole": true, "is_exact": manifest.is_exact(), "release": manifest.release,
        "began_ms": manifest.began_ms, "ended_ms": manifest.ended_ms, "key": manifest.key, "shards": manifest.shards,
        "moments": manifest.moments, "census": manifest.census, "parts": manifest.parts.len(),
        "size_bytes": manifest.size_bytes(),
    })
}

pub(super) fn created(manifest: &Manifest) -> Result<()> {
    let (jobs, keys) = (manifest.census.jobs.values().sum::<u64>(), manifest.census.keys);
    let took = manifest.ended_ms.saturating_sub(manifest.began_ms);
    output::line(format_args!(
        "created {}: {}, {}, {} in {}",
        manifest.id,
        output::counted(jobs, "job"),
        output::counted(keys, "key"),
        mb(manifest.size_bytes()),
        output::millis(took)
    ))?;
    let waited = manifest.moments.iter().filter(|moment| moment.is_exact).map(|moment| moment.took_ms).max();
    if let Some(waited_ms) = waited {
        output::line(format_args!("writes were paused for at most {}", output::millis(waited_ms)))?;
    }
    for moment in manifest.moments.iter().filter(|moment| !moment.is_exact) {
        output::note(format_args!(
            "{} changed while it was copied, so a restore may have to repair batches that were running; for a consistent copy, use a longer --pause or back up at a quieter time",
            moment.root
        ));
    }
    unknown(&manifest.census.unknown)
}

fn unknown(unknown: &std::collections::BTreeMap<String, u64>) -> Result<()> {
    for (word, keys) in unknown {
        output::note(format_args!("{keys} keys of the unknown family {word} were kept"));
    }
    Ok(())
}

/// The outcome of a restore as JSON.
pub(super) fn outcome(outcome: &Outcome) -> Value {
    json!({ "backup": manifest(&outcome.manifest), "is_whole": outcome.is_whole(), "outcome": outcome })
}

pub(super) fn restored(outcome: &Outcome) -> Result<()> {
    let census = &outcome.restored.census;
    let mut table = output::table(["", "backup", "restored"]);
    for state in stokehold_queue::job::JobState::ALL {
        let (was, is) = (outcome.manifest.census.jobs_in(state), census.jobs_in(state));
        if was + is > 0 {
            table.add_row([format!("{} jobs", state.as_str()), output::count(was), output::count(is)]);
        }
    }
    for (label, was) in outcome.manifest.census.records.iter().filter(|(label, _)| *label != "jobs") {
        let is = census.records.get(label).copied().unwrap_or(0);
        table.add_row([label.clone(), output::count(*was), output::count(is)]);
    }
    output::line(table.trim_fmt())?;
    if outcome.expired > 0 {
        output::line(format_args!("skipped {}", output::counted(outcome.expired, "expired key")))?;
    }
    if outcome.results > 0 {
        output::line(format_args!(
            "{} results checked in S3, {} missing",
            output::count(outcome.results),
            output::count(outcome.missing_results)
        ))?;
    }
    for key in &outcome.missing {
        output::note(format_args!("missing: {key}"));
    }
    for difference in &outcome.differences {
        output::note(format_args!("differs: {difference}"));
    }
    for error in &outcome.restored.unreadable {
        output::note(format_args!("unreadable: {error}"));
    }
    for (kind, records) in &outcome.restored.repaired {
        output::note(format_args!("repaired ({kind}): {records} records"));
    }
    unknown(&census.unknown)?;
    output::line(format_args!(
        "{} {}",
        if outcome.is_whole() { "restored" } else { "restored with differences:" },
        outcome.manifest.id
    ))
}

fn mb(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
