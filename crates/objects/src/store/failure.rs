//! Disk errors as S3 errors.

use std::io;

use s3s::{S3Error, S3ErrorCode};

/// Maps a disk error to an S3 error. The log gets the cause; the client gets the step and what to do.
pub(super) fn failed(step: &'static str) -> impl Fn(io::Error) -> S3Error {
    move |error| {
        tracing::error!(%error, "failed to {step}");
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                let text = "the store's disk is full; free some space and try again";
                let mut answer = S3Error::with_message(S3ErrorCode::Custom("StorageFull".into()), text);
                answer.set_status_code(http::StatusCode::INSUFFICIENT_STORAGE);
                answer
            }
            _ => S3Error::with_message(
                S3ErrorCode::InternalError,
                format!("failed to {step}; the store's log has the reason"),
            ),
        }
    }
}
