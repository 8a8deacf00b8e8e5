use super::EVENT;
use crate::clock::Clock;
use crate::connection::Connection;
use crate::error::Error;
use crate::gateway::{JobEventReport, JobMessage};
use crate::job::Progress;
use crate::keys::Keys;
use crate::output_texts;
use crate::queue::{OUTPUTS_BYTES_KEPT, OUTPUTS_KEPT, OUTPUTS_LIFE_MS};

/// Number of events that a job keeps; older ones are dropped.
pub(crate) const EVENTS_KEPT: u32 = 1_000;

/// Call of `event.lua`.
pub(crate) struct AppendEvents<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) clock: &'a Clock,
    pub(crate) share_bytes: Option<u64>,
    pub(crate) events: &'a [JobEventReport],
    /// Whether connected readers have received the outputs, and need no signal.
    pub(crate) is_relayed: bool,
}

impl AppendEvents<'_> {
    pub(crate) async fn run(&self, connection: &Connection) -> Result<(), Error> {
        let replies = self.call(connection, true).await?;
        if replies == ["uncompressed"] {
            self.call(connection, false).await?;
        }
        Ok(())
    }

    async fn call(&self, connection: &Connection, may_compress: bool) -> Result<Vec<String>, Error> {
        let mut call = EVENT.call(&[self.keys.root()]);
        call.arg(self.clock.script_arg()).arg(EVENTS_KEPT);
        call.arg(OUTPUTS_KEPT).arg(OUTPUTS_BYTES_KEPT).arg(OUTPUTS_LIFE_MS);
        call.arg(self.share_bytes.map_or_else(String::new, |bytes| bytes.to_string()));
        call.arg(if self.is_relayed { "1" } else { "" });
        let outputs = |index: &u64, texts: &[&str]| -> Result<_, Error> {
            let json = json(texts)?;
            let compressed = may_compress.then(|| output_texts::compress(&json)).flatten();
            let (kind, message) =
                compressed.map_or_else(|| ("outputs", json.into_bytes()), |bytes| ("compressed_outputs", bytes));
            Ok((kind, format!("{index} {}", texts.len()), message))
        };
        for report in self.events {
            let event = &report.event;
            let (kind, extra, message) = match event {
                JobMessage::Progress { fraction, message } => {
                    let progress = Progress { fraction: *fraction, message: message.clone() };
                    ("progress", json(&progress)?, json(event)?.into_bytes())
                }
                JobMessage::Log { .. } => ("log", String::new(), json(event)?.into_bytes()),
                JobMessage::Output { index, value } => outputs(index, &[value.get()])?,
                JobMessage::Outputs { index, values } => {
                    outputs(index, &values.iter().map(|value| value.get()).collect::<Vec<_>>())?
                }
            };
            call.arg(report.job_id.to_string()).arg(&report.fence.0).arg(kind).arg(extra).arg(message);
        }
        connection.eval(&EVENT, &call).await
    }
}

fn json<T: serde::Serialize + ?Sized>(value: &T) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| Error::Corrupt { key: "an event".to_owned(), why: error.to_string() })
}
