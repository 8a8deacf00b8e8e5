//! Names and labels of machines in the cluster.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub(super) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
pub(super) const STOKEHOLD: &str = "stokehold";
pub(super) const NAME: &str = "app.kubernetes.io/name";
pub(super) const COMPONENT: &str = "app.kubernetes.io/component";
/// Label of the machine, which is also the name of its worker.
pub(super) const MACHINE: &str = "stokehold.dev/machine";
/// Owner of a machine: the prefix of the queue. Two queues that share a namespace have different prefixes.
pub(super) const OWNER: &str = "stokehold.dev/namespace";
pub(super) const POOL: &str = "stokehold.dev/pool";
/// The Deployment of a pod.
pub(super) const DEPLOYMENT: &str = "stokehold.dev/deployment";
/// Scheduling gate of a pod of a Deployment, until the pod is claimed for a machine.
pub(super) const GATE: &str = "stokehold.dev/machine";

/// A machine's id at this provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Rented {
    /// A Job, and its pod.
    Job {
        /// The machine's label, which is its name.
        label: String,
    },
    /// A pod of a Deployment that is a machine of this label.
    Pod {
        /// The machine's label.
        label: String,
    },
    /// An unclaimed pod of a Deployment.
    Spare {
        /// The Deployment.
        deployment: String,
        /// The pod.
        pod: String,
    },
}

impl Rented {
    pub(super) fn id(&self) -> String {
        match self {
            Self::Job { label } => format!("job/{label}"),
            Self::Pod { label } => format!("pod/{label}"),
            Self::Spare { deployment, pod } => format!("spare/{deployment}/{pod}"),
        }
    }

    /// Parses an id; `None` if it has another form.
    pub(super) fn of(id: &str) -> Option<Self> {
        let (kind, rest) = id.split_once('/')?;
        match kind {
            "job" => Some(Self::Job { label: rest.to_owned() }),
            "pod" => Some(Self::Pod { label: rest.to_owned() }),
            "spare" => {
                let (deployment, pod) = rest.split_once('/')?;
                Some(Self::Spare { deployment: deployment.to_owned(), pod: pod.to_owned() })
            }
            _ => None,
        }
    }
}

/// Labels of a machine.
pub(super) fn labels(owner: &str, pool: &str, label: &str) -> BTreeMap<String, String> {
    // Network policies select by the last two labels, e.g. deploy/kubernetes/network.yaml.
    let labels = [
        (MANAGED_BY, STOKEHOLD),
        (OWNER, owner),
        (POOL, pool),
        (MACHINE, label),
        (NAME, STOKEHOLD),
        (COMPONENT, "worker"),
    ];
    labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// The value of an object's label.
pub(super) fn label_of<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(name).map(String::as_str)
}

/// Whether a pod of a Deployment waits to be claimed for a machine.
pub(super) fn is_spare(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
    let is_held = gates.is_some_and(|gates| gates.iter().any(|gate| gate.name == GATE));
    is_held && is_active(pod) && label_of(&pod.metadata, MACHINE).is_none()
}

/// Whether the Deployment counts the pod: it has not ended and is not being deleted.
pub(super) fn is_active(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
    pod.metadata.deletion_timestamp.is_none() && phase != "Succeeded" && phase != "Failed"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_told_from_its_text() {
        let of = |label: &str| label.to_owned();
        let ids = [
            Rented::Job { label: of("m-1") },
            Rented::Pod { label: of("m-2") },
            Rented::Spare { deployment: of("a"), pod: of("a-5d-x") },
        ];
        for id in ids {
            assert_eq!(Rented::of(&id.id()), Some(id));
        }
        assert_eq!(["m-1", "spare/a", "x/y"].map(Rented::of), [None, None, None]);
    }
}
