//! Framing: lengths, header, body; bounds on both.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Maximum size of a header. The largest valid one is a `done` that names a thousand files.
pub const HEADER_BYTES_MAX: usize = 1024 * 1024;

/// Maximum size of a body; larger data is sent as a file.
pub const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

const PREFIX_BYTES: usize = 8;

/// Why a byte stream is invalid. The connection cannot be used any more.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// A length exceeds its limit.
    #[error("a frame announces a {what} of {bytes} bytes, more than the limit of {max}")]
    TooLarge {
        /// `header` or `body`.
        what: &'static str,
        /// Announced.
        bytes: usize,
        /// Allowed.
        max: usize,
    },
    /// A header is not a valid message.
    #[error("a frame's header is not a valid message: {0}")]
    Header(#[from] serde_json::Error),
}

/// Appends one frame to `out`.
///
/// # Errors
/// If the header or body exceeds its limit; `out` is unchanged.
pub fn encode<M: Serialize>(message: &M, body: &[u8], out: &mut Vec<u8>) -> Result<(), FrameError> {
    check("body", body.len(), BODY_BYTES_MAX)?;
    let start = out.len();
    out.extend_from_slice(&[0; PREFIX_BYTES]);
    let written = serde_json::to_writer(&mut *out, message)
        .map_err(FrameError::from)
        .and_then(|()| check("header", out.len() - start - PREFIX_BYTES, HEADER_BYTES_MAX));
    let Ok(header_bytes) = written else {
        out.truncate(start);
        return written.map(|_| ());
    };
    out[start..start + 4].copy_from_slice(&header_bytes.to_le_bytes());
    let body_bytes = check("body", body.len(), BODY_BYTES_MAX)?;
    out[start + 4..start + PREFIX_BYTES].copy_from_slice(&body_bytes.to_le_bytes());
    out.extend_from_slice(body);
    Ok(())
}

fn check(what: &'static str, bytes: usize, max: usize) -> Result<u32, FrameError> {
    match u32::try_from(bytes) {
        Ok(len) if bytes <= max => Ok(len),
        _ => Err(FrameError::TooLarge { what, bytes, max }),
    }
}

/// Splits a byte stream into frames.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    start: usize,
}

impl Decoder {
    /// Adds bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete frame, or `None` if more bytes are needed.
    ///
    /// # Errors
    /// If the bytes are not a valid frame; the connection must be closed.
    pub fn next_frame<M: DeserializeOwned>(&mut self) -> Result<Option<(M, Vec<u8>)>, FrameError> {
        let bytes = &self.buffer[self.start..];
        let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX_BYTES>() else {
            return Ok(None);
        };
        let [h0, h1, h2, h3, b0, b1, b2, b3] = *prefix;
        let header_bytes = u32::from_le_bytes([h0, h1, h2, h3]) as usize;
        let body_bytes = u32::from_le_bytes([b0, b1, b2, b3]) as usize;
        check("header", header_bytes, HEADER_BYTES_MAX)?;
        check("body", body_bytes, BODY_BYTES_MAX)?;
        if rest.len() < header_bytes + body_bytes {
            return Ok(None);
        }
        let message = serde_json::from_slice(&rest[..header_bytes])?;
        let body = rest[header_bytes..header_bytes + body_bytes].to_vec();
        self.start += PREFIX_BYTES + header_bytes + body_bytes;
        Ok(Some((message, body)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Control;

    fn frame() -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(&Control::Cancel { run: 7 }, b"body", &mut bytes).expect("encodes");
        bytes
    }

    #[test]
    fn frames_come_out_whole_however_they_arrive() {
        let bytes = [frame(), frame()].concat();
        for step in 1..bytes.len() {
            let mut decoder = Decoder::default();
            let mut seen = Vec::new();
            for chunk in bytes.chunks(step) {
                decoder.push(chunk);
                while let Some(frame) = decoder.next_frame::<Control>().expect("decodes") {
                    seen.push(frame);
                }
            }
            assert_eq!(seen, vec![(Control::Cancel { run: 7 }, b"body".to_vec()); 2], "chunks of {step}");
        }
    }

    #[test]
    fn an_announced_length_over_the_bound_is_refused_before_it_is_awaited() {
        let mut decoder = Decoder::default();
        decoder.push(&[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
        assert!(matches!(decoder.next_frame::<Control>(), Err(FrameError::TooLarge { what: "body", .. })));
    }

    #[test]
    fn a_header_that_is_no_message_is_refused() {
        let mut decoder = Decoder::default();
        decoder.push(&[2, 0, 0, 0, 0, 0, 0, 0, b'{', b'}']);
        assert!(matches!(decoder.next_frame::<Control>(), Err(FrameError::Header(_))));
    }
}
