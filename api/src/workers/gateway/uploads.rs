use axum::Json as JsonAnswer;
use axum::extract::State;
use stokehold_objects::Announced;
use stokehold_queue::Queue;
use stokehold_queue::gateway::{LeaseRef, Upload, UploadFile, UploadsReply, UploadsRequest};
use stokehold_queue::job::Job;

use super::{BODY_MAX, URL_TTL};
use crate::error::{Code, Problem};
use crate::names;
use crate::server::json::Json;
use crate::state::App;
use crate::tenants::auth::JoinedWorker;

const FILES_MAX: usize = 1_000;

/// `uploads`: returns upload URLs for the files of one attempt. The URLs are below the attempt's own prefix, and are
/// issued only while the lease is held.
pub(super) async fn uploads(
    State(app): State<App>,
    worker: JoinedWorker,
    Json(request): Json<UploadsRequest, BODY_MAX>,
) -> Result<JsonAnswer<UploadsReply>, Problem> {
    if request.files.len() > FILES_MAX {
        return Err(Problem::field("/files", format!("must be at most {FILES_MAX}")));
    }
    for (n, file) in request.files.iter().enumerate() {
        check(n, file, app.config.limits.file_bytes)?;
    }
    let lease = LeaseRef { job_id: request.job_id, fence: request.fence };
    app.ownership.check_own(&worker.worker_id, &lease).await?;
    let Some((spec, attempt)) = app.db.ask("check a lease", app.db.queue.held(&lease)).await? else {
        return Err(Problem::new(Code::StaleFence, "this lease is no longer held; discard the attempt's output"));
    };
    let prefix = Job::attempt_prefix(&spec.tenant, lease.job_id, attempt, &lease.fence);
    let mut uploads = Vec::with_capacity(request.files.len());
    for file in &request.files {
        let key = format!("{prefix}{}", file.name);
        let announced = Announced {
            size_bytes: file.size_bytes,
            sha256_hex: &file.sha256,
            content_type: &file.content_type,
            name: Some(&file.name),
        };
        let put = app.objects.presign_put(&key, announced, URL_TTL).await?;
        uploads.push(Upload { url: put.url, headers: put.headers });
    }
    Ok(JsonAnswer(UploadsReply { uploads }))
}

fn check(n: usize, file: &UploadFile, most: u64) -> Result<(), Problem> {
    let wrong = |member: &str, message: String| Err(Problem::field(format!("/files/{n}/{member}"), message));
    if !names::is_file_name(&file.name) {
        return wrong("name", "must be 1 to 200 bytes without separators and control characters".to_owned());
    }
    if file.size_bytes > most {
        return wrong("size_bytes", format!("must be at most {most}"));
    }
    if !names::is_sha256(&file.sha256) {
        return wrong("sha256", "must be 64 lower-case hex digits".to_owned());
    }
    if !names::is_content_type(&file.content_type) {
        return wrong("content_type", "must be a MIME type, e.g. image/png".to_owned());
    }
    Ok(())
}
