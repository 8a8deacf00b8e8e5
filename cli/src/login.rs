//! `stoke login` and `stoke logout`: profiles in the credentials file.

use std::io::{IsTerminal, Read};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use stokehold_client::models::OwnLimits;

use crate::client::{Client, address, connect_to, decode};
use crate::credentials::{Credentials, DEFAULT};
use crate::failure::Failure;
use crate::{Global, output};

/// Maximum size of a token, bytes. Tokens are much shorter.
const TOKEN_BYTES_MAX: u64 = 4096;

/// Save the URL and a token of an API as a profile
///
/// Reads the token from standard input, from a file, or from the terminal without echo; checks it with the API; and
/// saves both in the credentials file, readable by this user only. Later commands and the SDKs use a profile with
/// --profile NAME or STOKE_PROFILE=NAME. Without a name, the default profile is saved, which `stoke dev` replaces.
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  stoke login --profile prod --url https://gpu.example.com
  pass show stoke | stoke login --profile prod --url https://gpu.example.com
  stoke login list"
)]
pub(crate) struct LoginArgs {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// File with the token [default: standard input, or ask on a terminal]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Verb {
    /// List the saved profiles
    #[command(after_help = "Examples:\n  stoke login list")]
    List,
}

/// Remove a profile and its token from this machine
///
/// The token stays valid; `stoke token revoke` ends it.
#[derive(Args)]
#[command(after_help = "Examples:\n  stoke logout --profile prod")]
pub(crate) struct LogoutArgs {}

pub(crate) async fn run(global: &Global, args: LoginArgs) -> Result<()> {
    match args.verb {
        Some(Verb::List) => list(global),
        None => log_in(global, args.token_file).await,
    }
}

async fn log_in(global: &Global, token_file: Option<PathBuf>) -> Result<()> {
    let name = global.profile.as_deref().unwrap_or(DEFAULT);
    check_name(name)?;
    // A new profile has no URL yet, so a missing one is no error here.
    let saved = Credentials::all()?.into_iter().find(|(known, _)| known == name).map(|(_, saved)| saved);
    if global.url.is_none() && saved.is_none() && name != DEFAULT {
        let hint = "Name its API, e.g. --url https://gpu.example.com.";
        return Err(Failure::usage(format!("profile {name:?} is new")).hint(hint).into());
    }
    let url = address(global, saved.as_ref());
    let token = match &global.token {
        // The option says more than a token of the environment.
        Some(token) if token_file.is_none() => token.clone(),
        _ => {
            let url = url.clone();
            tokio::task::spawn_blocking(move || read(token_file.as_deref(), &url)).await??
        }
    };
    let client = connect_to(url.clone(), token.clone())?;
    let tenant = tenant(&client).await?;
    let path = Credentials { url: url.clone(), token, data: None }.save(Some(name))?;
    if global.json {
        return output::json(&json!({"profile": name, "url": url, "tenant": tenant, "credentials": path}));
    }
    let tenant = tenant.map_or(String::new(), |tenant| format!(" as tenant {}", output::text(tenant.as_str())));
    output::line(format_args!("logged in to {url}{tenant}; profile {name} is saved in {}", path.display()))?;
    if name != DEFAULT {
        output::note(output::dim(format_args!("use it with --profile {name}, or with STOKE_PROFILE={name}")));
    }
    Ok(())
}

/// Asks the API whether the token is valid. Returns its tenant, as far as the token may read it.
async fn tenant(client: &Client) -> Result<Option<String>> {
    match client.get("/v1/limits").await {
        Ok(limits) => Ok(Some(decode::<OwnLimits>(&limits)?.tenant)),
        // A valid token may lack this right.
        Err(error) if error.downcast_ref::<stokehold_client::Problem>().is_some_and(|it| it.status() == 403) => {
            Ok(None)
        }
        Err(error) => Err(error.context("the profile was not saved")),
    }
}

fn check_name(name: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.is_empty() || name.len() > 63 || !name.bytes().all(is_plain) {
        let text = format!("{name:?} is not a profile name: use 1 to 63 letters, digits, -, _ and .");
        return Err(Failure::usage(text).into());
    }
    Ok(())
}

