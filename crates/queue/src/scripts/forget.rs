use super::FORGET;
use crate::connection::Connection;
use crate::error::Error;
use crate::id::JobId;
use crate::keys::Keys;

/// Call of `forget.lua`.
pub(crate) struct Forget<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) ids: &'a [JobId],
}

impl Forget<'_> {
    /// Returns the number of jobs that existed and had ended.
    pub(crate) async fn run(&self, connection: &Connection) -> Result<u32, Error> {
        let mut call = FORGET.call(&[self.keys.root()]);
        for id in self.ids {
            call.arg(id.to_string());
        }
        let (forgotten,): (u32,) = connection.eval(&FORGET, &call).await?;
        Ok(forgotten)
    }
}
