//! The rows: every operation of the document, as its owner would request it. `<word>` stands for the value in
//! [`super::data::Data`].

use stokehold_api::token::Scope;

/// The response to another tenant's admin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Foreign {
    /// 404: for other tenants it does not exist.
    Hidden,
    /// 403: only operators may do this.
    Operators,
    /// A success on the asker's own data: nothing of the owner's is shown or changed.
    Apart,
    /// As `Apart`, with a session only.
    Session,
    /// Needs no token and shows nothing of any tenant.
    Open,
    /// As `Open` without a token; a token that is sent must be an operator's.
    Figures,
}

/// One operation.
pub(super) struct Row {
    /// The operation in the document.
    pub(super) operation: &'static str,
    /// The path of the request.
    pub(super) path: &'static str,
    /// The required scope. `None`: any valid token, or none, suffices.
    pub(super) scope: Option<Scope>,
    pub(super) foreign: Foreign,
    pub(super) body: &'static str,
}

impl Row {
    pub(super) fn method(&self) -> &'static str {
        self.operation.split_once(' ').unwrap().0
    }

    /// Whether the operation changes anything.
    pub(super) fn changes(&self) -> bool {
        self.method() != "GET"
    }
}

const fn row(
    operation: &'static str,
    path: &'static str,
    scope: Option<Scope>,
    foreign: Foreign,
    body: &'static str,
) -> Row {
    Row { operation, path, scope, foreign, body }
}

use Foreign::{Apart, Figures, Hidden, Open, Operators, Session};
use Scope::{
    AuditRead, EndpointsRead, EndpointsWrite, FilesRead, FilesWrite, JobsCancel, JobsRead, JobsSubmit, LimitsRead,
    LimitsWrite, SecretsRead, SecretsRewrap, SecretsWrite, TenantsRead, TenantsWrite, TokensRead, TokensWrite,
    WebhooksRead, WebhooksWrite, WorkersJoin, WorkersRead,
};

const JOB: &str = r#"{"endpoint": "<endpoint>", "input": {"text": "again"}}"#;
const JOBS: &str = r#"{"jobs": [{"endpoint": "<endpoint>", "input": {"text": "again"}}]}"#;
const FEW: &str = r#"{"filter": {"metadata": {"run": "nobody's"}}}"#;
const FILE: &str = r#"{"name": "new", "size_bytes": 3, "sha256": "<zeros>"}"#;
const BYTES: &str = r#"{"size_bytes": 3, "sha256": "<zeros>"}"#;
const TOKEN: &str = r#"{"name": "another", "scopes": ["tokens:write"]}"#;
const SCHEDULE: &str = r#"{"cron": "30 9 1 1 *", "job": {"endpoint": "<endpoint>", "input": {"text": "again"}}}"#;

