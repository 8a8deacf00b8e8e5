//! State of a `stoke dev` that its next start, `stoke token` and `stoke doctor` read.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

use crate::credentials::{read_json, write_secret_json};

const FILE: &str = "stack.json";

/// The contents of `stack.json`.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct State {
    /// URL of Redis; may contain a password.
    pub(crate) redis_url: String,
    /// Key prefix in Redis.
    pub(crate) redis_prefix: String,
    /// Ports of the last start. They are reused, so that addresses that clients have stay valid.
    pub(crate) api_port: u16,
    pub(crate) store_port: u16,
}

impl State {
    /// Loads the state of the last start, if any.
    pub(crate) fn load(data: &Path) -> Result<Option<Self>> {
        read_json(&data.join(FILE))
    }

    pub(super) fn save(&self, data: &Path) -> Result<()> {
        write_secret_json(&data.join(FILE), self)
    }
}

/// Listens on `address`. If its port is 0, prefers the port of the last start.
pub(super) async fn listen(address: SocketAddr, last_port: u16) -> Result<TcpListener> {
    if address.port() == 0
        && let Ok(again) = TcpListener::bind((address.ip(), last_port)).await
    {
        return Ok(again);
    }
    let why = || {
        format!(
            "cannot listen on {address}; if another `stoke dev` is running, use --listen {}:0 to pick a free port",
            address.ip()
        )
    };
    TcpListener::bind(address).await.with_context(why)
}

/// Formats an address as the host of a URL.
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
