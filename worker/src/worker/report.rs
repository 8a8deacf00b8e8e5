//! Reports ended attempts to the gateway, and releases leases.

use std::sync::Arc;

use stokehold_protocol::gateway::{
    FinishAnswer, FinishOutcome, FinishReport, FinishRequest, LeaseRef, Offer, ReleaseRequest,
};

use super::{BATCH, Worker, pause};
use crate::attempt::End;
use crate::gateway::Error;
use crate::metrics::{self, Outcome};

/// Ended attempts to report to the gateway.
#[derive(Default)]
pub(super) struct Outbox {
    pub(super) reports: Vec<FinishReport>,
    pub(super) releases: Vec<LeaseRef>,
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.reports.is_empty() && self.releases.is_empty()
    }

    /// Adds the end of an attempt.
    pub(super) fn record(&mut self, end: End) {
        match end {
            End::Report(report) => {
                metrics::ended(match report.outcome {
                    FinishOutcome::Succeeded { .. } | FinishOutcome::Stored { .. } => Outcome::Succeeded,
                    FinishOutcome::Failed { .. } => Outcome::Failed,
                });
                self.reports.push(*report);
            }
            End::Release(lease) => {
                metrics::ended(Outcome::Released);
                self.releases.push(lease);
            }
            End::Lost => metrics::ended(Outcome::Lost),
        }
    }
}

impl Worker {
    pub(super) async fn flush(self: Arc<Self>, outbox: Outbox) {
        self.report(outbox.reports).await;
        for leases in outbox.releases.chunks(BATCH) {
            let request = ReleaseRequest { leases: leases.to_vec() };
            if let Err(error) = self.gateway.release(&request).await {
                tracing::warn!(%error, "cannot release leases; they will expire");
            }
            leases.iter().for_each(|lease| self.leases.forget(lease));
        }
    }

    /// Reports results until they are accepted or their leases are lost. A result is retried for longer than a single
    /// call.
    pub(super) async fn report(&self, mut reports: Vec<FinishReport>) {
        let mut most = BATCH;
        while !reports.is_empty() {
            let rest = reports.split_off(reports.len().min(most));
            let request = FinishRequest { finish: reports, offer: self.offers_more() };
            match self.gateway.finish(&request).await {
                Ok(reply) => {
                    self.on_offer_reply(&request, reply.offer_taken);
                    self.on_reported(&request.finish, &reply.finished);
                    reports = rest;
                }
                // The heartbeat detects which leases are lost meanwhile.
                Err(error @ (Error::Unavailable(_) | Error::Unauthorized)) => {
                    tracing::warn!(%error, jobs = request.finish.len(), "cannot report job results; retrying");
                    pause().await;
                    reports = request.finish.into_iter().chain(rest).collect();
                    reports.retain(|report| self.leases.contains(&lease_of(report)));
                }
                // A rejected report must not affect the others.
                Err(Error::Refused { .. }) if request.finish.len() > 1 => {
                    most = 1;
                    reports = request.finish.into_iter().chain(rest).collect();
                }
                Err(error @ Error::Refused { .. }) => {
                    tracing::error!(%error, "the gateway rejected a job result; the job runs again");
                    self.on_reported(&request.finish, &[]);
                    reports = rest;
                }
            }
        }
    }

    /// Offers more room than the waiting lease call does.
    pub(super) async fn offer(self: Arc<Self>, offer: Offer) {
        let request = FinishRequest { finish: Vec::new(), offer: Some(offer) };
        match self.gateway.finish(&request).await {
            Ok(reply) => self.on_offer_reply(&request, reply.offer_taken),
            Err(error) => {
                tracing::debug!(%error, "cannot offer more room; the next lease call offers it");
                self.ask_again.notify_one();
            }
        }
    }

    /// Repeats the waiting lease call if the gateway did not apply the new offer to it.
    pub(super) fn on_offer_reply(&self, request: &FinishRequest, offer_taken: bool) {
        if request.offer.is_some() && !offer_taken && self.asked.lock().is_some() {
            self.ask_again.notify_one();
        }
    }

    pub(super) fn on_reported(&self, reports: &[FinishReport], answers: &[FinishAnswer]) {
        for report in reports {
            self.leases.forget(&lease_of(report));
        }
        for (report, answer) in reports.iter().zip(answers) {
            match answer {
                FinishAnswer::Ok | FinishAnswer::AlreadyEnded => {}
                FinishAnswer::StaleFence | FinishAnswer::NotFound => {
                    tracing::warn!(job.id = %report.job_id, fence = %report.fence, ?answer, "stale_fence: a job result was rejected because the job has continued elsewhere");
                }
            }
        }
    }
}

fn lease_of(report: &FinishReport) -> LeaseRef {
    LeaseRef { job_id: report.job_id, fence: report.fence.clone() }
}
