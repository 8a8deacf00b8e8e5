use super::EVENT;
use crate::clock::Clock;
use crate::connection::Connection;
use crate::error::Error;
use crate::gateway::{JobEventReport, JobMessage};
use crate::job::Progress;
use crate::keys::Keys;
use crate::queue::{OUTPUTS_BYTES_KEPT, OUTPUTS_KEPT, OUTPUTS_LIFE_MS};

/// Number of events that a job keeps; older ones are dropped.
pub(crate) const EVENTS_KEPT: u32 = 1_000;

/// Call of `event.lua`.
pub(crate) struct AppendEvents<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) clock: &'a Clock,
    pub(crate) share_bytes: Option<u64>,
    pub(crate) events: &'a [JobEventReport],
}

impl AppendEvents<'_> {
    pub(crate) async fn run(&self, connection: &Connection) -> Result<(), Error> {
        let mut call = EVENT.call(&[self.keys.root()]);
        call.arg(self.clock.script_arg()).arg(EVENTS_KEPT);
        call.arg(OUTPUTS_KEPT).arg(OUTPUTS_BYTES_KEPT).arg(OUTPUTS_LIFE_MS);
        call.arg(self.share_bytes.map_or_else(String::new, |bytes| bytes.to_string()));
        for report in self.events {
            let event = &report.event;
            let (kind, extra, message) = match event {
                JobMessage::Progress { fraction, message } => {
                    let progress = Progress { fraction: *fraction, message: message.clone() };
                    ("progress", json(&progress)?, json(event)?)
                }
                JobMessage::Log { .. } => ("log", String::new(), json(event)?),
                JobMessage::Output { index, value } => ("outputs", index.to_string(), json(&[value.get()])?),
                JobMessage::Outputs { index, values } => {
                    let texts: Vec<&str> = values.iter().map(|value| value.get()).collect();
                    ("outputs", index.to_string(), json(&texts)?)
                }
            };
            call.arg(report.job_id.to_string()).arg(&report.fence.0).arg(kind).arg(extra).arg(message);
        }
        let _: Vec<String> = connection.eval(&EVENT, &call).await?;
        Ok(())
    }
}

fn json<T: serde::Serialize + ?Sized>(value: &T) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| Error::Corrupt { key: "an event".to_owned(), why: error.to_string() })
}
