//! What machines cost, as the autoscaler that leads writes it down.

use std::collections::{BTreeMap, HashMap};

use redis::AsyncCommands;

use super::{Registry, Term, from_json, readable, to_json};
use crate::costs::MachineBill;
use crate::error::Error;

/// Bills asked for at a time, so that Redis serves others in between.
const PAGE: usize = 1_000;

impl Registry {
    /// The machines' bills, by machine: those that are open, and those that are not settled yet.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn bills(&self) -> Result<BTreeMap<String, MachineBill>, Error> {
        let (step, mut redis) = ("read the bills of the instances", self.connection.redis());
        let (mut bills, mut cursor) = (BTreeMap::new(), 0_u64);
        loop {
            let (next, page): (u64, HashMap<String, String>) = redis::cmd("HSCAN")
                .arg(self.keys.bills())
                .arg(cursor)
                .arg("COUNT")
                .arg(PAGE)
                .query_async(&mut redis)
                .await
                .map_err(Error::redis(step))?;
            for (machine, text) in page {
                if let Some(bill) = readable(step, &text) {
                    bills.insert(machine, bill);
                }
            }
            cursor = next;
            if cursor == 0 {
                return Ok(bills);
            }
        }
    }

    /// A machine's bill.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn bill(&self, machine: &str) -> Result<Option<MachineBill>, Error> {
        let step = "read an instance's bill";
        let text: Option<String> =
            self.connection.redis().hget(self.keys.bills(), machine).await.map_err(Error::redis(step))?;
        text.map(|text| from_json(step, &text)).transpose()
    }

    /// Writes a machine's bill. `false`: another one leads by now, and nothing was written.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: unknown, repeat.
    pub async fn put_bill(&self, term: Term, bill: &MachineBill) -> Result<bool, Error> {
        let text = to_json("store an instance's bill", bill)?;
        self.lead_write(term, &self.keys.bills(), &bill.machine, &text).await
    }

    /// Strikes off the bill of a machine that was never made, or whose bill is settled.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: unknown, repeat.
    pub async fn drop_bill(&self, term: Term, machine: &str) -> Result<bool, Error> {
        self.lead_write(term, &self.keys.bills(), machine, "").await
    }
}
