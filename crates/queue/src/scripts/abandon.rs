use super::ABANDON;
use crate::connection::Connection;
use crate::error::Error;
use crate::keys::Keys;

/// Number of leases that one call checks.
const PAGE: usize = 500;

/// Calls of `abandon.lua` that cover all leases.
pub(crate) struct Abandon<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) worker_id: &'a str,
}

impl Abandon<'_> {
    pub(crate) async fn run(&self, connection: &Connection) -> Result<u32, Error> {
        let (mut cursor, mut ended) = (0_u64, 0);
        loop {
            let mut scan = redis::cmd("ZSCAN");
            scan.arg(self.keys.leases()).arg(cursor).arg("COUNT").arg(PAGE);
            let (next, page): (u64, Vec<(String, f64)>) =
                scan.query_async(&mut connection.redis()).await.map_err(Error::redis("scan the leases"))?;
            if !page.is_empty() {
                let mut call = ABANDON.call(&[self.keys.root()]);
                call.arg(self.worker_id);
                page.iter().for_each(|(id, _)| {
                    call.arg(id);
                });
                let count: u32 = connection.eval(&ABANDON, &call).await?;
                ended += count;
            }
            cursor = next;
            if cursor == 0 {
                return Ok(ended);
            }
        }
    }
}
