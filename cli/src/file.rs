//! `stoke file`: uploaded input files.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::json;
use stokehold_client::models::File;

use crate::client::{Client, decode, segment};
use crate::deletion::{self, DeletionArgs};
use crate::{Global, output, upload};

/// Upload, show and delete input files
///
/// `stoke submit --file` uploads files by itself. Upload a file here to use it in several jobs.
#[derive(Args)]
#[command(after_help = "Examples:
  stoke file upload talk.mp3
  stoke file get file_0123456789abcdef")]
pub(crate) struct FileArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Upload(UploadArgs),
    Get(GetArgs),
    Delete(DeleteArgs),
}

/// Upload a file and print its id
///
/// Pass the id in an input as {"$file": "ID"}.
#[derive(Args)]
#[command(after_help = "Examples:
  stoke file upload talk.mp3
  stoke submit transcribe --input '{\"audio\": {\"$file\": \"file_0123456789abcdef\"}}'")]
struct UploadArgs {
    /// File to upload
    path: PathBuf,
}

/// Show a file: its name, its size and an address to download it from
#[derive(Args)]
#[command(after_help = "Examples:\n  stoke file get file_0123456789abcdef")]
struct GetArgs {
    /// File id
    id: String,
}

/// Delete a file
///
/// Without --force, a file that open jobs or schedules use is not deleted.
#[derive(Args)]
#[command(after_help = "Examples:
  stoke file delete file_0123456789abcdef
  stoke file delete file_0123456789abcdef --dry-run")]
struct DeleteArgs {
    /// File id
    id: String,
    #[command(flatten)]
    deletion: DeletionArgs,
}

pub(crate) async fn run(global: &Global, args: FileArgs) -> Result<()> {
    let client = Client::connect(global)?;
    match args.verb {
        Verb::Upload(args) => {
            let id = upload::input_file(&client, &args.path).await?;
            if global.json { output::json(&json!({"id": id})) } else { output::line(&id) }
        }
        Verb::Get(args) => {
            let found = client.get(&format!("/v1/files/{}", segment(&args.id))).await?;
            if global.json {
                return output::json(&found);
            }
            let File { id, name, size_bytes, content_type, url } = decode(&found)?;
            let mut facts = output::table(["file", &output::text(id.as_str())]);
            facts.add_row(["name", &output::text(name.as_str())]);
            facts.add_row(["size", &output::bytes(size_bytes)]);
            facts.add_row(["type", &output::text(content_type.as_str())]);
            facts.add_row(["download", &output::text(url.as_str())]);
            output::line(facts.trim_fmt())
        }
        Verb::Delete(args) => {
            let path = format!("/v1/files/{}", segment(&args.id));
            deletion::run(global, &client, &format!("file {}", args.id), &path, args.deletion).await
        }
    }
}
