//! `stoke feedback`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use futures::StreamExt;
use serde_json::json;
use stokehold_client::models::{Feedback, FeedbackRequest, FeedbackSummary};
use tokio::io::AsyncWriteExt;

use crate::client::{Client, decode, query, segment};
use crate::failure::require;
use crate::{Global, output, progress, result};

/// Rate job results, show ratings by endpoint, and export a sample
#[derive(Args)]
#[command(after_help = "Examples:
  stoke feedback give 0192f0c1a2b37cde8f00112233445500 --accepted --score 5 --label sharp
  stoke feedback stats --endpoint render
  stoke feedback export --endpoint render --sample 1000 --output sample.jsonl")]
pub(crate) struct FeedbackArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Rate the result of a job; a second rating replaces the first
    #[command(
        after_help = "Examples:\n  stoke feedback give 0192f0c1a2b37cde8f00112233445500 --accepted --score 5 --label sharp"
    )]
    Give {
        /// Job id
        #[arg(value_name = "JOB")]
        job: String,
        #[command(flatten)]
        rating: Rating,
    },
    /// Show ratings by endpoint version
    #[command(after_help = "Examples:\n  stoke feedback stats --endpoint render")]
    Stats {
        /// Only this endpoint
        #[arg(long)]
        endpoint: Option<String>,
    },
    Export(ExportArgs),
}

#[derive(Args, Debug, Default, PartialEq)]
struct Rating {
    /// Accept the result
    #[arg(long, conflicts_with = "rejected")]
    accepted: bool,
    /// Reject the result
    #[arg(long)]
    rejected: bool,
    /// Score from 1 (worst) to 5 (best)
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=5))]
    score: Option<u8>,
    /// Label of the rating; may be repeated
    #[arg(long, value_name = "LABEL")]
    label: Vec<String>,
    /// Free-text comment
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
}

/// Print or save a random sample of rated jobs, with inputs and results, as JSON lines
#[derive(Args)]
#[command(after_help = "Examples:\n  stoke feedback export --endpoint render --sample 1000 --output sample.jsonl")]
struct ExportArgs {
    /// Only this endpoint, or one version as NAME@VERSION
    #[arg(long)]
    endpoint: Option<String>,
    /// Number of jobs
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    sample: u32,
    /// Save the sample to this file [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) async fn run(global: &Global, args: FeedbackArgs) -> Result<()> {
    match args.verb {
        Verb::Give { job, rating } => give(global, &job, &rating).await,
        Verb::Stats { endpoint } => stats(global, &Client::connect(global)?, endpoint).await,
        Verb::Export(args) => export(global, &Client::connect(global)?, &args).await,
    }
}

async fn give(global: &Global, job: &str, rating: &Rating) -> Result<()> {
    let request = rating.request();
    require!(
        request != FeedbackRequest::default(),
        "no rating given for job {job}: use --accepted or --rejected, --score, --label or --comment"
    );
    let client = Client::connect(global)?;
    let (_, given) =
        client.post(&format!("/v1/jobs/{}/feedback", segment(job)), Some(&serde_json::to_value(request)?)).await?;
    if global.json {
        return output::json(&given);
    }
    output::line(format_args!("rated job {job}: {}", describe(&decode(&given)?)))
}

impl Rating {
    fn request(&self) -> FeedbackRequest {
        FeedbackRequest {
            accepted: match (self.accepted, self.rejected) {
                (true, _) => Some(true),
                (false, true) => Some(false),
                (false, false) => None,
            },
            score: self.score,
            labels: Some(self.label.clone()).filter(|labels| !labels.is_empty()),
            comment: self.comment.clone(),
        }
    }
}

fn describe(given: &Feedback) -> String {
    let accepted = given.accepted.map(|accepted| if accepted { "accepted" } else { "rejected" }.to_owned());
    let score = given.score.map(|score| format!("{score} of 5"));
    let labels = given.labels.iter().map(|label| output::text(label.as_str()));
    let comment = given.comment.as_ref().filter(|comment| !comment.is_empty()).map(|comment| format!("{comment:?}"));
    accepted.into_iter().chain(score).chain(labels).chain(comment).collect::<Vec<_>>().join(", ")
}

async fn stats(global: &Global, client: &Client, endpoint: Option<String>) -> Result<()> {
    let found = client.get(&query("/v1/feedback", &[("endpoint", endpoint.as_deref())])).await?;
    if global.json {
        return output::json(&found);
    }
    output::print_table(&table(&decode(&found)?), "no rated jobs; rate one with `stoke feedback give JOB --accepted`")
}

fn table(FeedbackSummary { versions }: &FeedbackSummary) -> output::Table {
    let mut table = output::table(["endpoint", "rated", "accepted", "success", "mean score"]);
    for version in versions {
        table.add_row([
            format!("{}@{}", output::text(version.endpoint.as_str()), version.version),
            output::count(version.rated),
            output::count(version.accepted),
            version.success_rate.map_or("-".to_owned(), |rate| format!("{:.1} %", rate * 100.0)),
            version.mean_score.map_or("-".to_owned(), |score| format!("{score:.2}")),
        ]);
    }
    table
}

