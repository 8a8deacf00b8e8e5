//! A stub API for tests.

#![allow(clippy::unwrap_used, reason = "tests")]

use axum::Router;
use clap::Parser;

use crate::client::{Client, connect_to};
use crate::{Cli, Command, help, old};

/// Serves `routes` until the test ends.
pub(crate) async fn serve(routes: Router) -> Client {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    connect_to(url, "sk_test".to_owned()).unwrap()
}

/// Parses `stoke ARGUMENTS`, in the spelling of this release or of the one before.
pub(crate) fn parse(arguments: &str) -> Result<Command, String> {
    let words = std::iter::once("stoke").chain(arguments.split_whitespace()).map(Into::into).collect();
    let typed = old::translate(&help::command(), words);
    Cli::try_parse_from(typed.words).map(|cli| cli.command).map_err(|error| error.to_string())
}
