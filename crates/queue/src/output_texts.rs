//! The texts of a job's stored outputs: a JSON array, compressed with zstd if that saves memory. The chunks of a language
//! model's answer repeat one another and take a tenth of their size.

/// Minimum size of an array that is compressed, bytes.
const BYTES_MIN: usize = 1 << 10;

/// Maximum size of an array that is compressed, and of one that is decompressed, bytes.
const BYTES_MAX: usize = 1 << 20;

/// The fastest of zstd's regular levels.
const LEVEL: i32 = 1;

/// The compressed array; `None` if it is small, or does not become a quarter smaller.
pub(crate) fn compress(json: &str) -> Option<Vec<u8>> {
    if !(BYTES_MIN..=BYTES_MAX).contains(&json.len()) {
        return None;
    }
    zstd::bulk::compress(json.as_bytes(), LEVEL).ok().filter(|bytes| bytes.len() <= json.len() / 4 * 3)
}

/// The array that was compressed.
///
/// # Errors
/// If it is not one, or larger than [`compress`] accepts.
pub(crate) fn decompress(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    zstd::bulk::decompress(bytes, BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn chunks_of_an_answer_take_a_tenth() {
        let chunk = |n: u32| {
            format!(
                r#"{{"id":"chatcmpl-7pTz","object":"chat.completion.chunk","created":1764400000,"model":"chat","choices":[{{"index":0,"delta":{{"content":" {}"}},"finish_reason":null}}]}}"#,
                n.wrapping_mul(2_654_435_761) >> 12
            )
        };
        let json = serde_json::to_string(&(0..200).map(chunk).collect::<Vec<_>>()).unwrap();
        let bytes = compress(&json).unwrap();
        assert!(bytes.len() * 10 <= json.len(), "{} of {} bytes", bytes.len(), json.len());
        assert_eq!(decompress(&bytes).unwrap(), json.as_bytes());
    }

    #[test]
    fn what_would_not_become_smaller_is_stored_as_it_is() {
        assert_eq!(compress("[\"a\",\"a\",\"a\"]"), None, "small");
        let mut rng = StdRng::seed_from_u64(7);
        let noise: String = (0..4_000).map(|_| rng.random_range('#'..='~')).collect();
        assert_eq!(compress(&noise), None, "without repetitions");
        assert_eq!(compress(&"a".repeat(BYTES_MAX + 1)), None, "too large to be decompressed");
    }

    #[test]
    fn a_small_entry_cannot_become_a_large_array() {
        let bomb = zstd::bulk::compress(&vec![b'a'; BYTES_MAX + 1], LEVEL).unwrap();
        assert!(decompress(&bomb).is_err());
        assert!(decompress(b"[]").is_err());
    }
}