/// In an order in which the owner can request all of them.
#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    row("GET /healthz", "/healthz", None, Open, ""),
    row("GET /readyz", "/readyz", None, Open, ""),
    row("GET /metrics", "/metrics", None, Figures, ""),
    row("GET /v1/worker/install.sh", "/v1/worker/install.sh", None, Open, ""),
    row("GET /v1/worker/archives/{name}", "/v1/worker/archives/none.tar.gz", None, Open, ""),
    row("POST /v1/session", "/v1/session", None, Open, r#"{"token": "<token>"}"#),
    row("DELETE /v1/session", "/v1/session", None, Open, ""),
    row("GET /v1/session", "/v1/session", None, Session, ""),
    row("GET /v1/live", "/v1/live", None, Apart, ""),
    row("GET /v1/jobs", "/v1/jobs?limit=100", Some(JobsRead), Apart, ""),
    row("POST /v1/jobs", "/v1/jobs", Some(JobsSubmit), Hidden, JOB),
    row("POST /v1/jobs/bulk", "/v1/jobs/bulk", Some(JobsSubmit), Hidden, JOBS),
    row("GET /v1/jobs/{id}", "/v1/jobs/<done>", Some(JobsRead), Hidden, ""),
    row("GET /v1/jobs/{id}/events", "/v1/jobs/<done>/events", Some(JobsRead), Hidden, ""),
    row("GET /v1/jobs/{id}/trace", "/v1/jobs/<done>/trace", Some(JobsRead), Hidden, ""),
    row("GET /v1/jobs/{id}/result", "/v1/jobs/<done>/result", Some(JobsRead), Hidden, ""),
    row("GET /v1/jobs/{id}/files/{name}", "/v1/jobs/<done>/files/a.png", Some(JobsRead), Hidden, ""),
    row("POST /v1/jobs/{id}/feedback", "/v1/jobs/<done>/feedback", Some(JobsSubmit), Hidden, r#"{"score": 1}"#),
    row("GET /v1/feedback", "/v1/feedback?endpoint=<endpoint>", Some(JobsRead), Apart, ""),
    row("GET /v1/feedback/export", "/v1/feedback/export?endpoint=<endpoint>", Some(JobsRead), Apart, ""),
    row("GET /v1/dead-letters", "/v1/dead-letters", Some(JobsRead), Apart, ""),
    row("POST /v1/jobs/{id}/retry", "/v1/jobs/<dead>/retry", Some(JobsSubmit), Hidden, ""),
    row("POST /v1/jobs/{id}/cancel", "/v1/jobs/<open>/cancel", Some(JobsCancel), Hidden, ""),
    row("POST /v1/jobs/cancel", "/v1/jobs/cancel", Some(JobsCancel), Apart, FEW),
    row("POST /v1/jobs/retry", "/v1/jobs/retry", Some(JobsSubmit), Apart, FEW),
    row("GET /v1/batches", "/v1/batches", Some(JobsRead), Apart, ""),
    row("POST /v1/batches", "/v1/batches", Some(JobsSubmit), Hidden, r#"{"endpoint": "<endpoint>", "lines": [{"input": {"text": "again"}}]}"#),
    row("POST /v1/batches/estimate", "/v1/batches/estimate", Some(JobsRead), Hidden, r#"{"endpoint": "<endpoint>", "line_count": 3}"#),
    row("GET /v1/batches/{id}", "/v1/batches/<batch>", Some(JobsRead), Hidden, ""),
    row("GET /v1/batches/{id}/results", "/v1/batches/<batch>/results", Some(JobsRead), Hidden, ""),
    row("GET /v1/batches/{id}/errors", "/v1/batches/<batch>/errors", Some(JobsRead), Hidden, ""),
    row("POST /v1/batches/{id}/retry-failed", "/v1/batches/<batch>/retry-failed", Some(JobsSubmit), Hidden, ""),
    row("POST /v1/batches/{id}/cancel", "/v1/batches/<open-batch>/cancel", Some(JobsCancel), Hidden, ""),
    row("GET /v1/schedules", "/v1/schedules", Some(JobsRead), Apart, ""),
    row("POST /v1/schedules", "/v1/schedules", Some(JobsSubmit), Hidden, SCHEDULE),
    row("GET /v1/schedules/{id}", "/v1/schedules/<schedule>", Some(JobsRead), Hidden, ""),
    row("POST /v1/schedules/{id}/pause", "/v1/schedules/<schedule>/pause", Some(JobsCancel), Hidden, ""),
    row("POST /v1/schedules/{id}/resume", "/v1/schedules/<schedule>/resume", Some(JobsSubmit), Hidden, ""),
    row("DELETE /v1/schedules/{id}", "/v1/schedules/<schedule>", Some(JobsCancel), Hidden, ""),
    row("POST /v1/packages", "/v1/packages", Some(EndpointsWrite), Apart, BYTES),
    row("POST /v1/weights", "/v1/weights", Some(EndpointsWrite), Apart, BYTES),
    row("GET /v1/weights/url", "/v1/weights/url?source=s3://shared/model", Some(EndpointsWrite), Apart, ""),
    row("GET /v1/endpoints", "/v1/endpoints", Some(EndpointsRead), Apart, ""),
    row("POST /v1/endpoints", "/v1/endpoints", Some(EndpointsWrite), Apart, "<deploy>"),
    row("GET /v1/endpoints/{name}", "/v1/endpoints/<endpoint>", Some(EndpointsRead), Hidden, ""),
    row("GET /v1/endpoints/{name}/versions", "/v1/endpoints/<endpoint>/versions", Some(EndpointsRead), Hidden, ""),
    row("GET /v1/requirement-sets", "/v1/requirement-sets", Some(EndpointsRead), Apart, ""),
    row("DELETE /v1/requirement-sets/{id}", "/v1/requirement-sets/<requirements>?force=true", Some(EndpointsWrite), Hidden, ""),
    row("DELETE /v1/endpoints/{name}/versions/{version}", "/v1/endpoints/<spare>/versions/1?force=true", Some(EndpointsWrite), Hidden, ""),
    row("DELETE /v1/endpoints/{name}", "/v1/endpoints/<spare>", Some(EndpointsWrite), Hidden, ""),
    row("GET /v1/endpoints/{name}/stats", "/v1/endpoints/<endpoint>/stats", Some(JobsRead), Hidden, ""),
    row("GET /v1/endpoints/{name}/needs", "/v1/endpoints/<endpoint>/needs", Some(EndpointsRead), Hidden, ""),
    row("DELETE /v1/endpoints/{name}/needs", "/v1/endpoints/<endpoint>/needs", Some(EndpointsWrite), Hidden, ""),
    row("GET /v1/endpoints/{name}/traffic", "/v1/endpoints/<endpoint>/traffic", Some(EndpointsRead), Hidden, ""),
    row("PUT /v1/endpoints/{name}/traffic", "/v1/endpoints/<endpoint>/traffic", Some(EndpointsWrite), Hidden, r#"{"version": 1}"#),
    row("GET /v1/files", "/v1/files", Some(FilesRead), Apart, ""),
    row("POST /v1/files", "/v1/files", Some(FilesWrite), Apart, FILE),
    row("POST /v1/files/upload", "/v1/files/upload?name=a.txt", Some(FilesWrite), Apart, FILE),
    row("GET /v1/files/{id}", "/v1/files/<file>", Some(FilesRead), Hidden, ""),
    row("DELETE /v1/files/{id}", "/v1/files/<file>?force=true", Some(FilesWrite), Hidden, ""),
    row("GET /v1/secrets", "/v1/secrets", Some(SecretsRead), Apart, ""),
    row("PUT /v1/secrets/{name}", "/v1/secrets/SHARED", Some(SecretsWrite), Apart, r#"{"value": "canary value"}"#),
    row("DELETE /v1/secrets/{name}", "/v1/secrets/<secret>", Some(SecretsWrite), Hidden, ""),
    row("POST /v1/secrets/rewrap", "/v1/secrets/rewrap", Some(SecretsRewrap), Operators, ""),
    row("GET /v1/webhooks/secret", "/v1/webhooks/secret", Some(WebhooksRead), Apart, ""),
    row("POST /v1/webhooks/secret/rotate", "/v1/webhooks/secret/rotate", Some(WebhooksWrite), Apart, ""),
    row("GET /v1/webhooks/deliveries", "/v1/webhooks/deliveries", Some(WebhooksRead), Apart, ""),
    row("GET /v1/webhooks/deliveries/{id}", "/v1/webhooks/deliveries/<delivery>", Some(WebhooksRead), Hidden, ""),
    row("POST /v1/webhooks/deliveries/{id}/replay", "/v1/webhooks/deliveries/<delivery>/replay", Some(WebhooksWrite), Hidden, ""),
    row("GET /v1/limits", "/v1/limits", Some(JobsRead), Apart, ""),
    row("GET /v1/limits/{tenant}", "/v1/limits/<tenant>", Some(LimitsRead), Operators, ""),
    row("PUT /v1/limits/{tenant}", "/v1/limits/<tenant>", Some(LimitsWrite), Operators, r#"{"max_running": 7}"#),
    row("GET /v1/limits/{tenant}/endpoints/{name}", "/v1/limits/<tenant>/endpoints/<endpoint>", Some(LimitsRead), Operators, ""),
    row("PUT /v1/limits/{tenant}/endpoints/{name}", "/v1/limits/<tenant>/endpoints/<endpoint>", Some(LimitsWrite), Operators, r#"{"max_open": 70}"#),
    row("GET /v1/workers", "/v1/workers", Some(WorkersRead), Operators, ""),
    row("GET /v1/workers/{id}/readings", "/v1/workers/<worker>/readings", Some(WorkersRead), Operators, ""),
    row("POST /v1/workers/{id}/evict", "/v1/workers/<worker>/evict", Some(WorkersJoin), Operators, "{}"),
    row("GET /v1/fleet", "/v1/fleet", Some(WorkersRead), Operators, ""),
    row("GET /v1/queue", "/v1/queue", Some(WorkersRead), Operators, ""),
    row("GET /v1/quarantine", "/v1/quarantine", Some(TenantsRead), Operators, ""),
    row("POST /v1/quarantine/readmit", "/v1/quarantine/readmit", Some(TenantsWrite), Operators, r#"{"ids": ["<done>"]}"#),
    row("POST /v1/quarantine/discard", "/v1/quarantine/discard", Some(TenantsWrite), Operators, r#"{"ids": ["<done>"]}"#),
    row("GET /v1/costs", "/v1/costs", Some(JobsRead), Apart, ""),
    row("GET /v1/series", "/v1/series", Some(JobsRead), Apart, ""),
    row("GET /v1/audit", "/v1/audit", Some(AuditRead), Apart, ""),
    row("GET /v1/tenants", "/v1/tenants", Some(TenantsRead), Operators, ""),
    row("POST /v1/tenants", "/v1/tenants", Some(TenantsWrite), Operators, r#"{"name": "new"}"#),
    row("POST /v1/tenants/{tenant}/disable", "/v1/tenants/<other-tenant>/disable", Some(TenantsWrite), Operators, ""),
    row("POST /v1/tenants/{tenant}/enable", "/v1/tenants/<other-tenant>/enable", Some(TenantsWrite), Operators, ""),
    row("GET /v1/tokens", "/v1/tokens", Some(TokensRead), Apart, ""),
    row("POST /v1/tokens", "/v1/tokens", Some(TokensWrite), Apart, TOKEN),
    row("POST /v1/tokens/{id}/rotate", "/v1/tokens/<token-id>/rotate", Some(TokensWrite), Hidden, "{}"),
    row("DELETE /v1/tokens/{id}", "/v1/tokens/<token-id>", Some(TokensWrite), Hidden, ""),
];

/// The routes of OpenAI's API, which are in no document of ours, and their scopes.
pub(crate) const OPENAI_ROUTES: [(&str, &str, Scope); 17] = [
    ("GET", "/openai/v1/models", Scope::JobsSubmit),
    ("GET", "/openai/v1/models/{*id}", Scope::JobsSubmit),
    ("POST", "/openai/v1/chat/completions", Scope::JobsSubmit),
    ("POST", "/openai/v1/completions", Scope::JobsSubmit),
    ("POST", "/openai/v1/responses", Scope::JobsSubmit),
    ("POST", "/openai/v1/embeddings", Scope::JobsSubmit),
    ("POST", "/openai/v1/images/generations", Scope::JobsSubmit),
    ("POST", "/openai/v1/images/edits", Scope::JobsSubmit),
    ("POST", "/openai/v1/files", Scope::FilesWrite),
    ("GET", "/openai/v1/files", Scope::FilesRead),
    ("GET", "/openai/v1/files/{id}", Scope::FilesRead),
    ("DELETE", "/openai/v1/files/{id}", Scope::FilesWrite),
    ("GET", "/openai/v1/files/{id}/content", Scope::FilesRead),
    ("POST", "/openai/v1/batches", Scope::JobsSubmit),
    ("GET", "/openai/v1/batches", Scope::JobsRead),
    ("GET", "/openai/v1/batches/{id}", Scope::JobsRead),
    ("POST", "/openai/v1/batches/{id}/cancel", Scope::JobsCancel),
];
