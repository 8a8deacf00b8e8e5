//! The address that a request comes from. Behind a trusted proxy it is the address that the proxy reports; no other
//! report is trusted.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use axum::extract::{FromRef, FromRequestParts};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use ipnet::IpNet;

use crate::config::Config;

const FORWARDED_FOR: &str = "x-forwarded-for";

/// Maximum number of proxies in a list. A longer list is ignored.
const HOPS_MAX: usize = 16;

/// Address of the other end of the connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// The address that a request comes from; `None` when there is no connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Address(pub(crate) Option<IpAddr>);

impl Address {
    /// Determines the address from a request's head.
    pub(crate) fn of(config: &Config, parts: &Parts) -> Self {
        let peer = parts.extensions.get::<Peer>().map(|Peer(peer)| peer.ip().to_canonical());
        Self(peer.map(|peer| client(peer, &parts.headers, &config.trusted_proxies)))
    }

    /// Address by which a client is counted. For IPv6 it is the /64 network, because a client can use all of its
    /// addresses. The loopback address is not counted: a proxy on this host that is not configured would make all
    /// clients one.
    pub(crate) fn counted(self) -> Option<IpAddr> {
        self.0.filter(|address| !address.is_loopback()).map(|address| match address {
            IpAddr::V4(_) => address,
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64))),
        })
    }

    /// The address as text; empty when it is not known.
    pub(crate) fn text(self) -> String {
        self.0.map_or(String::new(), |address| address.to_string())
    }
}

impl<S: Sync> FromRequestParts<S> for Address
where
    Arc<Config>: FromRef<S>,
{
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&Arc::<Config>::from_ref(state), parts))
    }
}

/// The first address from the right that is not a trusted proxy: each proxy has appended its client. Entries to the
/// left of it may be forged.
fn client(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let is_trusted = |address: IpAddr| trusted.iter().any(|net| net.contains(&address));
    let lines = headers.get_all(FORWARDED_FOR).iter().filter_map(|line| line.to_str().ok());
    let hops: Vec<&str> = lines.flat_map(|line| line.split(',')).collect();
    let mut client = peer;
    for hop in hops.iter().rev().take(HOPS_MAX) {
        let Some(before) = is_trusted(client).then(|| address(hop.trim())).flatten() else { break };
        client = before;
    }
    client
}

/// Parses an address with or without a port.
fn address(text: &str) -> Option<IpAddr> {
    let plain = text.trim_start_matches('[').trim_end_matches(']').parse().ok();
    plain.or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip())).map(|ip: IpAddr| ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(peer: &str, forwarded: &[&str], trusted: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for line in forwarded {
            headers.append(FORWARDED_FOR, line.parse().unwrap());
        }
        let trusted: Vec<IpNet> = trusted.iter().map(|net| net.parse().unwrap()).collect();
        client(peer.parse().unwrap(), &headers, &trusted).to_string()
    }

    #[test]
    fn only_a_proxy_of_ours_is_believed() {
        assert_eq!(from("9.9.9.9", &["1.1.1.1"], &[]), "9.9.9.9");
        assert_eq!(from("9.9.9.9", &["1.1.1.1"], &["10.0.0.0/8"]), "9.9.9.9");
        assert_eq!(from("10.0.0.1", &["1.1.1.1"], &["10.0.0.0/8"]), "1.1.1.1");
        assert_eq!(from("10.0.0.1", &[], &["10.0.0.0/8"]), "10.0.0.1");
    }

    #[test]
    fn what_a_client_writes_itself_is_not_believed() {
        assert_eq!(from("10.0.0.1", &["6.6.6.6, 1.1.1.1, 10.0.0.2"], &["10.0.0.0/8"]), "1.1.1.1");
        assert_eq!(from("10.0.0.1", &["6.6.6.6", "1.1.1.1"], &["10.0.0.0/8"]), "1.1.1.1");
        assert_eq!(from("10.0.0.1", &["6.6.6.6, nonsense"], &["10.0.0.0/8"]), "10.0.0.1");
        assert_eq!(from("10.0.0.1", &["[2001:db8::1]:443"], &["10.0.0.0/8"]), "2001:db8::1");
        assert_eq!(from("10.0.0.1", &["1.1.1.1:5555"], &["10.0.0.0/8"]), "1.1.1.1");
    }

    #[test]
    fn neighbours_of_an_ipv6_client_are_counted_as_it() {
        let counted = |text: &str| Address(Some(text.parse().unwrap())).counted().unwrap().to_string();
        assert_eq!(counted("2001:db8::1"), counted("2001:db8::ffff"));
        assert_ne!(counted("2001:db8::1"), counted("2001:db8:0:1::1"));
        assert_eq!(counted("10.0.0.1"), "10.0.0.1");
        for here in ["127.0.0.1", "::1"] {
            assert_eq!(Address(Some(here.parse().unwrap())).counted(), None);
        }
    }
}
