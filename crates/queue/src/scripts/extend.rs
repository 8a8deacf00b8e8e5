use super::{EXTEND, unexpected};
use crate::clock::Clock;
use crate::connection::Connection;
use crate::error::Error;
use crate::gateway::{ExtendAnswer, LeaseRef};
use crate::keys::Keys;

/// Call of `extend.lua`.
pub(crate) struct Extend<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) clock: &'a Clock,
    pub(crate) lease_ms: u64,
    pub(crate) leases: &'a [LeaseRef],
}

impl Extend<'_> {
    pub(crate) async fn run(&self, connection: &Connection) -> Result<Vec<ExtendAnswer>, Error> {
        let mut call = EXTEND.call(&[self.keys.root()]);
        call.arg(self.clock.script_arg()).arg(self.lease_ms);
        for lease in self.leases {
            call.arg(lease.job_id.to_string()).arg(&lease.fence.0);
        }
        let reply: Vec<String> = connection.eval(&EXTEND, &call).await?;
        reply
            .iter()
            .map(|word| match word.as_str() {
                "held" => Ok(ExtendAnswer::Held),
                "lost" => Ok(ExtendAnswer::Lost),
                other => Err(unexpected(&EXTEND, &other)),
            })
            .collect()
    }
}
