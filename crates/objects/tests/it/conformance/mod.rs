//! Requirements for every S3 server that Stokehold runs on, checked with the AWS SDK and with our own client.

mod bodies;
mod client;
mod conditional;
mod listing;
mod multipart;
mod presigned;

use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};

use crate::server::Endpoint;

/// The whole suite; each part uses separate keys.
pub(crate) async fn exercise(server: &Endpoint) {
    bodies::exercise(server).await;
    conditional::exercise(server).await;
    listing::exercise(server).await;
    multipart::exercise(server).await;
    presigned::exercise(server).await;
    client::exercise(server).await;
}

/// Status and code of an error.
fn refusal<T: std::fmt::Debug, E: ProvideErrorMetadata + std::fmt::Debug>(
    answer: Result<T, SdkError<E>>,
) -> (u16, String) {
    let error = answer.expect_err("the server should have refused");
    let status = error.raw_response().map(|raw| raw.status().as_u16());
    let status = status.unwrap_or_else(|| panic!("no answer at all: {error:?}"));
    (status, error.code().unwrap_or_default().to_owned())
}

/// Bytes that differ from place to place, so that a lost, duplicated or moved piece is detected.
fn bytes(length: usize) -> Vec<u8> {
    (0..length as u64 / 8 + 1).flat_map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()).take(length).collect()
}
