use super::RELEASE;
use super::finish::answer;
use crate::clock::Clock;
use crate::connection::Connection;
use crate::error::Error;
use crate::gateway::{FinishAnswer, LeaseRef};
use crate::keys::Keys;

/// Call of `release.lua`.
pub(crate) struct Release<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) clock: &'a Clock,
    pub(crate) leases: &'a [LeaseRef],
}

impl Release<'_> {
    pub(crate) async fn run(&self, connection: &Connection) -> Result<Vec<FinishAnswer>, Error> {
        let mut call = RELEASE.call(&[self.keys.root()]);
        call.arg(self.clock.script_arg());
        for lease in self.leases {
            call.arg(lease.job_id.to_string()).arg(&lease.fence.0);
        }
        let reply: Vec<String> = connection.eval(&RELEASE, &call).await?;
        reply.iter().map(|word| answer(&RELEASE, word)).collect()
    }
}
