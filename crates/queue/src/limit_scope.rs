//! The limit scopes of a job: its tenant and its endpoint. Limits and budgets belong to a limit scope.

use std::fmt;

use crate::job::JobSpec;

/// A limit scope: the owner of limits and a budget.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LimitScope {
    /// A tenant.
    Tenant(String),
    /// One endpoint of a tenant.
    Endpoint {
        /// The tenant.
        tenant: String,
        /// The endpoint's name.
        endpoint: String,
    },
}

impl LimitScope {
    /// The limit scopes of a job, in the order in which they are checked.
    #[must_use]
    pub fn of(spec: &JobSpec) -> [Self; 2] {
        let endpoint = Self::Endpoint { tenant: spec.tenant.clone(), endpoint: spec.endpoint.clone() };
        [Self::Tenant(spec.tenant.clone()), endpoint]
    }

    /// The tenant.
    #[must_use]
    pub fn tenant(&self) -> &str {
        match self {
            Self::Tenant(tenant) | Self::Endpoint { tenant, .. } => tenant,
        }
    }

    /// Parses the name of a limit scope, in the form that scripts use.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match (name.strip_prefix("t:"), name.strip_prefix("e:").and_then(|rest| rest.split_once(':'))) {
            (Some(tenant), _) => Some(Self::Tenant(tenant.to_owned())),
            (None, Some((tenant, endpoint))) => {
                Some(Self::Endpoint { tenant: tenant.to_owned(), endpoint: endpoint.to_owned() })
            }
            (None, None) => None,
        }
    }
}

impl fmt::Display for LimitScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tenant(tenant) => write!(f, "t:{tenant}"),
            Self::Endpoint { tenant, endpoint } => write!(f, "e:{tenant}:{endpoint}"),
        }
    }
}
