//! Names, ports and clocks: what stands between this machine and a server that does not answer.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

use reqwest::Url;
use reqwest::header::{DATE, HeaderMap};
use stokehold_worker::machine::Finding;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::LIMIT;

/// Presigned URLs and signatures of webhooks are good for five minutes to either side; a clock that is off by this drifts there.
const SKEW_MAX: Duration = Duration::from_secs(30);

/// Why nothing answers at a URL: its name, its port, or what is behind it.
pub(super) async fn unreached(what: &'static str, url: &str) -> Finding {
    let Some((host, port)) = place(url) else {
        return Finding::fail(what, format!("{url} is no URL"), "It looks like https://stokehold.example.com.");
    };
    let addresses = match resolved(&host, port).await {
        Ok(addresses) => addresses,
        Err(why) => return Finding::warn(what, why, "Is the name right, and does DNS have it?"),
    };
    if connected(&addresses).await {
        let found = format!("{url} takes connections and answers no request");
        return Finding::fail(
            what,
            found,
            "Is it http where https is wanted, or the other way round? Is a proxy before it?",
        );
    }
    let found = format!("nothing listens at {url} ({})", shown(&addresses));
    Finding::warn(what, found, "Start it (`stoke dev`), open the port, or say where it is with --url.")
}

/// Whether webhooks may go to a URL, as the API sees it by default, and whether it answers from here.
pub(super) async fn webhook(url: &str) -> Finding {
    const WHAT: &str = "webhook";
    const FIX: &str =
        "Webhooks go to https URLs on the open net; docs/webhooks.md says what an operator may allow beside that.";
    let Some((host, port)) = place(url).filter(|_| url.starts_with("https://")) else {
        return Finding::fail(WHAT, format!("{url} is no https URL"), FIX);
    };
    let addresses = match resolved(&host, port).await {
        Ok(addresses) => addresses,
        Err(why) => return Finding::fail(WHAT, why, "Is the name right, and does DNS have it?"),
    };
    if let Some(inside) = addresses.iter().map(SocketAddr::ip).find(|ip| !is_open(*ip)) {
        return Finding::fail(WHAT, format!("{host} is {inside}, which is no address of the open net"), FIX);
    }
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).timeout(LIMIT).build();
    let Ok(client) = client else {
        return Finding::fail(WHAT, "no HTTPS client can be made here", "Are there root certificates?");
    };
    match client.head(url).send().await {
        Ok(answer) if answer.status().is_redirection() => Finding::warn(
            WHAT,
            format!("{url} redirects"),
            "Redirects are not followed: give the address that it names.",
        ),
        Ok(answer) => Finding::ok(WHAT, format!("{host} answers ({} to HEAD)", answer.status().as_u16())),
        Err(error) => Finding::fail(
            WHAT,
            format!("{host} does not answer: {}", error.without_url()),
            "Open its port to the API, and let its certificate be one that everybody trusts.",
        ),
    }
}

/// How far this clock is from a server's, by the `Date` of its answer; `None` when it told none.
pub(super) fn clock(what: &'static str, headers: &HeaderMap) -> Option<Finding> {
    let theirs = httpdate::parse_http_date(headers.get(DATE)?.to_str().ok()?).ok()?;
    Some(skew(what, theirs, SystemTime::now()))
}

fn skew(what: &'static str, theirs: SystemTime, ours: SystemTime) -> Finding {
    // It tells whole seconds.
    let (apart, word) = match ours.duration_since(theirs) {
        Ok(ahead) => (ahead, "ahead"),
        Err(behind) => (behind.duration(), "behind"),
    };
    if apart <= SKEW_MAX {
        return Finding::ok(what, format!("{} s apart", apart.as_secs()));
    }
    let found = format!("{} s {word}", apart.as_secs());
    Finding::fail(
        what,
        found,
        "Presigned URLs and signatures are refused soon: let both machines keep time (chrony, systemd-timesyncd).",
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
        Ok(Err(error)) => Err(format!("{host} cannot be resolved: {error}")),
        Err(_) => Err(format!("{host} cannot be resolved: DNS does not answer")),
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

/// Nobody's own network, as far as a diagnosis goes; the API's guard knows every range.
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
            (ours - Duration::from_secs(30), Verdict::Ok, "30 s apart"),
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
        assert!(unreached("API", &silent).await.found.contains("answers no request"));
        drop(taken);
        assert!(unreached("API", &silent).await.found.contains("nothing listens"));
        assert!(unreached("API", "http://no-such-host.invalid").await.found.contains("cannot be resolved"));
    }

    #[tokio::test]
    async fn a_webhook_goes_to_https_on_the_open_net_only() {
        for (url, why) in
            [("http://example.com/", "no https URL"), ("https://127.0.0.1/", "no address of the open net")]
        {
            let finding = webhook(url).await;
            assert!(finding.verdict == Verdict::Fail && finding.found.contains(why), "{finding:?}");
        }
    }
}