/// Reads the token: from the file, from standard input, or from the terminal without echo.
fn read(file: Option<&std::path::Path>, url: &str) -> Result<String> {
    let text = match file {
        Some(path) => {
            let what = || Failure::cannot_read(path.display());
            limited(std::fs::File::open(path).with_context(what)?).with_context(what)?
        }
        None if std::io::stdin().is_terminal() => {
            output::note(format_args!("token for {url} (create one with `stoke token create`):"));
            console::Term::stderr().read_secure_line().context("cannot read the token from the terminal")?
        }
        None => limited(std::io::stdin()).context("cannot read the token from standard input")?,
    };
    let token = text.trim();
    if token.is_empty() || token.contains(|c: char| c.is_whitespace() || c.is_control() || !c.is_ascii()) {
        return Err(Failure::usage("that is not a token: it is empty, or has spaces or other characters").into());
    }
    Ok(token.to_owned())
}

fn limited(from: impl Read) -> std::io::Result<String> {
    let mut text = String::new();
    from.take(TOKEN_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

fn list(global: &Global) -> Result<()> {
    let profiles = Credentials::all()?;
    let chosen = global.profile.as_deref().unwrap_or(DEFAULT);
    if global.json {
        let profiles: Vec<Value> = profiles
            .iter()
            .map(|(name, saved)| json!({"name": name, "url": saved.url, "chosen": name == chosen}))
            .collect();
        return output::json(&json!({"profiles": profiles}));
    }
    let mut table = output::table(["", "profile", "url"]);
    for (name, saved) in &profiles {
        let mark = if name == chosen { "*" } else { "" };
        table.add_row([mark, &output::text(name.as_str()), &output::text(saved.url.as_str())]);
    }
    output::print_table(&table, "no profiles; save one with `stoke login --url URL`, or run `stoke dev`")
}

pub(crate) fn logout(global: &Global, _args: &LogoutArgs) -> Result<()> {
    let name = global.profile.as_deref().unwrap_or(DEFAULT);
    if !Credentials::remove(Some(name))? {
        let hint = "List them with `stoke login list`.";
        return Err(Failure::usage(format!("there is no profile {name:?}")).hint(hint).into());
    }
    if global.json {
        return output::json(&json!({"removed": name}));
    }
    output::line(format_args!("removed profile {name}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use axum::http::{HeaderMap, StatusCode};
    use axum::response::IntoResponse;
    use axum::routing::get;
    use axum::{Json, Router};

    use super::*;
    use crate::stub;

    #[tokio::test]
    async fn a_token_is_checked_with_the_api() {
        let answer = |headers: HeaderMap| async move {
            match headers["authorization"].to_str().unwrap() {
                "Bearer sk_test" => Json(json!({"tenant": "acme"})).into_response(),
                _ => (StatusCode::UNAUTHORIZED, Json(json!({"status": 401, "code": "unauthorized"}))).into_response(),
            }
        };
        let client = stub::serve(Router::new().route("/v1/limits", get(answer))).await;
        assert_eq!(tenant(&client).await.unwrap().as_deref(), Some("acme"));
        let wrong = connect_to(client.url().to_owned(), "sk_wrong".to_owned()).unwrap();
        assert!(format!("{:#}", tenant(&wrong).await.unwrap_err()).starts_with("the profile was not saved"));
    }

    #[test]
    fn a_token_file_has_one_token() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "sk_abc\n").unwrap();
        assert_eq!(read(Some(&path), "http://a").unwrap(), "sk_abc");
        for wrong in ["", "\n", "sk a", "sk_\u{e9}"] {
            std::fs::write(&path, wrong).unwrap();
            assert!(read(Some(&path), "http://a").is_err(), "{wrong:?}");
        }
        let missing = read(Some(&folder.path().join("none")), "http://a").unwrap_err();
        assert_eq!(crate::exit::Report::of(&missing).exit_code, crate::exit::USAGE, "{missing:#}");
    }

    #[test]
    fn names_of_profiles_are_plain_words() {
        assert!(check_name("prod").is_ok() && check_name("eu-1.b_c").is_ok());
        assert!(check_name("").is_err() && check_name("../x").is_err() && check_name("a b").is_err());
    }

    #[test]
    fn every_form_parses() {
        for line in
            ["login", "login --profile prod --url https://a --token-file t", "login list", "logout --profile prod"]
        {
            assert!(stub::parse(line).is_ok(), "{line}");
        }
        assert!(stub::parse("login list --token-file t").is_err());
    }
}
