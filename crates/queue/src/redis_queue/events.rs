//! The stored events and outputs of a job.

use redis::AsyncCommands;
use redis::streams::{StreamId, StreamRangeReply};
use serde_json::value::RawValue;

use super::RedisQueue;
use crate::error::Error;
use crate::gateway::JobEventReport;
use crate::id::JobId;
use crate::output_texts;
use crate::queue::{BATCH_MAX, KeptEvent, KeptOutputs, OutputsPosition};
use crate::scripts;

impl RedisQueue {
    pub(crate) async fn store_events(&self, events: &[JobEventReport], is_relayed: bool) -> Result<(), Error> {
        for events in events.chunks(BATCH_MAX) {
            let (keys, clock, share_bytes) = (&self.keys, &self.config.clock, self.share_bytes());
            let call = scripts::AppendEvents { keys, clock, share_bytes, events, is_relayed };
            call.run(&self.connection).await?;
        }
        Ok(())
    }

    pub(super) async fn stored_events(&self, id: JobId, after: &str, limit: u32) -> Result<Vec<KeptEvent>, Error> {
        let start = if after.is_empty() { "-".to_owned() } else { format!("({after}") };
        let reply: StreamRangeReply = self
            .connection
            .redis()
            .xrange_count(self.keys.events(id), start, "+", limit)
            .await
            .map_err(Error::redis("read events"))?;
        let readable = |entry| {
            kept_event(id, entry).inspect_err(|error| {
                tracing::error!(error = error as &dyn std::error::Error, "an event cannot be read; leaving it out");
            })
        };
        Ok(reply.ids.iter().filter_map(|entry| readable(entry).ok()).collect())
    }

    pub(super) async fn stored_outputs(
        &self,
        id: JobId,
        after: OutputsPosition,
        limit: u32,
    ) -> Result<Vec<KeptOutputs>, Error> {
        let start = format!("{}-{}", after.attempt, after.next.saturating_add(1));
        let reply: StreamRangeReply = self
            .connection
            .redis()
            .xrange_count(self.keys.outputs(id), start, "+", limit)
            .await
            .map_err(Error::redis("read outputs"))?;
        Ok(reply.ids.iter().filter_map(|entry| kept_or_lost(id, entry)).collect())
    }
}

/// The outputs of an entry. Those of an entry that cannot be read are a gap, as lost ones are: no outputs before the
/// entry's end, which its ID contains.
fn kept_or_lost(id: JobId, entry: &StreamId) -> Option<KeptOutputs> {
    let error = match kept_outputs(id, entry) {
        Ok(outputs) => return Some(outputs),
        Err(error) => error,
    };
    tracing::error!(error = &error as &dyn std::error::Error, "outputs cannot be read; their readers receive a gap");
    let (attempt, end) = entry.id.split_once('-')?;
    Some(KeptOutputs { attempt: attempt.parse().ok()?, index: end.parse().ok()?, values: Vec::new(), at_ms: 0 })
}

fn kept_event(id: JobId, entry: &StreamId) -> Result<KeptEvent, Error> {
    let corrupt = |why: String| Error::Corrupt { key: format!("event {} of job {id}", entry.id), why };
    let attempt = entry.get("a").ok_or_else(|| corrupt("no attempt".to_owned()))?;
    let message: String = entry.get("m").ok_or_else(|| corrupt("no message".to_owned()))?;
    let message = serde_json::from_str(&message).map_err(|error| corrupt(error.to_string()))?;
    Ok(KeptEvent { id: entry.id.clone(), attempt, message })
}

fn kept_outputs(id: JobId, entry: &StreamId) -> Result<KeptOutputs, Error> {
    let corrupt = |why: String| Error::Corrupt { key: format!("outputs {} of job {id}", entry.id), why };
    let number = |text: &str| text.parse::<u64>().map_err(|error| corrupt(error.to_string()));
    let field = |name: &str| entry.get::<String>(name).ok_or_else(|| corrupt(format!("no {name}")));
    let attempt =
        entry.id.split('-').next().unwrap_or_default().parse().map_err(|_| corrupt("no attempt".to_owned()))?;
    let texts = match entry.get::<Vec<u8>>("z") {
        Some(compressed) => output_texts::decompress(&compressed).map_err(|error| corrupt(error.to_string()))?,
        None => field("v")?.into_bytes(),
    };
    let texts: Vec<String> = serde_json::from_slice(&texts).map_err(|error| corrupt(error.to_string()))?;
    let values = texts.into_iter().map(RawValue::from_string).collect::<Result<_, _>>();
    let values = values.map_err(|error| corrupt(error.to_string()))?;
    Ok(KeptOutputs { attempt, index: number(&field("i")?)?, values, at_ms: number(&field("t")?)? })
}
