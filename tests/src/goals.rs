//! Goals of a benchmark, and its results.
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use serde_json::{Value, json};

/// A measurement, and its limit.
#[derive(Debug)]
pub struct Goal {
    /// Name of the measurement.
    pub name: &'static str,
    /// The limit, a minimum or a maximum.
    pub limit: f64,
    /// Whether the limit is a minimum.
    pub is_floor: bool,
    /// The measured value: the median of some rounds.
    pub reached: f64,
}

impl Goal {
    /// Whether the goal is reached.
    #[must_use]
    pub fn is_met(&self) -> bool {
        if self.is_floor { self.reached >= self.limit } else { self.reached <= self.limit }
    }

    fn json(&self) -> Value {
        json!({"goal": self.name, "limit": self.limit, "reached": self.reached, "met": self.is_met()})
    }
}

/// Prints the goals, with `as_json` as one JSON document.
///
/// # Errors
/// The goals that were missed.
pub fn report(goals: &[Goal], as_json: bool) -> Result<(), String> {
    if as_json {
        println!("{:#}", Value::from(goals.iter().map(Goal::json).collect::<Vec<_>>()));
    } else {
        println!("{:<58} {:>8} {:>8}  met", "goal", "limit", "reached");
        for goal in goals {
            let (sign, met) = (if goal.is_floor { ">=" } else { "<=" }, if goal.is_met() { "yes" } else { "no" });
            println!("{:<58} {sign} {:>5.2} {:>8.3}  {met}", goal.name, goal.limit, goal.reached);
        }
    }
    let missed: Vec<&str> = goals.iter().filter(|goal| !goal.is_met()).map(|goal| goal.name).collect();
    if missed.is_empty() { Ok(()) } else { Err(format!("missed: {}", missed.join("; "))) }
}

/// The median.
///
/// # Panics
/// If there are no values.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
