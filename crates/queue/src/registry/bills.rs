//! The bills of instances, written by the leading autoscaler.

use std::collections::{BTreeMap, HashMap};

use redis::AsyncCommands;

use super::{Registry, Term, from_json, readable, to_json};
use crate::costs::MachineBill;
use crate::error::Error;

/// Number of bills per read, so that Redis serves other clients in between.
const PAGE: usize = 1_000;

impl Registry {
    /// The bills that are open or not settled yet, by instance.
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

    /// The bill of an instance.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn bill(&self, machine: &str) -> Result<Option<MachineBill>, Error> {
        let step = "read an instance's bill";
        let text: Option<String> =
            self.connection.redis().hget(self.keys.bills(), machine).await.map_err(Error::redis(step))?;
        text.map(|text| from_json(step, &text)).transpose()
    }

    /// Stores the bill of an instance. `false`: another autoscaler leads now, and nothing was written.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; retry.
    pub async fn put_bill(&self, term: Term, bill: &MachineBill) -> Result<bool, Error> {
        let text = to_json("store an instance's bill", bill)?;
        self.lead_write(term, &self.keys.bills(), &bill.machine, &text).await
    }

    /// Deletes the bill of an instance that was never created, or whose bill is settled.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; retry.
    pub async fn drop_bill(&self, term: Term, machine: &str) -> Result<bool, Error> {
        self.lead_write(term, &self.keys.bills(), machine, "").await
    }
}
