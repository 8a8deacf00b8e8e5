//! Money.

use std::fmt::{self, Display, Formatter};
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub, SubAssign};

use serde::{Deserialize, Serialize};

/// An amount of money, or a price per hour, in millionths of a US dollar. Arithmetic saturates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UsdMicros(i64);

impl UsdMicros {
    /// No money.
    pub const ZERO: Self = Self(0);

    /// The amount in dollars, rounded to the nearest millionth.
    #[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
    #[must_use]
    pub fn from_usd(usd: f64) -> Self {
        Self((usd * 1e6).round() as i64)
    }

    /// The amount in dollars, rounded up to the next millionth.
    #[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
    #[must_use]
    pub fn from_usd_up(usd: f64) -> Self {
        Self((usd * 1e6).ceil() as i64)
    }

    /// The amount in dollars.
    #[expect(clippy::cast_precision_loss, reason = "far less than 2^53")]
    #[must_use]
    pub fn usd(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The amount in millionths of a dollar; 0 for a negative one.
    #[must_use]
    pub fn micros(self) -> u64 {
        u64::try_from(self.0).unwrap_or(0)
    }

    /// The amount, or none if it is negative.
    #[must_use]
    pub fn at_least_zero(self) -> Self {
        self.max(Self::ZERO)
    }
}

/// From millionths of a dollar.
impl From<u64> for UsdMicros {
    fn from(micros: u64) -> Self {
        Self(i64::try_from(micros).unwrap_or(i64::MAX))
    }
}

impl Add for UsdMicros {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for UsdMicros {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl AddAssign for UsdMicros {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for UsdMicros {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Sum for UsdMicros {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Add::add)
    }
}

/// The amount in dollars without a sign for the currency; cents unless the format asks for another precision.
impl Display for UsdMicros {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:.*}", f.precision().unwrap_or(2), self.usd())
    }
}

/// For `#[serde(with)]`: an amount that JSON or TOML has in dollars.
pub mod usd {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::UsdMicros;

    /// Writes dollars.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(amount: &UsdMicros, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(amount.usd())
    }

    /// Reads dollars.
    ///
    /// # Errors
    /// The value is not a number.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<UsdMicros, D::Error> {
        f64::deserialize(deserializer).map(UsdMicros::from_usd)
    }

    /// The same for an amount that may be absent.
    pub mod option {
        use serde::{Deserialize, Deserializer, Serialize, Serializer};

        use super::UsdMicros;

        /// Writes dollars.
        ///
        /// # Errors
        /// Those of the serializer.
        pub fn serialize<S: Serializer>(amount: &Option<UsdMicros>, serializer: S) -> Result<S::Ok, S::Error> {
            amount.map(UsdMicros::usd).serialize(serializer)
        }

        /// Reads dollars.
        ///
        /// # Errors
        /// The value is neither a number nor null.
        pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<UsdMicros>, D::Error> {
            Ok(Option::<f64>::deserialize(deserializer)?.map(UsdMicros::from_usd))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Offer {
        #[serde(with = "usd")]
        usd_per_hour: UsdMicros,
        #[serde(default, with = "usd::option")]
        min_bid_usd_per_hour: Option<UsdMicros>,
    }

    #[test]
    fn json_has_dollars_and_round_trips() {
        let offer: Result<Offer, _> = serde_json::from_str(r#"{"usd_per_hour":0.35,"min_bid_usd_per_hour":0.1234567}"#);
        let expected = Offer { usd_per_hour: 350_000.into(), min_bid_usd_per_hour: Some(123_457.into()) };
        assert_eq!(offer.ok(), Some(expected));
        for micros in (0..2_000_000).step_by(7) {
            let offer = Offer { usd_per_hour: UsdMicros::from(micros), min_bid_usd_per_hour: None };
            let json = serde_json::to_string(&offer).unwrap_or_default();
            assert_eq!(serde_json::from_str::<Offer>(&json).ok(), Some(offer), "{json}");
        }
    }

    #[test]
    fn amounts_round_saturate_and_print() {
        assert_eq!(UsdMicros::from_usd_up(0.200_000_4), 200_001.into());
        assert_eq!(UsdMicros::from_usd(f64::MAX) + 1.into(), UsdMicros(i64::MAX));
        assert_eq!((UsdMicros::from_usd(-0.2).micros(), UsdMicros::from_usd(f64::NAN)), (0, UsdMicros::ZERO));
        assert_eq!(format!("${} ${:.3}", UsdMicros::from_usd(10.5), UsdMicros::from(1_500)), "$10.50 $0.002");
    }
}
