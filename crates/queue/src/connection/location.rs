//! Parses a Redis URL: one server, a service monitored by Sentinels, or a cluster.

use redis::io::tcp::TcpSettings;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};
use std::time::Duration;

use crate::error::Error;

const SENTINEL_PORT: u16 = 26_379;

/// Maximum number of hosts in a URL.
const HOSTS_MAX: usize = 64;

/// TCP user timeout: if data is not acknowledged for this long, the host is considered down.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(10);

/// The location of Redis.
#[derive(Clone)]
pub(crate) enum Location {
    /// A server with a fixed address.
    Server(ConnectionInfo),
    /// The primary of a service, located through Sentinels.
    Sentinel {
        sentinels: Vec<ConnectionInfo>,
        service: String,
        /// Settings of connections to the primary; the address is a placeholder.
        node: ConnectionInfo,
    },
    /// The primary of a hash slot, located through any node of the cluster. Each entry also provides the settings for
    /// connections to other nodes.
    Cluster { nodes: Vec<ConnectionInfo> },
}

impl Location {
    /// Parses `redis://`, `rediss://`, `redis+unix://`, `redis+sentinel://[user:password@]host:port,.../service[/db]`
    /// and `redis+cluster://[user:password@]host:port,...`; the last two also as `rediss+...` for TLS. The Sentinels'
    /// own password is `?sentinel_password=`, and their user `?sentinel_user=`.
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        let unusable = |why: String| Error::Unfit(format!("the Redis URL is not valid: {why}"));
        let connect =
            |url: String| url.into_connection_info().map(settled).map_err(|error| unusable(error.to_string()));
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let (plain, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        if !matches!((plain, kind), ("redis" | "rediss", "sentinel" | "cluster")) {
            return Ok(Self::Server(connect(url.to_owned())?));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = authority.rsplit_once('@').map_or(("", authority), |(user, hosts)| (user, hosts));
        let user = if user.is_empty() { String::new() } else { format!("{user}@") };
        let (ours, theirs): (Vec<&str>, Vec<&str>) =
            query.split('&').filter(|part| !part.is_empty()).partition(|part| part.starts_with("sentinel_"));
        let query = if theirs.is_empty() { String::new() } else { format!("?{}", theirs.join("&")) };
        let hosts: Vec<&str> = hosts.split(',').filter(|host| !host.is_empty()).collect();
        if hosts.is_empty() || hosts.len() > HOSTS_MAX {
            return Err(unusable(format!("it must name 1 to {HOSTS_MAX} hosts")));
        }
        if kind == "cluster" {
            if !matches!(path, "" | "0") {
                return Err(unusable("a cluster has only database 0".to_owned()));
            }
            let node = |host: &&str| connect(format!("{plain}://{user}{host}{query}"));
            return Ok(Self::Cluster { nodes: hosts.iter().map(node).collect::<Result<_, _>>()? });
        }
        let (service, db) = path.split_once('/').unwrap_or((path, "0"));
        if service.is_empty() {
            return Err(unusable("the service's name is missing: redis+sentinel://host:port,.../name".to_owned()));
        }
        let value = |name: &str| ours.iter().find_map(|part| part.strip_prefix(name)?.strip_prefix('=')).unwrap_or("");
        let guard = match (value("sentinel_user"), value("sentinel_password")) {
            ("", "") => String::new(),
            (user, password) => format!("{user}:{password}@"),
        };
        let sentinel = |host: &&str| {
            // An IPv6 address ends in a bracket unless a port follows.
            let port =
                if host.contains(':') && !host.ends_with(']') { String::new() } else { format!(":{SENTINEL_PORT}") };
            connect(format!("{plain}://{guard}{host}{port}"))
        };
        Ok(Self::Sentinel {
            sentinels: hosts.iter().map(sentinel).collect::<Result<_, _>>()?,
            service: service.to_owned(),
            node: connect(format!("{plain}://{user}placeholder/{db}{query}"))?,
        })
    }

    /// Whether all roots have the same primary.
    pub(crate) fn is_one(&self) -> bool {
        !matches!(self, Self::Cluster { .. })
    }
}

/// The same server settings at another address.
pub(crate) fn at(pattern: &ConnectionInfo, host: String, port: u16) -> ConnectionInfo {
    let addr = match pattern.addr().clone() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure, tls_params }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    pattern.clone().set_addr(addr)
}

/// Sets keepalive and timeouts of the socket. A paused or disconnected server leaves it open; only probes detect that.
fn settled(info: ConnectionInfo) -> ConnectionInfo {
    let probes = redis::io::tcp::socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(5))
        .with_interval(Duration::from_secs(2))
        .with_retries(3);
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(probes);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(UNACKNOWLEDGED_MAX);
    info.set_tcp_settings(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(infos: &[ConnectionInfo]) -> Vec<String> {
        infos.iter().map(|info| info.addr().to_string()).collect()
    }

    #[test]
    fn a_url_names_a_server_a_service_or_a_cluster() {
        for url in ["redis://127.0.0.1:6379/0", "redis+unix:///run/redis.sock", "rediss://a"] {
            assert!(matches!(Location::parse(url), Ok(Location::Server(_))), "{url}");
        }
        let Ok(Location::Sentinel { sentinels, service, node }) =
            Location::parse("redis+sentinel://me:p%40ss@a:1,b,[::1]/main/3?sentinel_password=s&protocol=resp3")
        else {
            panic!("a Sentinel URL")
        };
        assert_eq!(
            (addresses(&sentinels), service.as_str()),
            (vec!["a:1".into(), "b:26379".into(), "::1:26379".into()], "main")
        );
        let settings = node.redis_settings();
        assert_eq!((settings.username(), settings.password(), settings.db()), (Some("me"), Some("p@ss"), 3));
        assert_eq!(settings.protocol(), redis::ProtocolVersion::RESP3);
        assert_eq!(sentinels[0].redis_settings().password(), Some("s"));
        assert_eq!(sentinels[0].redis_settings().username(), None);
        let Ok(Location::Cluster { nodes }) = Location::parse("rediss+cluster://:pw@a:1,b:2") else {
            panic!("a cluster's URL")
        };
        assert_eq!(addresses(&nodes), ["a:1", "b:2"]);
        assert!(matches!(at(&nodes[0], "c".into(), 9).addr(), ConnectionAddr::TcpTls { port: 9, .. }));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for url in
            ["", "http://a", "redis+sentinel://a:1", "redis+cluster://", "redis+cluster://a/3", "redis+other://a"]
        {
            assert!(matches!(Location::parse(url), Err(Error::Unfit(_))), "{url}");
        }
    }
}
