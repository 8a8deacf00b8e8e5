#![allow(clippy::unwrap_used, reason = "tests")]
use super::*;

fn config(set: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let var = |name: &str| set.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned());
    RawConfig::from_env(var)?.try_into()
}

#[test]
fn a_file_may_hold_the_token() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    std::fs::write(file.path(), "jt_filed\n").unwrap();
    assert_eq!(config(&[("STOKE_JOIN_TOKEN_FILE", path)]).unwrap().join_token.expose(), "jt_filed");
    let both = [("STOKE_JOIN_TOKEN_FILE", path), ("STOKE_JOIN_TOKEN", "jt_set")];
    assert_eq!(config(&both).unwrap().join_token.expose(), "jt_set");
    std::fs::write(file.path(), "\n").unwrap();
    assert!(config(&[("STOKE_JOIN_TOKEN_FILE", path)]).unwrap_err().to_string().contains("is empty"));
    let absent = config(&[("STOKE_JOIN_TOKEN_FILE", "/nowhere/token")]).unwrap_err().to_string();
    assert!(absent.contains("/nowhere/token"), "{absent}");
}

#[test]
fn the_environment_overrides_the_defaults() {
    let config =
        config(&[("STOKE_JOIN_TOKEN", "jt_x"), ("STOKE_SLOTS", "7"), ("STOKE_FAKE_GPUS", "24576, 81920")]).unwrap();
    assert_eq!((config.slots, config.fake_gpus), (7, Some(vec![24576, 81920])));
    assert!(config.data_dir.is_absolute());
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let refused = |set: &[(&str, &str)]| config(set).unwrap_err().to_string();
    assert!(refused(&[]).starts_with("join_token"));
    let perhaps = refused(&[("STOKE_JOIN_TOKEN", "x"), ("STOKE_ALLOW_SOURCE_BUILDS", "perhaps")]);
    assert!(perhaps.starts_with("STOKE_ALLOW_SOURCE_BUILDS"));
    let negative = refused(&[("STOKE_JOIN_TOKEN", "x"), ("STOKE_PRICE_USD_PER_HOUR", "-1")]);
    assert!(negative.starts_with("price_usd_per_hour"));
    assert!(refused(&[("STOKE_SLOTS", "many")]).starts_with("STOKE_SLOTS"));
    assert!(refused(&[("STOKE_JOIN_TOKEN", "x"), ("STOKE_PACKAGES_BYTES", "1")]).starts_with("packages_bytes"));
    assert!(refused(&[("STOKE_JOIN_TOKEN", "x"), ("STOKE_FAKE_GPUS", "big")]).starts_with("fake_gpus"));
    assert!(refused(&[("STOKE_JOIN_TOKEN", "x"), ("STOKE_SANDBOX", "L9")]).starts_with("sandbox"));
    let index = [("STOKE_JOIN_TOKEN", "x"), ("STOKE_PACKAGE_INDEXES", "https://user:secret@here/")];
    assert!(refused(&index).starts_with("package_indexes") && !refused(&index).contains("secret"));
    assert!(refused(&[("STOKE_JOIN_TOKEN", "x"), ("STOKE_METRICS_LISTEN", "7072")]).starts_with("metrics_listen"));
    assert!(refused(&[("STOKE_JOIN_TOKEN", "x"), ("STOKE_GATEWAY_URL", "ftp://x")]).starts_with("gateway_url"));
}

#[test]
fn every_variable_is_listed_is_in_the_file_and_is_read() {
    let asked = std::cell::RefCell::new(Vec::new());
    let _ = RawConfig::from_env(|name| {
        asked.borrow_mut().push(name.to_owned());
        None
    });
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    assert_eq!(sorted(asked.into_inner()), sorted(VARIABLES.map(str::to_owned).to_vec()));
    for name in VARIABLES {
        assert!(include_str!("../config.default.toml").contains(&format!("[{name}]")), "{name}");
    }
}

#[test]
fn only_a_rented_machine_destroys_itself_and_none_that_must_not() {
    let rental = |set: &[(&str, &str)]| {
        config(&[&[("STOKE_JOIN_TOKEN", "x"), ("CONTAINER_ID", "7")], set].concat()).unwrap().rental
    };
    assert!(rental(&[]).is_none());
    assert!(rental(&[("CONTAINER_API_KEY", "k"), ("STOKE_DEAD_MAN_MS", "0")]).is_none());
    assert_eq!(rental(&[("CONTAINER_API_KEY", "k")]).unwrap().url, stokehold_vast::URL);
    let rental = rental(&[("CONTAINER_API_KEY", "k"), ("STOKE_VAST_URL", "http://here/")]).unwrap();
    assert_eq!((rental.url.as_str(), rental.limit.as_secs()), ("http://here", 1200));
}

#[test]
fn secrets_do_not_print() {
    let set = [("STOKE_JOIN_TOKEN", "jt_verysecret"), ("CONTAINER_ID", "7"), ("CONTAINER_API_KEY", "verysecret")];
    let config = config(&set).unwrap();
    assert!(config.rental.is_some() && !format!("{config:?}").contains("verysecret"));
}
