//! What jobs cost: what their attempts took, counted in the commit that ends them, and the machines' bills, of which every micro-dollar
//! is some job's, or is said to be nobody's.

mod spent;

pub use spent::{DAYS_MAX, Spent, day_of};
pub(crate) use spent::{Took, read_spent, spent_of};
