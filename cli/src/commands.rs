//! The commands at the root: one word each, and what each runs.

use clap::Subcommand;
use tokio::runtime::{Builder, Runtime};

use crate::{
    Global, api, audit, autoscaler, backup, batch, bench, cancel, completions, confine, cost, dashboard, demo, deploy,
    dev, doctor, endpoint, feedback, file, find_redis, fleet, get, guard, init, install, job, limit, list, login, logs,
    probe, redrive, requirements, run, schedule, secret, serve, simulate, store, submit, tenant, token, top, webhook,
    weights, worker,
};

#[derive(Subcommand)]
pub(crate) enum Command {
    Demo(demo::DemoArgs),
    Init(init::InitArgs),
    Dev(dev::DevArgs),
    Run(run::RunArgs),
    Deploy(deploy::DeployArgs),
    Serve(serve::ServeArgs),
    Login(login::LoginArgs),
    Logout(login::LogoutArgs),
    Doctor(doctor::DoctorArgs),
    Completions(completions::CompletionsArgs),
    Submit(submit::SubmitArgs),
    Get(get::GetArgs),
    Logs(logs::LogsArgs),
    Cancel(cancel::CancelArgs),
    Retry(redrive::RetryArgs),
    List(list::ListArgs),
    Job(job::JobArgs),
    Batch(batch::BatchArgs),
    Schedule(schedule::ScheduleArgs),
    Webhook(webhook::WebhookArgs),
    File(file::FileArgs),
    Endpoint(endpoint::EndpointArgs),
    Secret(secret::SecretArgs),
    Weights(weights::WeightsArgs),
    Requirements(requirements::RequirementsArgs),
    Feedback(feedback::FeedbackArgs),
    Top(top::TopArgs),
    Worker(worker::WorkerArgs),
    Fleet(fleet::FleetArgs),
    Cost(cost::CostArgs),
    Token(token::TokenArgs),
    Tenant(tenant::TenantArgs),
    Limit(limit::LimitArgs),
    Audit(audit::AuditArgs),
    Backup(backup::BackupArgs),
    Server(install::ServerArgs),
    Dashboard(dashboard::DashboardArgs),
    Bench(bench::BenchArgs),
    Simulate(simulate::SimulateArgs),
    Api(api::ApiArgs),
    Store(store::StoreArgs),
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

impl Command {
    /// Builds the async runtime. A worker gets a single thread: it mostly moves jobs between sockets, and one thread
    /// avoids wake-ups. CPU-heavy work has its own threads.
    pub(crate) fn runtime(&self) -> std::io::Result<Runtime> {
        match self {
            Self::Worker(_) => Builder::new_current_thread().enable_all().build(),
            _ => Builder::new_multi_thread().enable_all().build(),
        }
    }

    /// Runs the command on the main thread, which lives as long as the process: the parent-death signal of a child
    /// process is tied to the thread that starts it.
    pub(crate) async fn run(self, global: &Global) -> anyhow::Result<()> {
        match self {
            Self::Demo(args) => Box::pin(demo::run(global, args)).await,
            Self::Init(args) => init::run(global, &args),
            Self::Dev(args) => Box::pin(dev::run(global, args)).await,
            Self::Run(args) => Box::pin(run::run(global, args)).await,
            Self::Deploy(args) => Box::pin(deploy::run(global, args)).await,
            Self::Serve(args) => Box::pin(serve::run(global, args)).await,
            Self::Login(args) => Box::pin(login::run(global, args)).await,
            Self::Logout(args) => login::logout(global, &args),
            Self::Doctor(args) => Box::pin(doctor::run(global, args)).await,
            Self::Completions(args) => completions::run(&args),
            Self::Submit(args) => Box::pin(submit::run(global, args)).await,
            Self::Get(args) => Box::pin(get::run(global, args)).await,
            Self::Logs(args) => Box::pin(logs::run(global, args)).await,
            Self::Cancel(args) => Box::pin(cancel::run(global, args)).await,
            Self::Retry(args) => Box::pin(redrive::run(global, args)).await,
            Self::List(args) => Box::pin(list::run(global, args)).await,
            Self::Job(args) => Box::pin(job::run(global, args)).await,
            Self::Batch(args) => Box::pin(batch::run(global, args)).await,
            Self::Schedule(args) => Box::pin(schedule::run(global, args)).await,
            Self::Webhook(args) => Box::pin(webhook::run(global, args)).await,
            Self::File(args) => Box::pin(file::run(global, args)).await,
            Self::Endpoint(args) => Box::pin(endpoint::run(global, args)).await,
            Self::Secret(args) => Box::pin(secret::run(global, args)).await,
            Self::Weights(args) => Box::pin(weights::run(global, args)).await,
            Self::Requirements(args) => Box::pin(requirements::run(global, args)).await,
            Self::Feedback(args) => Box::pin(feedback::run(global, args)).await,
            Self::Top(args) => Box::pin(top::run(global, args)).await,
            Self::Worker(args) => Box::pin(worker::run(global, args)).await,
            Self::Fleet(args) => Box::pin(fleet::run(global, args)).await,
            Self::Cost(args) => Box::pin(cost::run(global, args)).await,
            Self::Token(args) => Box::pin(token::run(global, args)).await,
            Self::Tenant(args) => Box::pin(tenant::run(global, args)).await,
            Self::Limit(args) => Box::pin(limit::run(global, args)).await,
            Self::Audit(args) => Box::pin(audit::run(global, args)).await,
            Self::Backup(args) => Box::pin(backup::run(global, args)).await,
            Self::Server(args) => Box::pin(install::run(global, args)).await,
            Self::Dashboard(args) => Box::pin(dashboard::run(global, args)).await,
            Self::Bench(args) => Box::pin(bench::run(global, args)).await,
            Self::Simulate(args) => simulate::run(global, &args),
            Self::Api(args) => Box::pin(api::run(args)).await,
            Self::Store(args) => Box::pin(store::run(args)).await,
            Self::Autoscaler(args) => Box::pin(autoscaler::run(global, args)).await,
            Self::Probe(args) => Box::pin(probe::run(args)).await,
            Self::FindRedis(args) => Box::pin(find_redis::run(args)).await,
            Self::Guard(args) => guard::run(&args),
            Self::Confine(args) => confine::run(&args),
        }
    }
}
