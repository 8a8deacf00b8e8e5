//! What one `stoke dev` leaves for the next, and for `stoke token` and `stoke doctor`.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

use crate::credentials::{read_json, write_secret_json};

const FILE: &str = "stack.json";

/// What `stack.json` holds.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct State {
    /// Where Redis answers; may hold a password.
    pub(crate) redis_url: String,
    /// What its keys start with.
    pub(crate) redis_prefix: String,
    /// The ports of last time: what a client was told then still holds.
    pub(crate) api_port: u16,
    pub(crate) store_port: u16,
}

impl State {
    /// That of the last start, if there was one.
    pub(crate) fn load(data: &Path) -> Result<Option<Self>> {
        read_json(&data.join(FILE))
    }

    pub(super) fn save(&self, data: &Path) -> Result<()> {
        write_secret_json(&data.join(FILE), self)
    }
}

/// A listener on `address`, or, if it leaves the port open, on the port of last time or any other.
pub(super) async fn listen(address: SocketAddr, last_port: u16) -> Result<TcpListener> {
    if address.port() == 0
        && let Ok(again) = TcpListener::bind((address.ip(), last_port)).await
    {
        return Ok(again);
    }
    let why = || {
        format!(
            "cannot listen on {address}; is another stoke dev running? --listen {}:0 takes a free port",
            address.ip()
        )
    };
    TcpListener::bind(address).await.with_context(why)
}

/// A URL's host.
pub(super) fn host(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[tokio::test]
    async fn an_open_port_is_that_of_last_time_unless_taken() {
        let open: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let first = listen(open, 0).await.unwrap();
        let port = first.local_addr().unwrap().port();
        let taken = listen(open, port).await.unwrap();
        assert_ne!(taken.local_addr().unwrap().port(), port);
        drop(first);
        assert_eq!(listen(open, port).await.unwrap().local_addr().unwrap().port(), port);
    }
}
