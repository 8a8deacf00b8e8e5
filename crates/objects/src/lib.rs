//! Objects in S3.
//!
//! [`Objects`] is the client that every part of Stokehold uses, with any S3 server: AWS, MinIO, Garage, or Stokehold's
//! own [`store`], a small durable S3 server for one host. Workers and SDKs never have S3 credentials; they get one
//! [`Presigned`] URL per object, limited to its key, length, checksum and type.
//!
//! No result depends on conditional writes, which some servers ignore: keys are unique per attempt, and Redis decides
//! which attempt produced the result.

mod client;
mod config;
mod error;
pub mod metrics;
pub mod store;
mod stream;

pub use client::{Announced, ObjectMeta, ObjectPage, ObjectSummary, Objects, Presigned};
pub use config::{ObjectsConfig, Secret};
pub use error::Error;
pub use stream::Upload;
