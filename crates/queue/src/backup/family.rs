//! The keys that a backup contains. The family of a key is its first word below its root; `keys.rs` describes each. A
//! family that is not listed is kept and reported as unknown. A test compares this list with the tables of `keys.rs`.

use super::entry::Root;

/// The treatment of a family in a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Kept and counted: the restored queue has the same number.
    Record,
    /// Kept. The family holds the positions of jobs, or derived values, which change as leases are released.
    Place,
    /// Left out: it describes the current processes, which write it again.
    Moment,
}

/// A family of keys: its first word, its name for people, and how a backup treats it.
type Family = (&'static str, &'static str, Fate);

/// Families below the root of a shard.
const SHARD: [Family; 64] = [
    ("j", "jobs", Fate::Record),
    ("e", "job events", Fate::Record),
    // Outputs are not persisted in Redis either.
    ("o", "job outputs", Fate::Moment),
    ("d", "dependents", Fate::Place),
    ("q", "lanes", Fate::Place),
    ("f", "lanes", Fate::Place),
    ("lanes", "lanes", Fate::Place),
    ("shelf", "lanes", Fate::Place),
    ("fair", "lanes", Fate::Place),
    ("tags", "lanes", Fate::Place),
    ("passed", "lanes", Fate::Place),
    ("cost", "figures", Fate::Place),
    ("flow", "figures", Fate::Place),
    ("spent", "costs", Fate::Record),
    ("timings", "figures", Fate::Place),
    ("unmet", "signals", Fate::Moment),
    ("turn", "lanes", Fate::Place),
    ("ready", "lanes", Fate::Place),
    ("open", "gates", Fate::Place),
    ("running", "gates", Fate::Place),
    ("bytes", "gates", Fate::Place),
    ("beside", "gates", Fate::Place),
    ("streamed", "gates", Fate::Moment),
    ("limits", "limits", Fate::Record),
    ("rate", "gates", Fate::Place),
    ("budgets", "budgets", Fate::Record),
    ("stood", "budgets", Fate::Record),
    ("held", "gates", Fate::Place),
    ("holds", "gates", Fate::Place),
    ("waiting", "gates", Fate::Place),
    ("leases", "leases", Fate::Place),
    ("runs", "leases", Fate::Place),
    ("scheduled", "lanes", Fate::Place),
    ("deadlines", "lanes", Fate::Place),
    ("timeouts_since", "lanes", Fate::Place),
    ("settle", "lanes", Fate::Place),
    ("ended", "lists", Fate::Place),
    ("dead", "lists", Fate::Place),
    ("quarantine", "quarantined jobs", Fate::Place),
    ("quarantine_why", "quarantined jobs", Fate::Place),
    ("faults", "signals", Fate::Moment),
    ("recount", "signals", Fate::Moment),
    ("drift", "signals", Fate::Moment),
    // Records of workers that wait or reserve room.
    ("hold", "waiting workers", Fate::Moment),
    ("head", "waiting workers", Fate::Moment),
    ("warm", "waiting workers", Fate::Moment),
    ("parked", "waiting workers", Fate::Moment),
    ("index", "lists", Fate::Place),
    ("i", "idempotency keys", Fate::Record),
    ("b", "batches", Fate::Record),
    ("batches", "lists", Fate::Place),
    ("batches_tidy", "lists", Fate::Place),
    ("schedule", "schedules", Fate::Record),
    ("schedules", "lists", Fate::Place),
    ("hooks", "lists", Fate::Place),
    ("w", "webhook deliveries", Fate::Record),
    ("wl", "lists", Fate::Place),
    ("tenants", "lists", Fate::Place),
    ("traces", "lists", Fate::Place),
    // Records of the current Redis process and its replicas.
    ("mark", "signals", Fate::Moment),
    ("role", "signals", Fate::Moment),
    ("signal", "signals", Fate::Moment),
    ("probe", "signals", Fate::Moment),
    // The mark of the replica that exports traces at present.
    ("tracing", "signals", Fate::Moment),
];

