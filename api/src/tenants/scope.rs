//! Permissions of an API token: scopes, and roles, which are common sets of scopes.

use std::str::FromStr;

use stokehold_queue::TokenRecord;

use crate::tenants::token::Error;

/// A permission of an API token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// View jobs, their events and results.
    JobsRead,
    /// All of [`Scope::JobsSubmit`] and [`Scope::JobsCancel`], from before these were separate.
    JobsWrite,
    /// Submit jobs, batches and schedules, retry them, and give feedback on them.
    JobsSubmit,
    /// Cancel jobs and batches, pause and delete schedules.
    JobsCancel,
    /// View endpoints.
    EndpointsRead,
    /// Deploy endpoints.
    EndpointsWrite,
    /// View uploaded files.
    FilesRead,
    /// Upload files.
    FilesWrite,
    /// View webhook deliveries and the secret that signs them.
    WebhooksRead,
    /// Replay webhook deliveries and rotate the secret.
    WebhooksWrite,
    /// View the names of secrets.
    SecretsRead,
    /// Set and delete secrets.
    SecretsWrite,
    /// View the tenant's tokens, without their secrets.
    TokensRead,
    /// Make, rotate and revoke the tenant's tokens.
    TokensWrite,
    /// View the audit log.
    AuditRead,
    /// Seal every tenant's secrets with another key; for operators.
    SecretsRewrap,
    /// View the workers of the whole installation; for operators.
    WorkersRead,
    /// Make, rotate and revoke the tokens that workers join with; for operators.
    WorkersJoin,
    /// View any tenant's limits; for operators.
    LimitsRead,
    /// Set any tenant's limits; for operators.
    LimitsWrite,
    /// View every tenant, its tokens and its audit log; for operators.
    TenantsRead,
    /// Make, disable and enable tenants, and make tokens for them; for operators.
    TenantsWrite,
}

impl Scope {
    /// All scopes, those of operators last.
    pub const ALL: [Self; 22] = [
        Self::JobsRead,
        Self::JobsWrite,
        Self::JobsSubmit,
        Self::JobsCancel,
        Self::EndpointsRead,
        Self::EndpointsWrite,
        Self::FilesRead,
        Self::FilesWrite,
        Self::WebhooksRead,
        Self::WebhooksWrite,
        Self::SecretsRead,
        Self::SecretsWrite,
        Self::TokensRead,
        Self::TokensWrite,
        Self::AuditRead,
        Self::SecretsRewrap,
        Self::WorkersRead,
        Self::WorkersJoin,
        Self::LimitsRead,
        Self::LimitsWrite,
        Self::TenantsRead,
        Self::TenantsWrite,
    ];

    /// Name of the scope.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::JobsRead => "jobs:read",
            Self::JobsWrite => "jobs:write",
            Self::JobsSubmit => "jobs:submit",
            Self::JobsCancel => "jobs:cancel",
            Self::EndpointsRead => "endpoints:read",
            Self::EndpointsWrite => "endpoints:write",
            Self::FilesRead => "files:read",
            Self::FilesWrite => "files:write",
            Self::WebhooksRead => "webhooks:read",
            Self::WebhooksWrite => "webhooks:write",
            Self::SecretsRead => "secrets:read",
            Self::SecretsWrite => "secrets:write",
            Self::TokensRead => "tokens:read",
            Self::TokensWrite => "tokens:write",
            Self::AuditRead => "audit:read",
            Self::SecretsRewrap => "secrets:rewrap",
            Self::WorkersRead => "workers:read",
            Self::WorkersJoin => "workers:join",
            Self::LimitsRead => "limits:read",
            Self::LimitsWrite => "limits:write",
            Self::TenantsRead => "tenants:read",
            Self::TenantsWrite => "tenants:write",
        }
    }

    /// Returns whether the scope extends beyond its bearer's tenant.
    #[must_use]
    pub fn is_operators(self) -> bool {
        matches!(
            self,
            Self::SecretsRewrap
                | Self::WorkersRead
                | Self::WorkersJoin
                | Self::LimitsRead
                | Self::LimitsWrite
                | Self::TenantsRead
                | Self::TenantsWrite
        )
    }

    /// Returns whether this scope permits everything that `wanted` permits.
    #[must_use]
    pub fn covers(self, wanted: Self) -> bool {
        self == wanted || (self == Self::JobsWrite && matches!(wanted, Self::JobsSubmit | Self::JobsCancel))
    }

    pub(crate) fn words() -> String {
        Self::ALL.map(Self::as_str).join(", ")
    }
}

