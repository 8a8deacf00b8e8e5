//! Network checks: DNS, ports, TLS and clocks.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

use reqwest::Url;
use reqwest::header::{DATE, HeaderMap};
use stokehold_worker::machine::Finding;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::LIMIT;

/// Largest acceptable clock difference. Presigned URLs and webhook signatures tolerate five minutes.
const SKEW_MAX: Duration = Duration::from_secs(30);

/// Finds out why a URL does not respond: DNS, port or server.
pub(super) async fn unreached(what: &'static str, url: &str) -> Finding {
    let Some((host, port)) = place(url) else {
        return Finding::fail(
            what,
            format!("{url} is not a valid URL"),
            "Use a URL such as https://stokehold.example.com.",
        );
    };
    let addresses = match resolved(&host, port).await {
        Ok(addresses) => addresses,
        Err(why) => return Finding::warn(what, why, "Check the spelling of the host name and its DNS record."),
    };
    if connected(&addresses).await {
        let found = format!("{url} accepts connections but does not respond to requests");
        return Finding::fail(what, found, "Check http against https, and the proxy in front of it.");
    }
    let found = format!("nothing listens on {url} ({})", shown(&addresses));
    Finding::warn(what, found, "Start the API (`stoke dev`), open the port, or set the right address with --url.")
}

/// Checks whether the API's default rules allow webhooks to a URL, and whether it responds.
pub(super) async fn webhook(url: &str) -> Finding {
    const WHAT: &str = "webhook";
    const FIX: &str = "Webhooks must be https URLs with a public address; see docs/how-to/webhooks.md for what an operator can allow.";
    let Some((host, port)) = place(url).filter(|_| url.starts_with("https://")) else {
        return Finding::fail(WHAT, format!("{url} is not an https URL"), FIX);
    };
    let addresses = match resolved(&host, port).await {
        Ok(addresses) => addresses,
        Err(why) => return Finding::fail(WHAT, why, "Check the spelling of the host name and its DNS record."),
    };
    if let Some(inside) = addresses.iter().map(SocketAddr::ip).find(|ip| !is_open(*ip)) {
        return Finding::fail(WHAT, format!("{host} resolves to {inside}, which is not a public address"), FIX);
    }
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).timeout(LIMIT).build();
    let Ok(client) = client else {
        return Finding::fail(WHAT, "cannot create an HTTPS client", "Check that root certificates are installed.");
    };
    match client.head(url).send().await {
        Ok(answer) if answer.status().is_redirection() => {
            Finding::warn(WHAT, format!("{url} redirects"), "Webhooks do not follow redirects: use the final address.")
        }
        Ok(answer) => Finding::ok(WHAT, format!("{host} responds ({} to HEAD)", answer.status().as_u16())),
        Err(error) => Finding::fail(
            WHAT,
            format!("no response from {host}: {}", error.without_url()),
            "Open its port to the API, and use a certificate of a public authority.",
        ),
    }
}

/// Compares this clock with the `Date` header of a response; `None` without that header.
pub(super) fn clock(what: &'static str, headers: &HeaderMap) -> Option<Finding> {
    let theirs = httpdate::parse_http_date(headers.get(DATE)?.to_str().ok()?).ok()?;
    Some(skew(what, theirs, SystemTime::now()))
}

fn skew(what: &'static str, theirs: SystemTime, ours: SystemTime) -> Finding {
    // The header has whole seconds.
    let (apart, word) = match ours.duration_since(theirs) {
        Ok(ahead) => (ahead, "ahead"),
        Err(behind) => (behind.duration(), "behind"),
    };
    if apart <= SKEW_MAX {
        return Finding::ok(what, format!("{} s", apart.as_secs()));
    }
    let found = format!("{} s {word}", apart.as_secs());
    Finding::fail(
        what,
        found,
        "Larger differences break presigned URLs and signatures: synchronise both clocks (chrony, systemd-timesyncd).",
    )
}

fn place(url: &str) -> Option<(String, u16)> {
    let url = Url::parse(url).ok()?;
    let host = url.host_str()?.trim_start_matches('[').trim_end_matches(']').to_owned();
    Some((host, url.port_or_known_default()?))
}

async fn resolved(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    match timeout(LIMIT, lookup_host((host, port))).await {
        Ok(Ok(found)) => Ok(found.collect()),
        Ok(Err(error)) => Err(format!("cannot resolve {host}: {error}")),
        Err(_) => Err(format!("cannot resolve {host}: DNS timed out")),
    }
}

async fn connected(addresses: &[SocketAddr]) -> bool {
    for address in addresses {
        if matches!(timeout(LIMIT, TcpStream::connect(address)).await, Ok(Ok(_))) {
            return true;
        }
    }
    false
}

fn shown(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ")
}

/// Returns whether an address is public. This is a rough check; the API's guard has the complete list of ranges.
fn is_open(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => !(ip.is_private() || ip.is_loopback() || ip.is_link_local() || ip.is_unspecified()),
        IpAddr::V6(ip) => {
            !(ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local() || ip.is_unspecified())
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use stokehold_worker::machine::Verdict;

    use super::*;

    #[test]
    fn a_clock_may_be_half_a_minute_off() {
        let ours = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        for (theirs, verdict, found) in [
            (ours - Duration::from_secs(30), Verdict::Ok, "30 s"),
            (ours - Duration::from_secs(31), Verdict::Fail, "31 s ahead"),
            (ours + Duration::from_secs(900), Verdict::Fail, "900 s behind"),
        ] {
            let finding = skew("clock", theirs, ours);
            assert_eq!((finding.verdict, finding.found.as_str()), (verdict, found));
        }
    }

    #[tokio::test]
    async fn a_port_where_nobody_listens_is_told_from_one_that_does_not_speak() {
        let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let silent = format!("http://{}", taken.local_addr().unwrap());
        assert!(unreached("API", &silent).await.found.contains("does not respond to requests"));
        drop(taken);
        assert!(unreached("API", &silent).await.found.contains("nothing listens"));
        assert!(unreached("API", "http://no-such-host.invalid").await.found.contains("cannot resolve"));
    }

    #[tokio::test]
    async fn a_webhook_goes_to_https_on_the_open_net_only() {
        for (url, why) in [("http://example.com/", "not an https URL"), ("https://127.0.0.1/", "not a public address")]
        {
            let finding = webhook(url).await;
            assert!(finding.verdict == Verdict::Fail && finding.found.contains(why), "{finding:?}");
        }
    }
}
