//! The client and the store, and one suite for our store and a foreign server.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod conformance;
mod faults;
mod kill;
mod server;
mod store;

/// Our own store, as `stoke dev` runs it.
#[tokio::test(flavor = "multi_thread")]
async fn our_store_conforms() {
    let server = server::store().await;
    conformance::exercise(&server.endpoint).await;
}

/// Garage, an independent server: a test that passes on it checks S3 and not our interpretation of S3. Building it takes
/// a tenth of the time of CI.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a Garage: make test-garage"]
async fn garage_conforms() {
    let server = server::garage();
    conformance::exercise(&server.endpoint).await;
}
