use super::*;

fn load(file: &str, env: &[(&str, &str)]) -> Result<Config, Error> {
    let key = "0f".repeat(32);
    Config::load(Some(file), |name| {
        let given = env.iter().find(|(variable, _)| *variable == name).map(|(_, text)| (*text).to_owned());
        given.or_else(|| (name == "STOKE_TOKEN_KEY").then(|| key.clone()))
    })
}

#[test]
fn the_environment_beats_the_file_beats_the_defaults() {
    let config = load("lease_ms = 60000\n[redis]\nprefix = 'a'", &[("STOKE_REDIS_PREFIX", "b")]).unwrap();
    assert_eq!((config.redis.lease_ms, config.redis.prefix.as_str(), config.extend_every_ms), (60_000, "b", 3_000));
    assert_eq!(config.limits.connections, Limits::default().connections);
    assert!(load("", &[("STOKE_EPHEMERAL", "true")]).unwrap().ephemeral);
}

#[test]
fn a_value_of_the_wrong_kind_is_refused_without_the_names_that_types_have_in_rust() {
    for (file, message, place) in [
        ("lease_ms = 'soon'", "must be a whole number of at least 0, not \"soon\"", "lease_ms"),
        ("[redis]\nshards = 300", "must be a whole number from 0 to 255, not 300", "redis.shards"),
        ("webhooks = 1", "must be an object, not 1", "webhooks"),
    ] {
        let said = load(file, &[]).unwrap_err().to_string();
        assert!(said.contains(message) && said.contains(place), "{said}");
    }
}

#[test]
fn every_setting_has_its_variable_in_the_file_and_in_the_list() {
    for (variable, path) in ENV {
        assert!(DEFAULT.contains(&format!("[{variable}]")), "{variable} is not in config.default.toml");
        let mut settings: Table = DEFAULT.parse().unwrap();
        let mut parts = path.rsplit('.');
        let key = parts.next().unwrap();
        if let Some(section) = parts.next() {
            settings = settings[section].as_table().unwrap().clone();
        }
        assert!(settings.contains_key(key), "{path}");
    }
}

#[test]
fn webhooks_go_to_public_addresses_over_https_unless_told_otherwise() {
    let Webhooks { allow_private, allow_http, ports, waits } = load("", &[]).unwrap().webhooks;
    assert_eq!((allow_private, allow_http, ports), (false, false, Vec::new()));
    assert_eq!(waits, Webhooks::default().waits);
    let env = [("STOKE_WEBHOOK_ALLOW_HTTP", "true"), ("STOKE_WEBHOOK_PORTS", "443, 9000")];
    let Webhooks { allow_private, allow_http, ports, .. } = load("", &env).unwrap().webhooks;
    assert_eq!((allow_private, allow_http, ports), (false, true, vec![443, 9_000]));
    for wrong in ["http", "0", "65536", "443;80"] {
        assert!(load("", &[("STOKE_WEBHOOK_PORTS", wrong)]).unwrap_err().to_string().contains("webhooks.ports"));
    }
}

#[test]
fn the_pauses_between_the_tries_of_a_webhook_can_be_others() {
    let waits = |text: &str| load("", &[("STOKE_WEBHOOK_WAITS_S", text)]).map(|config| config.webhooks.waits);
    assert_eq!(waits("0.2, 60").unwrap(), [Duration::from_millis(200), Duration::from_secs(60)]);
    for wrong in ["", "soon", "5;60", "0", "0.05", "-1", "nan", "inf", "86401", "1,", "1,1,1,1,1,1,1,1,1,1"] {
        let said = waits(wrong).unwrap_err().to_string();
        assert!(said.contains("webhooks.waits_s: must be a comma-separated list of 1 to 9 pauses"), "{wrong}: {said}");
    }
}

#[test]
fn no_proxy_is_believed_unless_it_is_named() {
    assert!(load("", &[]).unwrap().trusted_proxies.is_empty());
    let proxies = load("", &[("STOKE_TRUSTED_PROXIES", "10.0.0.0/8, 127.0.0.1,::1")]).unwrap().trusted_proxies;
    assert_eq!(proxies.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.0.0/8", "127.0.0.1/32", "::1/128"]);
    for wrong in ["all", "10.0.0.0/33", "10.0.0.1;10.0.0.2"] {
        assert!(load("", &[("STOKE_TRUSTED_PROXIES", wrong)]).unwrap_err().to_string().contains("trusted_proxies"));
    }
}

#[test]
fn durability_is_strict_unless_told_otherwise() {
    let read =
        |env: &[(&str, &str)]| load("", env).map(|config| (config.redis.durability, config.redis.replicas_to_wait));
    assert_eq!(read(&[]).unwrap(), (Durability::Strict, None));
    let env = [("STOKE_DURABILITY", "standard"), ("STOKE_REPLICAS_TO_WAIT", "2")];
    assert_eq!(read(&env).unwrap(), (Durability::Standard, Some(2)));
    assert_eq!(load("replicas_to_wait = 1", &[]).unwrap().redis.replicas_to_wait, Some(1));
    assert!(read(&[("STOKE_REPLICAS_TO_WAIT", "some")]).unwrap_err().to_string().contains("replicas_to_wait"));
    assert!(read(&[("STOKE_DURABILITY", "ephemeral")]).unwrap_err().to_string().contains("strict"));
}

#[test]
fn mistakes_are_named() {
    let message = |file: &str, env: &[(&str, &str)]| load(file, env).unwrap_err().to_string();
    assert!(message("lease = 1", &[]).contains("lease"));
    assert!(message("", &[("STOKE_LEASE_MS", "soon")]).contains("STOKE_LEASE_MS must be a whole number"));
    assert!(message("extend_every_ms = 20000", &[]).contains("extend_every_ms"));
    assert!(message("", &[("STOKE_TOKEN_KEY", "abc")]).contains("openssl rand -hex 32"));
}

#[test]
fn a_printed_configuration_holds_no_secret() {
    let secrets = [("STOKE_S3_SECRET_ACCESS_KEY", "canary-s3"), ("STOKE_REDIS_URL", "redis://:canary-redis@localhost")];
    let printed = format!("{:?}", load("", &secrets).unwrap());
    assert!(!printed.contains("canary") && !printed.contains("0f0f"), "{printed}");
}
