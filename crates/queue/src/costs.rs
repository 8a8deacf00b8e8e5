//! The cost of jobs. The use of their attempts is counted in the commit that ends them. Every micro-dollar of the
//! instances' bills is assigned to a job or reported as unassigned.
//!
//! Each day is computed separately, so the cost of a day is the same in every report. Jobs pay for the time in which
//! they ran and loaded. The other costs of an instance (boot, idle, stopped, disk, traffic) are spread over what it
//! served on that day, in proportion to the cost of running. The costs of an instance that served nothing are spread
//! over what all instances of its provider served on that day.

mod bill;
mod forecast;
mod job;
mod reckon;
mod report;
pub(crate) mod spent;
mod split;
#[cfg(test)]
mod tests;
mod words;

pub use bill::{BillState, BilledDay, Charged, DayBill, MachineBill};
pub use forecast::{Estimate, FORECAST_DAYS, Forecast, Unknown, forecast};
pub use job::{Factors, JobCost};
pub use reckon::{Cost, Line, Who, reckon};
pub use report::{By, Group, Hosted, Instead, Report, Row, report};
pub(crate) use spent::read_spent;
pub use spent::{DAYS_MAX, Spent, day_of};
pub use words::dollars;