async fn export(global: &Global, client: &Client, args: &ExportArgs) -> Result<()> {
    let path = export_path(args)?;
    let Some(to) = &args.output else {
        let mut body = client.stream(&path, &[]).await?.bytes_stream();
        while let Some(piece) = body.next().await {
            output::raw(&piece.context(
                "the connection to the API closed before the end of the response; the printed lines are incomplete",
            )?)?;
        }
        return Ok(());
    };
    save(client, &path, to).await.with_context(|| format!("cannot save the sample to {}", to.display()))?;
    if global.json {
        return output::json(&json!({"path": to}));
    }
    output::note(format_args!("saved {}", to.display()));
    Ok(())
}

async fn save(client: &Client, path: &str, to: &Path) -> Result<()> {
    let mut body = client.stream(path, &[]).await?.bytes_stream();
    let (mut place, bar) = (result::Beside::create(to).await?, progress::bytes(format!("saving {}", to.display())));
    while let Some(piece) = body.next().await {
        let piece = piece.context("the connection to the API closed before the end of the response")?;
        place.file.write_all(&piece).await?;
        bar.inc(piece.len() as u64);
    }
    place.keep().await?;
    bar.finish_and_clear();
    Ok(())
}

fn export_path(args: &ExportArgs) -> Result<String> {
    let (endpoint, version) =
        match args.endpoint.as_deref().map(|endpoint| endpoint.split_once('@').unwrap_or((endpoint, ""))) {
            Some((endpoint, version)) => (Some(endpoint), Some(version).filter(|version| !version.is_empty())),
            None => (None, None),
        };
    if let Some(version) = version {
        version.parse::<u32>().with_context(|| format!("{version:?} is not a version; versions are numbers from 1"))?;
    }
    let sample = args.sample.to_string();
    Ok(query("/v1/feedback/export", &[("endpoint", endpoint), ("version", version), ("sample", Some(&sample))]))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use axum::Router;
    use axum::routing::get;

    use super::*;
    use crate::{Command, stub};

    fn parse(line: &str) -> FeedbackArgs {
        let Command::Feedback(args) = stub::parse(line).unwrap() else { panic!("is one") };
        args
    }

    #[test]
    fn a_job_may_be_rated_with_and_without_the_verb() {
        let options = "01 --rejected --score 2 --label blurred --label dark --comment no";
        let Verb::Give { job, rating } = parse(&format!("feedback {options}")).verb else { panic!() };
        let Verb::Give { job: other, rating: same } = parse(&format!("feedback give {options}")).verb else { panic!() };
        assert_eq!((&job, &rating), (&other, &same));
        let expected = json!({"accepted": false, "score": 2, "labels": ["blurred", "dark"], "comment": "no"});
        assert_eq!(json!(rating.request()), expected);
        let given = Feedback { accepted: Some(false), score: Some(2), ..Feedback::default() };
        let given = Feedback { labels: vec!["blurred".into(), "dark".into()], comment: Some("no".into()), ..given };
        assert_eq!(describe(&given), "rejected, 2 of 5, blurred, dark, \"no\"");
        assert!(stub::parse("feedback 01 --score 6").is_err());
        assert!(stub::parse("feedback 01 --accepted --rejected").is_err());
    }

    #[test]
    fn an_export_parses_as_written() {
        let path = |line: &str| match parse(line).verb {
            Verb::Export(args) => export_path(&args),
            _ => panic!("{line} is no export"),
        };
        assert_eq!(path("feedback export --sample 1000").unwrap(), "/v1/feedback/export?sample=1000");
        let versioned = path("feedback --json export --endpoint e@3 --sample 5 -o x").unwrap();
        assert_eq!(versioned, "/v1/feedback/export?endpoint=e&version=3&sample=5");
        assert!(path("feedback export --endpoint e@new").is_err());
    }

    #[test]
    fn stats_have_a_row_for_each_version() {
        assert!(matches!(parse("feedback stats --endpoint e").verb, Verb::Stats { endpoint: Some(_) }));
        let stats = json!({"versions": [
            {"endpoint": "e", "version": 2, "rated": 1_200, "accepted": 900, "success_rate": 0.75, "mean_score": 4.251},
            {"endpoint": "e", "version": 1, "rated": 0, "accepted": 0, "success_rate": null, "mean_score": null},
        ]});
        let shown = table(&decode(&stats).unwrap()).trim_fmt();
        let rows: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1], ["e@2", "1,200", "900", "75.0", "%", "4.25"]);
        assert_eq!(rows[2], ["e@1", "0", "0", "-", "-"]);
    }

    #[tokio::test]
    async fn a_sample_is_saved() {
        let client = stub::serve(Router::new().route("/v1/feedback/export", get(|| async { "{}\n{}\n" }))).await;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sample.jsonl");
        save(&client, "/v1/feedback/export?sample=2", &path).await.unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{}\n{}\n");
    }
}
