//! Fuzz target for the destinations of webhooks: no URL, however written, leads to an address that is not public.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

use crate::config::Webhooks;
use crate::webhooks::guard;

/// Addresses that must never be reached, written as ranges, independently of the policy's own code.
const NEVER_V4: &[([u8; 4], u32)] = &[
    ([0, 0, 0, 0], 8),
    ([100, 64, 0, 0], 10),
    ([168, 63, 129, 16], 32),
    ([169, 254, 0, 0], 16),
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    ([192, 88, 99, 0], 24),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    ([224, 0, 0, 0], 3),
];

/// Addresses that only an operator may allow.
const PRIVATE_V4: &[([u8; 4], u32)] =
    &[([10, 0, 0, 0], 8), ([127, 0, 0, 0], 8), ([172, 16, 0, 0], 12), ([192, 168, 0, 0], 16)];

pub fn check(data: &[u8]) {
    let (choice, text) = super::split(data);
    let strict = Webhooks::default();
    let open = Webhooks { allow_private: true, allow_http: true, ..Webhooks::default() };
    let config = if choice % 2 == 0 { &strict } else { &open };
    if let Some(bytes) = text.first_chunk::<16>() {
        is_judged(config, Ipv6Addr::from(*bytes).into());
    }
    if let Some(bytes) = text.first_chunk::<4>() {
        is_judged(config, Ipv4Addr::from(*bytes).into());
    }
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    if let Ok(url) = guard::check_url(config, text) {
        is_allowed_for_a_reason(config, text, &url);
    }
    // The text as a host alone, where most bypasses are.
    if let Ok(url) = guard::check_url(config, &format!("https://{text}/")) {
        is_allowed_for_a_reason(config, &format!("https://{text}/"), &url);
    }
}

fn is_judged(config: &Webhooks, ip: IpAddr) {
    if guard::check(config, ip).is_ok() {
        assert!(is_reachable(ip, config.allow_private), "{ip} is allowed");
    }
}

fn is_allowed_for_a_reason(config: &Webhooks, text: &str, url: &Url) {
    assert!(url.scheme() == "https" || (config.allow_http && url.scheme() == "http"));
    assert!(url.username().is_empty() && url.password().is_none() && url.as_str().is_ascii());
    assert!(matches!(url.port_or_known_default(), Some(443 | 8_443)) || config.allow_http);
    // The stored text is checked again before each attempt, and so is the client's form of it.
    assert_eq!(guard::check_url(config, text).as_ref(), Ok(url));
    assert_eq!(guard::check_url(config, url.as_str()).as_ref(), Ok(url));
    match url.host().unwrap() {
        Host::Ipv4(ip) => assert!(is_reachable(ip.into(), config.allow_private), "{text} leads to {ip}"),
        Host::Ipv6(ip) => assert!(is_reachable(ip.into(), config.allow_private), "{text} leads to {ip}"),
        Host::Domain(name) => {
            assert!(is_name(name), "{text} leads to {name:?}, which a resolver may read as an address")
        }
    }
}

/// Returns whether a text has only non-empty labels, the last of which is not a number in any base that `inet_aton`
/// reads.
fn is_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let last = name.rsplit('.').next().unwrap_or_default();
    let hex = last.strip_prefix("0x").is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
    let number = hex || last.bytes().all(|b| b.is_ascii_digit());
    name.split('.').all(|label| !label.is_empty()) && !number
}

fn is_reachable(ip: IpAddr, private: bool) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let within = |ranges: &[([u8; 4], u32)]| ranges.iter().any(|range| is_within(ip, *range));
            !within(NEVER_V4) && (private || !within(PRIVATE_V4))
        }
        IpAddr::V6(ip) => is_reachable_v6(ip, private),
    }
}

fn is_within(ip: Ipv4Addr, (range, bits): ([u8; 4], u32)) -> bool {
    (ip.to_bits() ^ Ipv4Addr::from(range).to_bits()) >> (32 - bits) == 0
}

/// Returns whether an address is global unicast. An address that contains an IPv4 address must be reachable as that
/// one.
fn is_reachable_v6(ip: Ipv6Addr, private: bool) -> bool {
    let [a, b, .., g, h] = ip.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)).into();
    if ip.to_ipv4_mapped().is_some() {
        return is_reachable(v4(g, h), private);
    }
    if ip.is_loopback() || ip.is_unique_local() {
        return private && ip != Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
    }
    let carries = a == 0x2002 || (a == 0x2001 && b == 0) || (a == 0x64 && b == 0xff9b);
    (0x2000..0x4000).contains(&a) && !carries && !(a == 0x2001 && b == 0xdb8)
}