/// Families below the registry's root.
const REGISTRY: [Family; 40] = [
    ("homes", "tenants", Fate::Record),
    ("tenants", "lists", Fate::Place),
    ("tenant", "tenants", Fate::Record),
    ("announced", "figures", Fate::Place),
    ("audit", "changes in the log", Fate::Record),
    ("audits", "changes in the log", Fate::Record),
    // Changes that began and have not ended. The changes of a replica that died are closed with an unknown outcome.
    ("changes", "changes in the log", Fate::Place),
    ("shards", "shards", Fate::Place),
    ("token", "tokens", Fate::Record),
    ("tokens", "lists", Fate::Place),
    ("used", "figures", Fate::Place),
    // Workers report again within seconds.
    ("worker", "workers", Fate::Moment),
    ("workers", "workers", Fate::Moment),
    ("readings", "workers", Fate::Moment),
    ("series", "figures", Fate::Place),
    ("endpoints", "endpoints", Fate::Record),
    ("versions", "endpoint versions", Fate::Record),
    ("deleted", "endpoints", Fate::Record),
    ("floors", "endpoints", Fate::Record),
    ("deletions", "endpoints", Fate::Place),
    ("orphans", "endpoints", Fate::Place),
    ("sweeps", "endpoints", Fate::Place),
    ("needs", "figures", Fate::Place),
    ("forgotten", "figures", Fate::Moment),
    ("demands", "endpoints", Fate::Record),
    ("demands_of", "figures", Fate::Place),
    ("demand_users", "figures", Fate::Place),
    ("webhook", "webhook generations", Fate::Record),
    ("feedback", "feedback", Fate::Record),
    ("fb", "feedback", Fate::Record),
    ("secrets", "secrets", Fate::Record),
    // The term is kept so that it keeps growing; the holder is not (target.rs).
    ("lead", "lead", Fate::Place),
    ("autoscaler", "signals", Fate::Moment),
    ("machines", "machines", Fate::Record),
    ("rents", "machines", Fate::Place),
    ("bills", "bills", Fate::Record),
    ("drains", "machines", Fate::Place),
    ("shunned", "machines", Fate::Place),
    ("evicted", "evicted workers", Fate::Record),
    ("restoring", "signals", Fate::Moment),
];

/// The name of a key's family for people, and how a backup treats it; `None` if the family is unknown and therefore
/// kept. `name` is the key below its root.
#[must_use]
pub fn of(root: Root, name: &[u8]) -> Option<(&'static str, Fate)> {
    let families: &[Family] = match root {
        Root::Registry => &REGISTRY,
        Root::Shard(_) => &SHARD,
    };
    let word = word(name);
    families.iter().find(|(known, ..)| known.as_bytes() == word).map(|(_, label, fate)| (*label, *fate))
}

/// The first word of a key below its root.
pub(super) fn word(name: &[u8]) -> &[u8] {
    name.split(|byte| *byte == b':').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const SHARD_KEYS: &str = include_str!("../keys.rs");
    const REGISTRY_KEYS: &str = include_str!("../keys/registry.rs");

    /// The words of keys that a file spells after `{}:`.
    fn spelled(file: &str) -> BTreeSet<&str> {
        let spelled = file.split("\"{}:").skip(1);
        spelled.filter_map(|text| text.split([':', '"', '{']).next()).filter(|word| !word.is_empty()).collect()
    }

    /// The words of the table at the top of `keys.rs`.
    fn tabled() -> BTreeSet<&'static str> {
        let rows = SHARD_KEYS.lines().filter(|line| line.starts_with("//! | `:"));
        let keys = rows.filter_map(|row| row.split('|').nth(1)).flat_map(|cell| cell.split('`'));
        keys.filter_map(|key| key.strip_prefix(':')?.split(':').next()).collect()
    }

    fn shard_keys() -> BTreeSet<&'static str> {
        tabled().into_iter().chain(spelled(SHARD_KEYS)).collect()
    }

    #[test]
    fn every_key_that_is_spelled_has_a_family() {
        let (shards, registry) = (shard_keys(), spelled(REGISTRY_KEYS));
        assert!(shards.len() > 40 && registry.len() > 20, "keys.rs is written otherwise than this reads it");
        let without = |root, words: BTreeSet<&'static str>| -> Vec<&str> {
            words.into_iter().filter(|word| of(root, word.as_bytes()).is_none()).collect()
        };
        let none: [&str; 0] = [];
        assert_eq!(without(Root::Shard(0), shards), none, "say in family.rs what a backup does with these");
        assert_eq!(without(Root::Registry, registry), none, "say in family.rs what a backup does with these");
    }

    #[test]
    fn every_family_is_one_of_keys_rs() {
        let (shards, registry) = (shard_keys(), spelled(REGISTRY_KEYS));
        assert!(SHARD.iter().all(|(word, ..)| shards.contains(word)), "{shards:?}");
        assert!(REGISTRY.iter().all(|(word, ..)| registry.contains(word)), "{registry:?}");
    }

    #[test]
    fn a_familys_word_is_the_first_one() {
        let fate = |root, name: &str| of(root, name.as_bytes()).map(|(_, fate)| fate);
        assert_eq!(fate(Root::Shard(3), "j:0193"), Some(Fate::Record));
        assert_eq!(fate(Root::Shard(3), "spent:20000:gates"), Some(Fate::Record));
        assert_eq!(fate(Root::Registry, "j:0193"), None);
        assert_eq!(fate(Root::Registry, "worker:w"), Some(Fate::Moment));
    }
}
