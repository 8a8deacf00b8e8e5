//! The `stoke` command, with one module per subcommand.

mod api;
mod audit;
mod autoscaler;
mod backup;
mod batch;
mod bench;
mod cancel;
#[cfg(test)]
mod catalogue;
mod client;
mod confine;
mod costs;
mod credentials;
mod dashboard;
mod demo;
mod deploy;
mod describe;
mod dev;
mod dlq;
mod doctor;
#[cfg(test)]
mod documented;
mod endpoints;
mod feedback;
mod filter;
mod find_redis;
mod findings;
mod fleet;
mod gate;
mod get;
mod guard;
mod help;
mod init;
mod install;
mod job;
mod kind;
mod limits;
mod list;
mod logging;
mod logs;
mod money;
mod output;
mod paths;
mod probe;
mod progress;
mod quarantined;
mod redrive;
mod run;
mod schedule;
mod schema;
mod secret;
mod services;
mod signals;
mod simulate;
mod store;
#[cfg(test)]
mod stub;
mod submit;
mod tenant;
mod token;
mod top;
mod upload;
mod wait;
mod webhook;
mod weights;
mod worker;
mod workers;

use std::process::ExitCode;

use clap::{Args, FromArgMatches, Parser, Subcommand};
use tokio::runtime::{Builder, Runtime};

/// Serverless GPU jobs on hardware you own and hardware you rent by the minute.
///
/// Start with `stoke demo`, or with `stoke dev` in one terminal and `stoke deploy` in another.
#[derive(Parser)]
#[command(name = "stoke", version, max_term_width = 120, arg_required_else_help = true)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Options of every subcommand.
#[derive(Args, Clone)]
struct Global {
    /// Print JSON on standard output
    #[arg(long, global = true)]
    json: bool,
    /// Print without colours (same as NO_COLOR=1)
    #[arg(long, global = true)]
    no_color: bool,
    /// URL of the API [default: the one that `stoke dev` saved, else http://127.0.0.1:7070]
    #[arg(long, global = true, env = "STOKE_URL", help_heading = "Connection")]
    url: Option<String>,
    /// API token [default: the one that `stoke dev` saved for this URL]
    #[arg(long, global = true, env = "STOKE_TOKEN", hide_env_values = true, help_heading = "Connection")]
    token: Option<String>,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::DemoArgs),
    Dev(dev::DevArgs),
    Init(init::InitArgs),
    Run(run::RunArgs),
    Deploy(deploy::DeployArgs),
    Submit(submit::SubmitArgs),
    Get(get::GetArgs),
    Logs(logs::LogsArgs),
    Cancel(cancel::CancelArgs),
    Retry(redrive::RetryArgs),
    List(list::ListArgs),
    Dlq(dlq::DlqArgs),
    Job(quarantined::JobArgs),
    Batch(batch::BatchArgs),
    Bench(bench::BenchArgs),
    Schedule(schedule::ScheduleArgs),
    Webhook(webhook::WebhookArgs),
    Secret(secret::SecretArgs),
    Weights(weights::WeightsArgs),
    Feedback(feedback::FeedbackArgs),
    Gate(gate::GateArgs),
    Limits(limits::LimitsArgs),
    #[command(visible_alias = "endpoint")]
    Endpoints(endpoints::EndpointsArgs),
    Workers(workers::WorkersArgs),
    Simulate(simulate::SimulateArgs),
    Fleet(fleet::FleetArgs),
    Costs(costs::CostsArgs),
    Top(top::TopArgs),
    Dashboard(dashboard::DashboardArgs),
    Token(token::TokenArgs),
    Tenant(tenant::TenantArgs),
    Audit(audit::AuditArgs),
    Doctor(doctor::DoctorArgs),
    Install(install::InstallArgs),
    Uninstall(install::UninstallArgs),
    Backup(backup::BackupArgs),
    Api(api::ApiArgs),
    Store(store::StoreArgs),
    Worker(worker::WorkerArgs),
    Autoscaler(autoscaler::AutoscalerArgs),
    #[command(hide = true)]
    Probe(probe::ProbeArgs),
    #[command(hide = true)]
    FindRedis(find_redis::FindRedisArgs),
    #[command(hide = true)]
    Guard(guard::GuardArgs),
    #[command(hide = true)]
    Confine(confine::ConfineArgs),
}

