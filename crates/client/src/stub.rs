//! A stub API for tests.

#![allow(clippy::unwrap_used, reason = "tests")]

use axum::Router;

use crate::Client;

/// Serves `routes` until the test ends.
pub(crate) async fn serve(routes: Router) -> Client {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    Client::new(url, "sk_test".to_owned(), crate::Hints::default()).unwrap()
}
