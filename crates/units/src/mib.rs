//! GPU memory.

use std::iter::Sum;
use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

/// An amount of GPU memory in MiB. Arithmetic saturates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Mib(pub u64);

impl Mib {
    /// No memory.
    pub const ZERO: Self = Self(0);

    /// The amount in GiB, rounded to the nearest MiB; none if it is negative.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
    #[must_use]
    pub fn from_gib(gib: f64) -> Self {
        Self((gib * 1_024.0).round() as u64)
    }

    /// The amount in GiB.
    #[expect(clippy::cast_precision_loss, reason = "far less than 2^53")]
    #[must_use]
    pub fn gib(self) -> f64 {
        self.0 as f64 / 1_024.0
    }
}

impl Add for Mib {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Mib {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Mib {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Add::add)
    }
}

/// For `#[serde(with)]`: an amount that JSON or TOML has in GiB.
pub mod gib {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Mib;

    /// Writes GiB.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(amount: &Mib, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(amount.gib())
    }

    /// Reads GiB.
    ///
    /// # Errors
    /// The value is not a number.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Mib, D::Error> {
        f64::deserialize(deserializer).map(Mib::from_gib)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Offer {
        #[serde(rename = "vram_gib", with = "gib")]
        vram: Mib,
    }

    #[test]
    fn json_has_gib_and_round_trips() {
        let offer = serde_json::from_str::<Offer>(r#"{"vram_gib":24}"#).ok();
        assert_eq!(offer, Some(Offer { vram: Mib(24_576) }));
        for mib in (0..200_000).step_by(7) {
            let json = serde_json::to_string(&Offer { vram: Mib(mib) }).unwrap_or_default();
            assert_eq!(serde_json::from_str::<Offer>(&json).ok(), Some(Offer { vram: Mib(mib) }), "{json}");
        }
        assert_eq!(
            (Mib::from_gib(-1.0), Mib::from_gib(f64::NAN), Mib(u64::MAX) + Mib(1)),
            (Mib(0), Mib(0), Mib(u64::MAX))
        );
    }
}
