//! Metrics of waiting, running and ended jobs.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use metrics::{counter, gauge};
use stokehold_queue::capability;
use stokehold_queue::flow::Flow;
use stokehold_queue::vram::{DECLARED_MAX_GIB, SOLD_GIB};

use super::catalogue::{
    BATCH_LINES, BATCHES, ENDPOINT_ENDED, ENDPOINT_FAILED, ENDPOINT_OLDEST, ENDPOINT_RUNNING, ENDPOINT_TOKENS,
    ENDPOINT_WAITING, JOBS_ENDED, JOBS_QUARANTINED, JOBS_RUNNING, QUEUE_DEPTH, QUEUE_OLDEST, SCRIPT_FAULTS,
};
use super::snapshot::Snapshot;
use super::{LeftOut, float, seconds};
use crate::metrics::{PRIORITIES, index};

/// Maximum number of endpoints with series of their own.
const ENDPOINTS_MAX: usize = 100;

pub(super) fn set_metrics(snapshot: &Snapshot, left_out: &mut LeftOut) {
    let mut depth: BTreeMap<(usize, u32), u64> = BTreeMap::new();
    let mut oldest_ms = [0; 3];
    for lane in snapshot.flows.iter().flat_map(|flow| &flow.lanes) {
        let (_, class_gib) = capability::parts_of(lane.class);
        *depth.entry((index(lane.priority), smallest_gib(class_gib))).or_default() += lane.waiting;
        let oldest = &mut oldest_ms[index(lane.priority)];
        *oldest = lane.oldest_ms.max(*oldest);
    }
    for (n, priority) in PRIORITIES.into_iter().enumerate() {
        gauge!(QUEUE_OLDEST, "priority" => priority).set(seconds(oldest_ms[n]));
        for class_gib in [0].into_iter().chain(SOLD_GIB).chain([DECLARED_MAX_GIB]) {
            let jobs = depth.get(&(n, class_gib)).copied().unwrap_or(0);
            gauge!(QUEUE_DEPTH, "priority" => priority, "vram_class_gib" => class_gib.to_string()).set(float(jobs));
        }
    }
    gauge!(JOBS_RUNNING).set(float(snapshot.flows.iter().map(|flow| flow.running).sum()));
    gauge!(JOBS_ENDED).set(float(snapshot.jobs_ended));
    for (shard, jobs) in snapshot.quarantined.iter().enumerate() {
        gauge!(JOBS_QUARANTINED, "shard" => shard.to_string()).set(float(*jobs));
    }
    for (part, times) in &snapshot.script_faults {
        gauge!(SCRIPT_FAULTS, "part" => part.clone()).set(float(*times));
    }
    endpoints(snapshot, left_out);
    batches(snapshot, left_out);
}

/// The smallest GPU size on the market for a class, GiB. It serves as a label, which must have few values, while
/// classes are many.
fn smallest_gib(class_gib: u32) -> u32 {
    if class_gib == 0 {
        return 0;
    }
    SOLD_GIB.into_iter().find(|sold| *sold >= class_gib).unwrap_or(DECLARED_MAX_GIB)
}

fn endpoints(snapshot: &Snapshot, left_out: &mut LeftOut) {
    let waiting = |flow: &Flow| flow.lanes.iter().map(|lane| lane.waiting).sum::<u64>();
    let mut flows: Vec<&Flow> = snapshot.flows.iter().collect();
    flows
        .sort_by_key(|flow| (Reverse(waiting(flow) + flow.running), Reverse(flow.ended), &flow.tenant, &flow.endpoint));
    for flow in left_out.cut("endpoints", &flows, ENDPOINTS_MAX) {
        let labels = [("tenant", flow.tenant.clone()), ("endpoint", flow.endpoint.clone())];
        let mut by_priority = [0; 3];
        flow.lanes.iter().for_each(|lane| by_priority[index(lane.priority)] += lane.waiting);
        for (priority, jobs) in PRIORITIES.into_iter().zip(by_priority) {
            let [tenant, endpoint] = labels.clone();
            gauge!(ENDPOINT_WAITING, &[tenant, endpoint, ("priority", priority.to_owned())]).set(float(jobs));
        }
        let oldest_ms = flow.lanes.iter().map(|lane| lane.oldest_ms).max().unwrap_or(0);
        gauge!(ENDPOINT_OLDEST, &labels).set(seconds(oldest_ms));
        gauge!(ENDPOINT_RUNNING, &labels).set(float(flow.running));
        counter!(ENDPOINT_ENDED, &labels).absolute(flow.ended);
        counter!(ENDPOINT_FAILED, &labels).absolute(flow.failed);
        let kinds = ["prompt", "cached", "completion"].into_iter().zip(flow.tokens.numbers());
        for (kind, tokens) in kinds.filter(|_| flow.tokens.total() > 0) {
            let [tenant, endpoint] = labels.clone();
            counter!(ENDPOINT_TOKENS, &[tenant, endpoint, ("kind", kind.to_owned())]).absolute(tokens);
        }
    }
}

fn batches(snapshot: &Snapshot, left_out: &mut LeftOut) {
    left_out.0.push(("batches", snapshot.more_batches));
    let mut states = [("validating", 0), ("running", 0), ("finalizing", 0)];
    let mut lines = [("waiting", 0), ("running", 0), ("succeeded", 0), ("failed", 0), ("cancelled", 0)];
    for batch in &snapshot.batches {
        if let Some((_, batches)) = states.iter_mut().find(|(state, _)| *state == batch.state.as_str()) {
            *batches += 1;
        }
        let waiting = batch.accepted().saturating_sub(batch.ended() + batch.running);
        let of_batch = [waiting, batch.running, batch.succeeded, batch.failed + batch.expired, batch.cancelled];
        lines.iter_mut().zip(of_batch).for_each(|((_, sum), of_batch)| *sum += of_batch);
    }
    states.into_iter().for_each(|(state, batches)| gauge!(BATCHES, "state" => state).set(float(batches)));
    lines.into_iter().for_each(|(state, lines)| gauge!(BATCH_LINES, "state" => state).set(float(lines)));
}