fn main() -> ExitCode {
    let matches = help::command().get_matches();
    let Cli { global, command } = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    if global.no_color {
        anstream::ColorChoice::Never.write_global();
    }
    let done = match command {
        // These commands replace the process with another program and need no runtime.
        Command::Guard(args) => guard::run(&args),
        Command::Confine(args) => confine::run(&args),
        command => match runtime(&command) {
            Ok(runtime) => runtime.block_on(run(&global, command)),
            Err(error) => Err(error.into()),
        },
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::error(&error);
            ExitCode::FAILURE
        }
    }
}

/// Builds the async runtime. A worker gets a single thread: it mostly moves jobs between sockets, and one thread avoids
/// wake-ups. CPU-heavy work has its own threads.
fn runtime(command: &Command) -> std::io::Result<Runtime> {
    match command {
        Command::Worker(_) => Builder::new_current_thread().enable_all().build(),
        _ => Builder::new_multi_thread().enable_all().build(),
    }
}

/// Runs a command on the main thread, which lives as long as the process: the parent-death signal of a child process is
/// tied to the thread that starts it.
async fn run(global: &Global, command: Command) -> anyhow::Result<()> {
    match command {
        Command::Demo(args) => Box::pin(demo::run(global, args)).await,
        Command::Dev(args) => Box::pin(dev::run(global, args)).await,
        Command::Init(args) => init::run(global, &args),
        Command::Run(args) => Box::pin(run::run(global, args)).await,
        Command::Deploy(args) => Box::pin(deploy::run(global, args)).await,
        Command::Submit(args) => Box::pin(submit::run(global, args)).await,
        Command::Get(args) => Box::pin(get::run(global, args)).await,
        Command::Logs(args) => Box::pin(logs::run(global, args)).await,
        Command::Cancel(args) => Box::pin(cancel::run(global, args)).await,
        Command::Retry(args) => Box::pin(redrive::run(global, args)).await,
        Command::Dlq(args) => Box::pin(dlq::run(global, args)).await,
        Command::Job(args) => Box::pin(quarantined::run(global, args)).await,
        Command::Batch(args) => Box::pin(batch::run(global, args)).await,
        Command::Bench(args) => Box::pin(bench::run(global, args)).await,
        Command::Schedule(args) => Box::pin(schedule::run(global, args)).await,
        Command::Webhook(args) => Box::pin(webhook::run(global, args)).await,
        Command::Secret(args) => Box::pin(secret::run(global, args)).await,
        Command::Weights(args) => Box::pin(weights::run(global, args)).await,
        Command::Feedback(args) => Box::pin(feedback::run(global, args)).await,
        Command::Gate(args) => Box::pin(gate::run(global, args)).await,
        Command::Limits(args) => Box::pin(limits::run(global, args)).await,
        Command::List(args) => Box::pin(list::run(global, args)).await,
        Command::Endpoints(args) => Box::pin(endpoints::run(global, args)).await,
        Command::Workers(args) => Box::pin(workers::run(global, args)).await,
        Command::Simulate(args) => simulate::run(global, &args),
        Command::Costs(args) => Box::pin(costs::run(global, args)).await,
        Command::Fleet(args) => Box::pin(fleet::run(global, args)).await,
        Command::Top(args) => Box::pin(top::run(global, args)).await,
        Command::Dashboard(args) => Box::pin(dashboard::run(global, args)).await,
        Command::Token(args) => Box::pin(token::run(global, args)).await,
        Command::Tenant(args) => Box::pin(tenant::run(global, args)).await,
        Command::Audit(args) => Box::pin(audit::run(global, args)).await,
        Command::Doctor(args) => Box::pin(doctor::run(global, args)).await,
        Command::Install(args) => Box::pin(install::run(global, args)).await,
        Command::Uninstall(args) => Box::pin(install::uninstall(global, args)).await,
        Command::Backup(args) => Box::pin(backup::run(global, args)).await,
        Command::Api(args) => Box::pin(api::run(args)).await,
        Command::Store(args) => Box::pin(store::run(args)).await,
        Command::Worker(args) => Box::pin(worker::run(global, args)).await,
        Command::Autoscaler(args) => Box::pin(autoscaler::run(global, args)).await,
        Command::Probe(args) => Box::pin(probe::run(args)).await,
        Command::FindRedis(args) => Box::pin(find_redis::run(args)).await,
        Command::Guard(args) => guard::run(&args),
        Command::Confine(args) => confine::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}
