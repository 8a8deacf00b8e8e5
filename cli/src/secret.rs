//! `stoke secret`: values that only handlers can read.

use std::io::{IsTerminal as _, Read as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use comfy_table::Cell;
use reqwest::{Method, StatusCode};
use serde_json::json;
use stokehold_client::models::{Rewrapped, Secret, SecretList};

use crate::client::{Call, Client, decode, segment};
use crate::failure::{Failure, require};
use crate::{Global, output};

const SECRETS: &str = "/v1/secrets";

/// Maximum size of a secret, bytes.
const VALUE_BYTES_MAX: u64 = 32 << 10;

/// Set, list and delete secrets of endpoints
///
/// An endpoint lists its secrets in stoke.toml, e.g. secrets = ["HF_TOKEN"], and gets them as environment variables.
/// They are encrypted before they are stored, and cannot be read back.
#[derive(Args)]
#[command(after_help = "Examples:
  stoke secret set HF_TOKEN
  stoke secret list")]
pub(crate) struct SecretArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Set(SetArgs),
    /// List secrets by name, with the endpoints that use them
    #[command(after_help = "Examples:\n  stoke secret list")]
    List,
    /// Delete a secret (endpoints that use it can no longer be loaded)
    #[command(after_help = "Examples:\n  stoke secret delete HF_TOKEN")]
    Delete {
        /// Secret name
        name: String,
    },
    /// Re-encrypt all secrets of all tenants with the API's current key (operator only)
    #[command(after_help = "Examples:\n  stoke secret rewrap")]
    Rewrap,
}

/// Set a secret; prompts for its value, or reads it from standard input
#[derive(Args)]
#[command(after_help = "Examples:
  stoke secret set HF_TOKEN
  pass show huggingface | stoke secret set HF_TOKEN
  stoke secret set SERVICE_ACCOUNT --from-file account.json")]
struct SetArgs {
    /// Secret name, which is also the name of the environment variable
    name: String,
    /// Read the value from this file
    #[arg(long, value_name = "FILE")]
    from_file: Option<PathBuf>,
}

pub(crate) async fn run(global: &Global, args: SecretArgs) -> Result<()> {
    let client = Client::connect(global)?;
    match args.verb {
        Verb::Set(args) => set(global, &client, &args).await,
        Verb::List => list(global, &client).await,
        Verb::Delete { name } => {
            client.once(Method::DELETE, &format!("{SECRETS}/{}", segment(&name)), None).await?;
            if global.json {
                output::json(&json!({"deleted": name}))
            } else {
                output::line(format_args!("deleted {name}"))
            }
        }
        Verb::Rewrap => rewrap(global, &client).await,
    }
}

async fn set(global: &Global, client: &Client, args: &SetArgs) -> Result<()> {
    let value = value(args)?;
    let (path, body) = (format!("{SECRETS}/{}", segment(&args.name)), json!({"value": value}));
    let call = Call { method: Method::PUT, path: &path, body: Some(&body), headers: &[], hold: Duration::ZERO };
    let (status, secret) = client.call(&call).await?;
    if global.json {
        return output::json(&secret);
    }
    let what = if status == StatusCode::CREATED { "set" } else { "replaced" };
    output::line(format_args!("{what} {}", args.name))?;
    let users = decode::<Secret>(&secret)?.used_by.join(", ");
    if !users.is_empty() && status != StatusCode::CREATED {
        output::note(format_args!("loaded models of {users} keep the old value until they are loaded again"));
    }
    Ok(())
}

/// Reads the value. It is never an argument, because other users can see arguments and the shell keeps them in its
/// history.
fn value(args: &SetArgs) -> Result<String> {
    let value = match &args.from_file {
        Some(path) => {
            let file = std::fs::File::open(path).with_context(|| Failure::cannot_read(path.display()))?;
            read(file).with_context(|| Failure::cannot_read(path.display()))?
        }
        None if std::io::stdin().is_terminal() => {
            let terminal = console::Term::stderr();
            terminal.write_str(&format!("{} (hidden): ", args.name))?;
            terminal.read_secure_line().context("cannot read the value from the terminal")?
        }
        // The final line end is not part of the value.
        None => read(std::io::stdin())?.trim_end_matches(['\r', '\n']).to_owned(),
    };
    require!(!value.is_empty(), "the value is empty; to delete the secret, use `stoke secret delete {}`", args.name);
    Ok(value)
}

fn read(from: impl std::io::Read) -> Result<String> {
    let mut text = String::new();
    from.take(VALUE_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .context(Failure::usage("the value is not UTF-8 text; encode it, e.g. with base64"))?;
    require!(text.len() as u64 <= VALUE_BYTES_MAX, "the value is larger than {VALUE_BYTES_MAX} bytes");
    Ok(text)
}

async fn list(global: &Global, client: &Client) -> Result<()> {
    let found = client.get(SECRETS).await?;
    if global.json {
        return output::json(&found);
    }
    let mut table = output::table(["secret", "set", "key", "used by"]).wrapping(&["used by"]);
    for secret in decode::<SecretList>(&found)?.secrets {
        table.add_row([
            Cell::new(output::text(secret.name.as_str())),
            Cell::new(output::ago(secret.updated_at.as_str())),
            Cell::new(output::text(secret.key_id.as_str())),
            Cell::new(secret.used_by.join(", ")),
        ]);
    }
    output::print_table(&table, "no secrets; set one with `stoke secret set NAME`")
}

async fn rewrap(global: &Global, client: &Client) -> Result<()> {
    let (_, done) = client.post(&format!("{SECRETS}/rewrap"), None).await?;
    if global.json {
        return output::json(&done);
    }
    let Rewrapped { rewrapped, key_id, unreadable } = decode(&done)?;
    output::line(format_args!("{rewrapped} secrets re-encrypted with key {}", output::text(key_id.as_str())))?;
    for name in &unreadable {
        output::note(format_args!(
            "{} cannot be decrypted with any key of the API and was not changed",
            output::text(name.as_str())
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stub::parse;

    #[test]
    fn every_verb_parses_and_no_value_is_taken_from_the_command_line() {
        for line in ["set A", "set A --from-file a.json", "list", "delete A", "rewrap"] {
            assert!(parse(&format!("secret {line}")).is_ok(), "{line}");
        }
        assert!(parse("secret set A value").is_err());
    }

    #[test]
    fn a_value_is_text_of_a_bounded_size() {
        assert_eq!(read(&b"one\ntwo"[..]).unwrap(), "one\ntwo");
        assert!(read(&[0xff, 0xfe][..]).unwrap_err().to_string().contains("base64"));
        assert!(read(&vec![b'x'; 40_000][..]).unwrap_err().to_string().contains("larger than 32768 bytes"));
    }
}
