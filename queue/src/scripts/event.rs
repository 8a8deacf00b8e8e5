use super::EVENT;
use crate::clock::Clock;
use crate::connection::Connection;
use crate::error::Error;
use crate::gateway::{JobEventReport, JobMessage};
use crate::job::Progress;
use crate::keys::Keys;

/// A job keeps this many events; older ones make room.
pub(crate) const EVENTS_KEPT: u32 = 1_000;

/// Call of `event.lua`.
pub(crate) struct AppendEvents<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) clock: &'a Clock,
    pub(crate) events: &'a [JobEventReport],
}

impl AppendEvents<'_> {
    pub(crate) async fn run(&self, connection: &Connection) -> Result<(), Error> {
        let mut call = EVENT.call(&[self.keys.root()]);
        call.arg(self.clock.script_arg()).arg(EVENTS_KEPT);
        for report in self.events {
            let (kind, progress) = match &report.event {
                JobMessage::Progress { fraction, message } => {
                    ("progress", json(&Progress { fraction: *fraction, message: message.clone() })?)
                }
                JobMessage::Log { .. } => ("log", String::new()),
                JobMessage::Output { .. } => ("output", String::new()),
            };
            call.arg(report.job_id.to_string()).arg(&report.fence.0).arg(kind).arg(progress).arg(json(&report.event)?);
        }
        let _: Vec<String> = connection.eval(&EVENT, &call).await?;
        Ok(())
    }
}

fn json<T: serde::Serialize>(value: &T) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| Error::Corrupt { key: "an event".to_owned(), why: error.to_string() })
}
