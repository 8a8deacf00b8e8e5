//! Statistics learned from successive observations. Pure: time is data.

mod curve;
mod endpoint;
mod group;
mod level;
mod machines;
mod means;
mod observer;
mod steer;

pub use level::Level;
pub use observer::Observer;
