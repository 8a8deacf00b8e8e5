//! Allowed destinations of webhooks: pure rules for URLs and addresses. A URL is checked when it is set and before
//! every attempt. Each address that its name resolves to is checked before the connection is opened. A URL that passes
//! one check by mistake is stopped by the next.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

use crate::config::Webhooks;

/// Maximum length of a URL, characters. Servers commonly refuse more, and each delivery stores a copy.
pub(crate) const URL_CHARS_MAX: usize = 2_048;

/// Ports at which a receiver may listen unless the configuration names others. No other protocol than HTTP uses them.
const HTTPS_PORTS: [u16; 2] = [443, 8_443];
const HTTP_PORTS: [u16; 2] = [80, 8_080];

/// Address of cloud metadata services: refused regardless of the configuration.
const METADATA_V4: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// Reasons for which a URL or an address is refused. The text is shown to the tenant, so it never contains the
/// addresses of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("must be at most {URL_CHARS_MAX} characters")]
    Long,
    #[error("must be a URL such as https://example.com/hook, without spaces")]
    NoUrl,
    #[error("must start with https://")]
    Scheme,
    #[error("must not contain a user name or a password")]
    Userinfo,
    #[error("must use a port that is allowed for webhooks")]
    Port,
    #[error("must resolve to a public address")]
    Address,
}

/// Checks whether webhooks may be sent to this URL, as far as this can be decided without resolving its name.
pub(crate) fn check_url(config: &Webhooks, text: &str) -> Result<Url, Refused> {
    if text.len() > URL_CHARS_MAX {
        return Err(Refused::Long);
    }
    // The URL standard drops tabs and line ends and trims blanks, but the checked text must be the stored text.
    if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(Refused::NoUrl);
    }
    let url = Url::parse(text).map_err(|_| Refused::NoUrl)?;
    // The normalised URL is longer: it encodes some characters with three each.
    if url.as_str().len() > URL_CHARS_MAX {
        return Err(Refused::Long);
    }
    let usual: &[&[u16]] = match url.scheme() {
        "https" if config.allow_http => &[&HTTPS_PORTS, &HTTP_PORTS],
        "http" if config.allow_http => &[&HTTP_PORTS, &HTTPS_PORTS],
        "https" => &[&HTTPS_PORTS],
        _ => return Err(Refused::Scheme),
    };
    // The URL standard also accepts `https:host` and `https:\\host`; other parsers of the same text do not.
    if !text[url.scheme().len()..].starts_with("://") {
        return Err(Refused::NoUrl);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Refused::Userinfo);
    }
    let port = url.port_or_known_default().ok_or(Refused::Port)?;
    let known = if config.ports.is_empty() {
        usual.iter().any(|ports| ports.contains(&port))
    } else {
        config.ports.contains(&port)
    };
    if !known {
        return Err(Refused::Port);
    }
    // Literal addresses arrive here in one form, however they were written: the parser reads decimal, octal, hex and
    // short forms.
    match url.host().ok_or(Refused::NoUrl)? {
        Host::Ipv4(ip) => check(config, ip.into())?,
        Host::Ipv6(ip) => check(config, ip.into())?,
        Host::Domain(name) => {
            let name = name.strip_suffix('.').unwrap_or(name);
            // The parser reads an address before one trailing dot only: it would treat `127.0.0.1..` as a name, which a
            // resolver may read differently.
            if name.split('.').any(str::is_empty) {
                return Err(Refused::NoUrl);
            }
            let local = name == "localhost" || name.ends_with(".localhost");
            if local && !config.allow_private {
                return Err(Refused::Address);
            }
        }
    }
    Ok(url)
}

/// Checks whether webhooks may be sent to this address.
pub(crate) fn check(config: &Webhooks, ip: IpAddr) -> Result<(), Refused> {
    let allowed = match ip {
        IpAddr::V4(ip) => allowed_v4(ip, config.allow_private),
        IpAddr::V6(ip) => allowed_v6(ip, config.allow_private),
    };
    if allowed { Ok(()) } else { Err(Refused::Address) }
}

/// Follows the IANA registry of special-purpose addresses: addresses that are not globally reachable are refused.
fn allowed_v4(ip: Ipv4Addr, private: bool) -> bool {
    if ip == METADATA_V4 || ip.is_link_local() {
        return false;
    }
    if ip.is_loopback() || ip.is_private() {
        return private;
    }
    let [a, b, c, _] = ip.octets();
    let refused = match (a, b, c) {
        (0, _, _) => true,                                                              // "this network"
        (100, 64..=127, _) => true,                                                     // carrier NAT
        (192, 0, 0 | 2) => true, // protocol assignments, documentation
        (192, 31 | 52 | 175, _) => matches!((b, c), (31, 196) | (52, 193) | (175, 48)), // AS112, AMT
        (192, 88, 99) => true,   // 6to4 relays
        (198, 18 | 19, _) => true, // benchmarks
        (198, 51, 100) | (203, 0, 113) => true, // documentation
        (168, 63, 129) => true,  // Azure's platform address, which answers inside every virtual network
        (224..=255, _, _) => true, // multicast, reserved, broadcast
        _ => false,
    };
    !refused
}

