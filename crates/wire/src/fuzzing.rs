//! Properties that must hold for any bytes on the wire, for `fuzz/`. Panics if one is violated.

#![doc(hidden)]
#![allow(
    missing_docs,
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    clippy::panic,
    reason = "this is a test with another driver"
)]

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{BODY_BYTES_MAX, Control, Decoder, FrameError, HEADER_BYTES_MAX, Report, encode};

pub fn check(data: &[u8]) {
    let (step, bytes) = data.split_first().map_or((1, data), |(step, bytes)| (usize::from(*step).max(1), bytes));
    both_ends::<Control>(bytes, step);
    both_ends::<Report>(bytes, step);
}

fn both_ends<M: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8], step: usize) {
    let (frames, broken) = decoded::<M>(bytes, step);
    assert_eq!((&frames, broken), (&decoded::<M>(bytes, bytes.len().max(1)).0, decoded::<M>(bytes, 1).1));
    let mut again = Vec::new();
    for (message, body) in &frames {
        assert!(body.len() <= BODY_BYTES_MAX);
        encode(message, body, &mut again).unwrap();
    }
    let (same, broken) = decoded::<M>(&again, step);
    assert!(same == frames && !broken, "{same:?} was {frames:?}");
    // An invalid header in a frame of the right shape.
    if bytes.len() <= HEADER_BYTES_MAX {
        let framed = [&(u32::try_from(bytes.len()).unwrap()).to_le_bytes()[..], &[0; 4], bytes].concat();
        let (frames, broken) = decoded::<M>(&framed, step);
        assert_eq!(frames.len() + usize::from(broken), 1);
    }
}

/// The frames, and whether an invalid one ended the stream.
fn decoded<M: DeserializeOwned>(bytes: &[u8], step: usize) -> (Vec<(M, Vec<u8>)>, bool) {
    let (mut decoder, mut frames) = (Decoder::default(), Vec::new());
    for chunk in bytes.chunks(step) {
        decoder.push(chunk);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(FrameError::TooLarge { .. } | FrameError::Header(_)) => return (frames, true),
            }
        }
    }
    (frames, false)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn every_kept_input_holds() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/frames");
        let seeds: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!seeds.is_empty());
        for seed in seeds {
            println!("{}", seed.display());
            super::check(&std::fs::read(&seed).unwrap());
        }
    }
}
