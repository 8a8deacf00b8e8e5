//! What depends on a resource.

use std::collections::{BTreeMap, BTreeSet};

use stokehold_queue::endpoint::EndpointVersion;

use super::walk::{JobWalk, batches, schedules};
use super::{Error, Subject};
use crate::database::Database;
use crate::error::{Dependent, DependentKind};

/// Maximum number of examples of each kind.
const EXAMPLES_MAX: usize = 5;

/// The dependents by kind.
#[derive(Debug, Default)]
pub(crate) struct Dependents(BTreeMap<DependentKind, (u64, Vec<String>)>);

impl Dependents {
    /// Adds one.
    pub(crate) fn add(&mut self, kind: DependentKind, example: impl Into<String>) {
        let (count, examples) = self.0.entry(kind).or_default();
        *count += 1;
        if examples.len() < EXAMPLES_MAX {
            examples.push(example.into());
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there are some of this kind.
    pub(crate) fn has(&self, kind: DependentKind) -> bool {
        self.0.contains_key(&kind)
    }

    /// The dependents in the form of a response.
    pub(crate) fn into_list(self) -> Vec<Dependent> {
        self.0.into_iter().map(|(kind, (count, examples))| Dependent { kind, count, examples }).collect()
    }
}

/// Finds what depends on a tenant's resource.
pub(crate) async fn find(db: &Database, tenant: &str, subject: &Subject) -> Result<Dependents, Error> {
    let mut found = Dependents::default();
    if let Subject::Versions { endpoint, numbers, is_whole } = subject {
        if !is_whole {
            routed(db, tenant, endpoint, numbers, &mut found).await?;
        }
        let served = db.ask("list endpoints", db.registry.served(tenant)).await?;
        let others = served.iter().filter(|other| other.name != *endpoint);
        let stepped = others.filter(|other| has_step(other, endpoint, numbers, *is_whole));
        // An endpoint counts once, although a canary of it may have the step, too.
        let names: BTreeSet<&str> = stepped.map(|other| other.name.as_str()).collect();
        names.into_iter().for_each(|name| found.add(DependentKind::Endpoint, name));
    }
    let mut walk = JobWalk::new(db, tenant, subject).await?;
    while let Some(uses) = walk.next().await? {
        for one in uses {
            found.add(one.kind, one.id.to_string());
        }
    }
    for id in schedules(db, tenant, subject).await? {
        found.add(DependentKind::Schedule, id);
    }
    for id in batches(db, tenant, subject).await? {
        found.add(DependentKind::Batch, id);
    }
    Ok(found)
}

/// Adds the shares of new jobs of these versions, and the rollback to one of them.
async fn routed(
    db: &Database,
    tenant: &str,
    endpoint: &str,
    numbers: &[u32],
    found: &mut Dependents,
) -> Result<(), Error> {
    let Some(traffic) = db.ask("read an endpoint", db.registry.traffic(tenant, endpoint)).await? else { return Ok(()) };
    for (version, percent) in traffic.parts().filter(|(version, _)| numbers.contains(version)) {
        found.add(DependentKind::Traffic, format!("{endpoint}@{version}: {percent} %"));
    }
    if let Some(version) = traffic.previous.filter(|version| numbers.contains(version)) {
        found.add(DependentKind::Rollback, format!("{endpoint}@{version}"));
    }
    Ok(())
}

/// Whether the jobs of an endpoint have a step that runs on these versions.
fn has_step(version: &EndpointVersion, endpoint: &str, numbers: &[u32], is_whole: bool) -> bool {
    version.spec.before.iter().chain(&version.spec.after).any(|step| {
        step.endpoint == endpoint && (is_whole || step.version.is_some_and(|version| numbers.contains(&version)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependents_are_counted_and_a_few_are_named() {
        let mut found = Dependents::default();
        assert!(found.is_empty());
        for n in 0..7 {
            found.add(DependentKind::Schedule, n.to_string());
        }
        found.add(DependentKind::Job, "a");
        assert!(found.has(DependentKind::Job) && !found.has(DependentKind::Batch));
        let list = found.into_list();
        assert_eq!((list[0].kind, list[0].count, list[0].examples.len()), (DependentKind::Job, 1, 1));
        assert_eq!((list[1].kind, list[1].count, list[1].examples.len()), (DependentKind::Schedule, 7, 5));
    }
}