/// Only 2000::/3 is routed globally, and parts of it contain an IPv4 address or are reserved.
fn allowed_v6(ip: Ipv6Addr, private: bool) -> bool {
    if ip == METADATA_V6 {
        return false;
    }
    if ip.is_loopback() {
        return private;
    }
    let parts = ip.segments();
    // An IPv4-mapped address is checked as the IPv4 address.
    if let Some(inner) = ip.to_ipv4_mapped() {
        return allowed_v4(inner, private);
    }
    if parts[0] & 0xfe00 == 0xfc00 {
        return private; // unique local
    }
    if parts[0] & 0xe000 != 0x2000 {
        return false; // ::, compatible, NAT64 64:ff9b::/96 and 64:ff9b:1::/48, discard 100::, fe80::, fec0::, ff00::, 5f00::
    }
    let refused = match (parts[0], parts[1]) {
        (0x2001, 0x0000..=0x01ff) => true, // protocol assignments: Teredo, benchmarks, ORCHID, AMT and more
        (0x2001, 0x0db8) => true,          // documentation
        (0x2002, _) => true,               // 6to4
        (0x3fff, 0x0000..=0x0fff) => true, // documentation
        _ => false,
    };
    !refused
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strict() -> Webhooks {
        Webhooks::default()
    }

    fn dev() -> Webhooks {
        Webhooks { allow_private: true, allow_http: true, ..Webhooks::default() }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    const NEVER: &[&str] = &[
        "0.0.0.0",
        "0.1.2.3",
        "100.64.0.1",
        "100.100.100.200", // another cloud's metadata
        "100.127.255.255",
        "168.63.129.16",
        "169.254.0.1",
        "169.254.169.254",
        "169.254.170.2",
        "192.0.0.1",
        "192.0.0.192",
        "192.0.2.1",
        "192.31.196.1",
        "192.52.193.1",
        "192.88.99.1",
        "192.175.48.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.250",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::127.0.0.1",
        "::8.8.8.8",
        "::ffff:169.254.169.254",
        "::ffff:0.0.0.0",
        "::ffff:0:127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::808:808",
        "64:ff9b:1::a9fe:a9fe",
        "100::1",
        "2001::1",
        "2001:2::1",
        "2001:10::1",
        "2001:20::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:a9fe:a9fe::1",
        "3fff::1",
        "5f00::1",
        "fd00:ec2::254",
        "fe80::1",
        "febf::1",
        "fec0::1",
        "ff02::1",
        "ff0e::1",
    ];

    const PRIVATE: &[&str] = &[
        "10.0.0.1",
        "127.0.0.1",
        "127.255.255.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "fc00::1",
        "fd12:3456::1",
    ];

    const PUBLIC: &[&str] = &[
        "1.1.1.1",
        "8.8.8.8",
        "100.63.255.255",
        "100.128.0.1",
        "172.15.0.1",
        "172.32.0.1",
        "192.0.1.1",
        "192.31.195.1",
        "198.17.0.1",
        "198.20.0.1",
        "223.255.255.255",
        "::ffff:8.8.8.8",
        "2001:4860:4860::8888",
        "2606:4700::1111",
        "2a00:1450::1",
    ];

    #[test]
    fn only_public_addresses_are_allowed_unless_the_operator_allows_private_ones() {
        for text in NEVER {
            assert!(check(&strict(), ip(text)).is_err(), "{text}");
            assert!(check(&dev(), ip(text)).is_err(), "{text} with allow_private");
        }
        for text in PRIVATE {
            assert!(check(&strict(), ip(text)).is_err(), "{text}");
            assert!(check(&dev(), ip(text)).is_ok(), "{text} with allow_private");
        }
        for text in PUBLIC {
            assert!(check(&strict(), ip(text)).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_literal_address_is_seen_through_however_it_is_written() {
        let hosts = [
            "127.0.0.1",
            "127.1",
            "127.0.1",
            "2130706433",
            "0x7f000001",
            "0x7f.0.0.1",
            "0177.0.0.1",
            "017700000001",
            "127.0.0.1.",
            "0",
            "127%2e0%2e0%2e1",
            "%31%32%37.0.0.1",
            "①②⑦.⓪.⓪.①",
            "127。0。0。1",
            "169.254.169.254",
            "2852039166",
            "0xa9fea9fe",
            "0xA9.0xFE.0xA9.0xFE",
            "0251.0376.0251.0376",
            "169.254.43518",
            "169.16689662",
            "[::1]",
            "[0:0:0:0:0:0:0:1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[::ffff:a9fe:a9fe]",
            "[::127.0.0.1]",
            "[64:ff9b::169.254.169.254]",
            "[2002:7f00:1::]",
            "[fd00:ec2::254]",
            "[fe80::1]",
            "localhost",
            "LOCALHOST",
            "localhost.",
            "a.localhost",
            "ⓛocalhost",
        ];
        for host in hosts {
            assert_eq!(check_url(&strict(), &format!("https://{host}/")), Err(Refused::Address), "{host}");
        }
        // Text that is not an address in any reading is not a URL either.
        for host in [
            "256.0.0.1",
            "0x1ffffffff",
            "127.0.0.0x100",
            "[fe80::1%25eth0]",
            "[::1",
            "a b",
            "1.2.3.4.5",
            "127.0.0.1..",
            "a..b",
            ".a",
            ".",
        ] {
            assert_eq!(check_url(&strict(), &format!("https://{host}/")), Err(Refused::NoUrl), "{host}");
        }
    }

    #[test]
    fn a_url_is_plain_https_to_a_known_port() {
        for good in [
            "https://example.com",
            "https://example.com:443/hook?a=b#part",
            "https://example.com:8443/hook",
            "https://8.8.8.8/",
            "https://[2606:4700::1111]/",
            "https://bücher.example/",
        ] {
            assert!(check_url(&strict(), good).is_ok(), "{good}");
        }
        for (wrong, why) in [
            ("", Refused::NoUrl),
            ("example.com/hook", Refused::NoUrl),
            ("https://", Refused::NoUrl),
            ("https:///", Refused::NoUrl),
            ("https:example.com", Refused::NoUrl),
            ("https:\\\\example.com", Refused::NoUrl),
            (" https://example.com", Refused::NoUrl),
            ("https://exa\tmple.com", Refused::NoUrl),
            ("https://example.com/a\r\nHost: b", Refused::NoUrl),
            ("https://example.com/\u{0}", Refused::NoUrl),
            ("http://example.com", Refused::Scheme),
            ("ftp://example.com", Refused::Scheme),
            ("file:///etc/passwd", Refused::Scheme),
            ("gopher://example.com/_", Refused::Scheme),
            ("javascript:alert(1)", Refused::Scheme),
            ("https://user@example.com", Refused::Userinfo),
            ("https://:word@example.com", Refused::Userinfo),
            ("https://8.8.8.8@127.0.0.1/", Refused::Userinfo),
            ("https://example.com:22", Refused::Port),
            ("https://example.com:80", Refused::Port),
            ("https://example.com:6379", Refused::Port),
            ("https://example.com:0", Refused::Port),
            ("https://example.com:65536", Refused::NoUrl),
        ] {
            assert_eq!(check_url(&strict(), wrong), Err(why), "{wrong}");
        }
        let long = format!("https://example.com/{}", "a".repeat(URL_CHARS_MAX));
        assert_eq!(check_url(&strict(), &long), Err(Refused::Long));
        let longer_when_sent = format!("https://example.com/{}", "\u{200b}".repeat(URL_CHARS_MAX / 4));
        assert!(longer_when_sent.len() < URL_CHARS_MAX);
        assert_eq!(check_url(&strict(), &longer_when_sent), Err(Refused::Long));
        // Browsers and this parser treat a backslash as a slash: the host is the part before it.
        assert_eq!(check_url(&strict(), "https://127.0.0.1\\@example.com/"), Err(Refused::Address));
    }

    #[test]
    fn the_operator_may_open_it_but_not_to_everything() {
        let named = Webhooks { ports: vec![9_000], ..strict() };
        assert!(check_url(&named, "https://example.com:9000/").is_ok());
        assert_eq!(check_url(&named, "https://example.com/"), Err(Refused::Port));
        for good in ["http://localhost:8080/", "http://127.0.0.1/", "http://10.0.0.1:8443/", "https://a.localhost/"] {
            assert!(check_url(&dev(), good).is_ok(), "{good}");
        }
        for wrong in ["http://169.254.169.254/", "http://[fe80::1]/", "http://0.0.0.0/", "http://[fd00:ec2::254]/"] {
            assert_eq!(check_url(&dev(), wrong), Err(Refused::Address), "{wrong}");
        }
        assert_eq!(check_url(&dev(), "http://localhost:6379/"), Err(Refused::Port));
    }
}
