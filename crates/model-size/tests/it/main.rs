//! Parameters and memory of well-known models against published figures. The files in `tests/configs` are written from
//! the models' public `config.json`, with the members that matter.

mod configs;
mod published;
