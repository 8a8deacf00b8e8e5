//! The API over a real Redis and a real object store, spoken to over sockets.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod access;
mod admission;
mod archives;
mod auth;
mod bad_input;
mod batches;
mod boot;
mod budgets;
mod cards;
mod connections;
mod costs;
mod dashboard;
mod events;
mod feedback;
mod history;
mod large_inputs;
mod matrix;
mod openapi;
mod outages;
mod pipelines;
mod quarantine;
mod redrive;
mod rented;
mod requirements;
mod routes;
mod schedules;
mod secrets;
mod stack;
mod traces;
mod versions;
mod waiting;
mod webhooks;
mod weights;
mod wire;
mod worker;
