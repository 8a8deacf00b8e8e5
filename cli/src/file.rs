//! `stoke file`: uploaded input files.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::json;
use stokehold_client::models::{File, FileSummary};

use crate::client::{Client, decode, pages, segment};
use crate::deletion::{self, DeletionArgs};
use crate::{Global, output, upload};

/// Upload, list and delete input files
///
/// `stoke submit --file` uploads files by itself. Upload a file here to use it in several jobs.
#[derive(Args)]
#[command(after_help = "Examples:
  stoke file upload talk.mp3
  stoke file list
  stoke file get file_0123456789abcdef")]
pub(crate) struct FileArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Upload(UploadArgs),
    /// List uploaded files, by id
    ///
    /// Includes the files that the API makes of large inputs.
    #[command(after_help = "Examples:\n  stoke file list")]
    List {
        /// Maximum number of files
        #[arg(long, short, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
    },
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
        Verb::List { limit } => {
            let files = pages::collect(&client, "/v1/files", &[], "files", limit).await?;
            if global.json {
                return output::json(&json!({"files": files}));
            }
            let mut table = output::table(["file", "name", "size", "type", "uploaded"]);
            for file in &files {
                let FileSummary { id, name, size_bytes, content_type, uploaded_at } = decode(file)?;
                table.add_row([
                    output::text(id.as_str()),
                    output::text(name.as_str()),
                    output::bytes(size_bytes),
                    output::text(content_type.as_str()),
                    output::ago(uploaded_at.as_str()),
                ]);
            }
            output::print_table(&table, "no files; upload one with `stoke file upload`")
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
