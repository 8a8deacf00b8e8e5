//! A stand-in for the public certificate authority: Caddy as an ACME server, in a separate network, under the real
//! one's name.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::machine::run;

const NETWORK: &str = "stoke-authority";
const LINK: &str = "stoke-ca0";
/// The two ends of the link: the machine's, and the authority's.
const MACHINE: &str = "10.211.7.1";
const AUTHORITY: &str = "10.211.7.2";

const LIMIT: Duration = Duration::from_secs(60);

/// The Caddyfile of the authority, with the public name.
const CADDYFILE: &str = "{
	admin off
	skip_install_trust
}
acme-v02.api.letsencrypt.org {
	tls internal
	rewrite /directory /acme/local/directory
	acme_server
}
";

/// A running authority, and its network. Both end when it is dropped.
pub(crate) struct Authority {
    caddy: Child,
    /// The root certificate that clients must trust, PEM.
    pub(crate) certificate: String,
}

impl Authority {
    /// The hosts file for the machine and the authority.
    pub(crate) fn hosts(domain: &str) -> String {
        format!("127.0.0.1 localhost machine\n{MACHINE} {domain}\n{AUTHORITY} acme-v02.api.letsencrypt.org\n")
    }

    pub(crate) fn start(caddy: &Path, folder: &Path, domain: &str) -> Self {
        let _ = Command::new("ip").args(["netns", "delete", NETWORK]).stderr(Stdio::null()).status();
        run("ip", &["netns", "add", NETWORK]);
        run("ip", &["link", "add", LINK, "type", "veth", "peer", "name", "ca", "netns", NETWORK]);
        run("ip", &["address", "add", &format!("{MACHINE}/30"), "dev", LINK]);
        run("ip", &["link", "set", LINK, "up"]);
        run("ip", &["-n", NETWORK, "address", "add", &format!("{AUTHORITY}/30"), "dev", "ca"]);
        run("ip", &["-n", NETWORK, "link", "set", "ca", "up"]);
        run("ip", &["-n", NETWORK, "link", "set", "lo", "up"]);
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("Caddyfile"), CADDYFILE).unwrap();
        fs::write(folder.join("hosts"), Self::hosts(domain)).unwrap();
        let log = fs::File::create(folder.join("log")).unwrap();
        let script =
            "mount --bind \"$1/hosts\" /etc/hosts; exec \"$2\" run --config \"$1/Caddyfile\" --adapter caddyfile";
        let mut caddy = Command::new("ip")
            .args(["netns", "exec", NETWORK, "unshare", "--mount", "sh", "-euc", script, "sh"])
            .args([folder, caddy])
            .env("HOME", folder)
            .env("XDG_DATA_HOME", folder)
            .env("XDG_CONFIG_HOME", folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let (root, deadline) = (folder.join("caddy/pki/authorities/local/root.crt"), Instant::now() + LIMIT);
        let certificate = loop {
            match fs::read_to_string(&root) {
                Ok(text) if text.contains("END CERTIFICATE") => break text,
                _ => assert!(
                    caddy.try_wait().unwrap().is_none() && Instant::now() < deadline,
                    "there is no authority: {}",
                    fs::read_to_string(folder.join("log")).unwrap()
                ),
            }
            // Files cannot be awaited from here.
            std::thread::sleep(Duration::from_millis(20));
        };
        Self { caddy, certificate }
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = self.caddy.kill();
        let _ = self.caddy.wait();
        let _ = Command::new("ip").args(["netns", "delete", NETWORK]).status();
    }
}
