//! What jobs cost: what their attempts took, counted in the commit that ends them, and the machines' bills, of which every micro-dollar
//! is some job's, or is said to be nobody's.
//!
//! A day is reckoned by itself, so what a day has cost is the same in every report. The machine's time that jobs ran and loaded in is
//! theirs by what they took. What it cost beside that (boot, idle, stopped, disk, traffic) is spread over what it served on that day, in
//! proportion to what running cost; of a machine that served nothing, over what all machines of its provider served on that day.

mod bill;
mod forecast;
mod job;
mod reckon;
mod report;
mod spent;
mod split;
#[cfg(test)]
mod tests;
mod words;

pub use bill::{BillState, BilledDay, Charged, DayBill, MachineBill};
pub use forecast::{Estimate, FORECAST_DAYS, Forecast, Unknown, forecast};
pub use job::{Factors, JobCost};
pub use reckon::{Cost, Line, Who, reckon};
pub use report::{By, Group, Hosted, Instead, Report, Row, report};
pub use spent::{DAYS_MAX, Spent, day_of};
pub(crate) use spent::{Took, read_spent, spent_of};
pub use words::dollars;