impl FromStr for Scope {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == word).ok_or_else(|| Error::Scope(word.to_owned()))
    }
}

/// Returns whether a token's scopes cover this one. Names from a newer release are ignored.
#[must_use]
pub fn has(token: &TokenRecord, wanted: Scope) -> bool {
    token.scopes.iter().filter_map(|word| word.parse::<Scope>().ok()).any(|scope| scope.covers(wanted))
}

/// A common set of scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// An application: submits jobs, uploads their files, and fetches results.
    Submit,
    /// Reads, and changes nothing.
    Read,
    /// Cancels jobs and batches.
    Cancel,
    /// A CI system: deploys endpoints and moves traffic.
    Deploy,
    /// Everything that belongs to the tenant, including its tokens.
    Admin,
    /// Everything, including other tenants.
    Operator,
    /// A join token of a worker instead of an API token. It serves every tenant, so only operators make one.
    Worker,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 7] =
        [Self::Submit, Self::Read, Self::Cancel, Self::Deploy, Self::Admin, Self::Operator, Self::Worker];

    /// Name of the role.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Read => "read",
            Self::Cancel => "cancel",
            Self::Deploy => "deploy",
            Self::Admin => "admin",
            Self::Operator => "operator",
            Self::Worker => "worker",
        }
    }

    /// Scopes of the role.
    #[must_use]
    pub fn scopes(self) -> Vec<Scope> {
        use Scope::{
            EndpointsRead, EndpointsWrite, FilesRead, FilesWrite, JobsCancel, JobsRead, JobsSubmit, SecretsRead,
        };
        match self {
            Self::Submit => vec![JobsRead, JobsSubmit, EndpointsRead, FilesRead, FilesWrite],
            Self::Read => vec![JobsRead, EndpointsRead, FilesRead, SecretsRead],
            Self::Cancel => vec![JobsRead, JobsCancel],
            Self::Deploy => vec![EndpointsRead, EndpointsWrite, SecretsRead],
            Self::Admin => Scope::ALL.into_iter().filter(|scope| !scope.is_operators()).collect(),
            Self::Operator => Scope::ALL.to_vec(),
            Self::Worker => Vec::new(),
        }
    }

    /// Union of these roles and scopes, each scope once.
    #[must_use]
    pub fn union(roles: &[Self], scopes: &[Scope]) -> Vec<Scope> {
        let given: Vec<Scope> = roles.iter().flat_map(|role| role.scopes()).chain(scopes.iter().copied()).collect();
        Scope::ALL.into_iter().filter(|scope| given.contains(scope)).collect()
    }
}

impl FromStr for Role {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|role| role.as_str() == word).ok_or_else(|| Error::Role(word.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scope_and_role_has_a_word_of_its_own() {
        for scope in Scope::ALL {
            assert_eq!(scope.as_str().parse::<Scope>().unwrap(), scope);
        }
        for role in Role::ALL {
            assert_eq!(role.as_str().parse::<Role>().unwrap(), role);
        }
        assert!("jobs".parse::<Scope>().unwrap_err().to_string().contains("jobs:submit"));
        assert!("root".parse::<Role>().unwrap_err().to_string().contains("submit, read"));
    }

    #[test]
    fn no_role_but_the_operators_reaches_beyond_its_tenant_and_only_the_admin_makes_tokens() {
        for role in Role::ALL.into_iter().filter(|role| *role != Role::Operator) {
            assert!(!role.scopes().into_iter().any(Scope::is_operators), "{role:?}");
            assert_eq!(role.scopes().contains(&Scope::TokensWrite), role == Role::Admin, "{role:?}");
            // The secret that signs webhooks is not part of read access.
            assert_eq!(role.scopes().contains(&Scope::WebhooksRead), role == Role::Admin, "{role:?}");
        }
    }

    #[test]
    fn who_could_write_jobs_before_can_submit_and_cancel() {
        assert!(Scope::JobsWrite.covers(Scope::JobsSubmit) && Scope::JobsWrite.covers(Scope::JobsCancel));
        assert!(!Scope::JobsWrite.covers(Scope::JobsRead) && !Scope::JobsSubmit.covers(Scope::JobsWrite));
        let both = Role::union(&[Role::Cancel, Role::Submit], &[Scope::JobsRead]);
        assert_eq!(both.iter().filter(|scope| **scope == Scope::JobsRead).count(), 1);
        assert!(both.contains(&Scope::JobsCancel) && both.contains(&Scope::FilesWrite));
    }
}
