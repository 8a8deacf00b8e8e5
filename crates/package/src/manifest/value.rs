//! Values of `stoke.toml` with bounds.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// An integer within bounds.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(transparent)]
pub(crate) struct Whole<const MIN: i64, const MAX: i64>(i64);

impl<'de, const MIN: i64, const MAX: i64> Deserialize<'de> for Whole<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = i64::deserialize(deserializer)?;
        if (MIN..=MAX).contains(&number) {
            Ok(Self(number))
        } else {
            Err(D::Error::custom(format_args!("use a whole number from {MIN} to {MAX}")))
        }
    }
}

/// A number within bounds.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(transparent)]
pub(crate) struct Decimal<const MIN: i32, const MAX: i32>(f64);

impl<'de, const MIN: i32, const MAX: i32> Deserialize<'de> for Decimal<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = f64::deserialize(deserializer)?;
        if (f64::from(MIN)..=f64::from(MAX)).contains(&number) {
            Ok(Self(number))
        } else {
            Err(D::Error::custom(format_args!("use a number from {MIN} to {MAX}")))
        }
    }
}

/// A version with two numbers, e.g. `"8.0"`.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub(crate) struct TwoNumbers(String);

impl<'de> Deserialize<'de> for TwoNumbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.split_once('.').is_some_and(|(a, b)| a.parse::<u16>().is_ok() && b.parse::<u16>().is_ok()) {
            Ok(Self(text))
        } else {
            Err(D::Error::custom("use a string of two numbers such as \"8.0\""))
        }
    }
}

/// A Python version, e.g. `"3.11"`.
#[derive(Debug, Clone)]
pub(crate) struct PythonVersion(pub(crate) String);

impl<'de> Deserialize<'de> for PythonVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.strip_prefix("3.").is_some_and(|minor| minor.parse::<u8>().is_ok()) {
            Ok(Self(text))
        } else {
            Err(D::Error::custom("use a Python version such as \"3.11\""))
        }
    }
}

/// A path of a URL, e.g. `"/health"`.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub(crate) struct UrlPath(pub(crate) String);

impl<'de> Deserialize<'de> for UrlPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.starts_with('/') && text.bytes().all(|byte| byte > b' ' && byte < 0x7f) {
            Ok(Self(text))
        } else {
            Err(D::Error::custom("use a path such as \"/v1/models\""))
        }
    }
}
