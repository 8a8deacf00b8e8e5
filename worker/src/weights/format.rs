//! Detects file formats of weights: those that may run code when loaded, and those that must not.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// Extensions of pickle files, which are loaded by `torch.load`, `pickle.load` or `joblib.load`.
const PICKLES: [&str; 9] = ["pt", "pth", "bin", "ckpt", "pkl", "pickle", "joblib", "dill", "sav"];

/// First bytes of compressed pickle files: zlib, gzip, bzip2, xz, lzma, lz4.
const COMPRESSED: [&[u8]; 6] = [b"x", b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"]\0\0", b"\x04\x22\x4d\x18"];

/// Possible first opcodes of a pickle without a protocol number: those that need an empty stack.
const FIRST_OPCODES: &[u8] = b"(FGIJKLMNPSTUVXBCc})].";

/// Maximum header size; the library rejects larger ones.
const SAFETENSORS_HEADER_MAX: u64 = 100_000_000;

/// Maximum size of a zip's central directory.
const ZIP_LIST_MAX: u64 = 64 << 20;

/// Whether loading this file may run code in it: a pickle, or a zip as written by `torch.save`. An ambiguous file
/// counts as a pickle if its extension says so; an unreadable zip always does.
///
/// numpy's object arrays count, but not those in an `.npz`: numpy loads neither unless the handler insists. Tar
/// archives are not inspected.
pub(crate) fn is_pickle(file: &Path, name: &str) -> io::Result<bool> {
    let file = File::open(file)?;
    let mut head = [0; 512];
    let count = file.read_at(&mut head, 0)?;
    let head = &head[..count];
    let extension = Path::new(name).extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
    let extension = extension.as_deref().unwrap_or_default();
    Ok(match head {
        // The length of its header may look like the start of a pickle.
        _ if extension == "safetensors" && safetensors_header(&file).is_ok() => false,
        [0x80, 0..=5, ..] => true,
        [b'P', b'K', 3, 4, ..] => zip_names(&file).is_none_or(|names| names.iter().any(|name| is_named_pickle(name))),
        [0x93, b'N', b'U', b'M', b'P', b'Y', header @ ..] => contains(header, b"|O") || contains(header, b"'O"),
        [first, ..] if PICKLES.contains(&extension) => {
            FIRST_OPCODES.contains(first)
                || (0x80..=0x97).contains(first)
                || COMPRESSED.iter().any(|magic| head.starts_with(magic))
        }
        _ => false,
    })
}

/// Validates a safetensors file.
pub(super) fn check_safetensors(path: &Path) -> Result<(), String> {
    safetensors_header(&File::open(path).map_err(|error| error.to_string())?)
}

#[derive(Deserialize)]
struct Tensor {
    #[serde(rename = "dtype")]
    _dtype: String,
    #[serde(rename = "shape")]
    _shape: Vec<u64>,
    data_offsets: [u64; 2],
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Described {
    Tensor(Tensor),
    Other(IgnoredAny),
}

/// Validates the header: the length of a JSON object, the object, and data of the described size.
fn safetensors_header(file: &File) -> Result<(), String> {
    let message = |error: io::Error| error.to_string();
    let size = file.metadata().map_err(message)?.len();
    let mut length = [0; 8];
    file.read_exact_at(&mut length, 0).map_err(|_| "the file is too short".to_owned())?;
    let length = u64::from_le_bytes(length);
    if length > size - 8 || length > SAFETENSORS_HEADER_MAX {
        return Err(format!("its header claims to be {length} bytes long"));
    }
    let mut header = vec![0; usize::try_from(length).map_err(|error| error.to_string())?];
    file.read_exact_at(&mut header, 8).map_err(message)?;
    let described: BTreeMap<String, Described> =
        serde_json::from_slice(&header).map_err(|error| format!("invalid header: {error}"))?;
    let data_bytes = size - 8 - length;
    for (name, described) in described {
        match described {
            Described::Tensor(Tensor { data_offsets: [start, end], .. }) if start <= end && end <= data_bytes => {}
            Described::Other(_) if name == "__metadata__" => {}
            _ => {
                return Err(format!("{:?} is not a tensor within the file", name.chars().take(80).collect::<String>()));
            }
        }
    }
    Ok(())
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn is_named_pickle(name: &[u8]) -> bool {
    let extension = name.rsplit(|&byte| byte == b'.').next().unwrap_or_default().to_ascii_lowercase();
    PICKLES.iter().any(|pickle| pickle.as_bytes() == extension)
}

/// The file names in a zip, if its central directory is unambiguous.
fn zip_names(file: &File) -> Option<Vec<Vec<u8>>> {
    /// Sizes of the end record without its comment, the zip64 locator, and a directory entry.
    const END: usize = 22;
    const LOCATOR: usize = 20;
    const ENTRY: usize = 46;
    let size = file.metadata().ok()?.len();
    let tail_bytes = size.min((END + LOCATOR + 0xffff) as u64);
    let mut tail = vec![0; tail_bytes as usize];
    file.read_exact_at(&mut tail, size - tail_bytes).ok()?;
    let end = (0..=tail.len().checked_sub(END)?).rev().find(|&at| tail[at..].starts_with(b"PK\x05\x06"))?;
    let end_at = size - (tail.len() - end) as u64;

    let locator = end.checked_sub(LOCATOR).map(|at| &tail[at..end]).filter(|found| found.starts_with(b"PK\x06\x07"));
    let (list_at, list_bytes, list_end) = match locator {
        None => (u64::from(u32_at(&tail, end + 16)?), u64::from(u32_at(&tail, end + 12)?), end_at),
        Some(locator) => {
            let record_at = u64_at(locator, 8)?;
            let mut record = [0; 56];
            file.read_exact_at(&mut record, record_at).ok()?;
            record.starts_with(b"PK\x06\x06").then_some(())?;
            (u64_at(&record, 48)?, u64_at(&record, 40)?, record_at)
        }
    };
    // Otherwise, programs may disagree on where it starts.
    (list_at.checked_add(list_bytes)? == list_end && list_bytes <= ZIP_LIST_MAX).then_some(())?;
    let mut list = vec![0; usize::try_from(list_bytes).ok()?];
    file.read_exact_at(&mut list, list_at).ok()?;
    let (mut names, mut at) = (Vec::new(), 0);
    while at < list.len() {
        list[at..].starts_with(b"PK\x01\x02").then_some(())?;
        let [name, extra, comment] = [u16_at(&list, at + 28)?, u16_at(&list, at + 30)?, u16_at(&list, at + 32)?];
        names.push(list.get(at + ENTRY..at + ENTRY + usize::from(name))?.to_vec());
        at += ENTRY + usize::from(name) + usize::from(extra) + usize::from(comment);
    }
    Some(names)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn seed(content: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        file
    }

    fn is_like_a_pickle(name: &str, content: &[u8]) -> bool {
        is_pickle(seed(content).path(), name).unwrap()
    }

    /// A zip of empty files in the form that `torch.save` writes: stored, without a comment.
    fn zip(names: &[&str]) -> Vec<u8> {
        let (mut bytes, mut list) = (Vec::new(), Vec::new());
        for name in names {
            let (at, length) = (bytes.len() as u32, (name.len() as u16).to_le_bytes());
            bytes.extend([&b"PK\x03\x04"[..], &[0; 22], &length, &[0; 2], name.as_bytes()].concat());
            let entry = [&b"PK\x01\x02"[..], &[0; 24], &length, &[0; 12], &at.to_le_bytes(), name.as_bytes()];
            list.extend(entry.concat());
        }
        let (at, length, count) = (bytes.len() as u32, list.len() as u32, (names.len() as u16).to_le_bytes());
        let end = [&b"PK\x05\x06\0\0\0\0"[..], &count, &count, &length.to_le_bytes(), &at.to_le_bytes(), &[0; 2]];
        [bytes, list, end.concat()].concat()
    }

    fn safetensors(header: &str, data_bytes: usize) -> Vec<u8> {
        [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &vec![0; data_bytes]].concat()
    }

    const HEADER: &str = r#"{"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;

    #[test]
    fn what_begins_like_a_pickle_is_one_whatever_its_name() {
        for name in ["x.pt", "x.bin", "x.txt", "x", "x.safetensors"] {
            assert!(is_like_a_pickle(name, b"\x80\x02}q\x00."), "{name}");
            assert!(is_like_a_pickle(name, b"\x80\x05\x95"), "{name}");
        }
    }

    #[test]
    fn without_a_protocols_number_the_name_decides() {
        for content in [&b"cos\nsystem\n(S'id'\ntR."[..], b"(lp0\n.", b"\x1f\x8b\x08", b"x\x9c", b"BZh9", b"\x8c\x02os"]
        {
            assert!(is_like_a_pickle("model.BIN", content) && is_like_a_pickle("m.joblib", content), "{content:?}");
            assert!(!is_like_a_pickle("vocab.txt", content), "{content:?}");
        }
        // Files of CTranslate2 and ggml, and an empty one.
        assert!(!is_like_a_pickle("model.bin", b"\x06\0\0\0\x10\0Whisper"));
        assert!(!is_like_a_pickle("model.bin", b"lmgg\0\0\0\0"));
        assert!(!is_like_a_pickle("model.bin", b""));
        assert!(!is_like_a_pickle("model.gguf", b"GGUF\x03\0\0\0"));
        assert!(!is_like_a_pickle("model.onnx", b"\x08\x07\x12\x07pytorch"));
    }

    #[test]
    fn a_zip_is_one_if_it_holds_one_or_cannot_be_read() {
        assert!(is_like_a_pickle("m.pt", &zip(&["archive/data.pkl", "archive/data/0", "archive/version"])));
        assert!(is_like_a_pickle("m.zip", &zip(&["a", "b/constants.PKL"])));
        assert!(!is_like_a_pickle("m.npz", &zip(&["weights.npy"])));
        assert!(!is_like_a_pickle("m.keras", &zip(&["config.json", "model.weights.h5"])));
        let whole = zip(&["config.json"]);
        assert!(is_like_a_pickle("m.keras", &whole[..whole.len() - 1]), "its end is cut off");
        assert!(is_like_a_pickle("m.keras", &[&b"PK\x03\x04"[..], &whole].concat()), "its list is not where it says");
    }

    #[test]
    fn arrays_of_objects_are_pickles_and_arrays_of_numbers_are_not() {
        let array = |descr: &str| [b"\x93NUMPY\x01\0\x76\0", descr.as_bytes()].concat();
        assert!(!is_like_a_pickle("m.npy", &array("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }")));
        assert!(is_like_a_pickle("m.npy", &array("{'descr': '|O', 'fortran_order': False, 'shape': (3,), }")));
    }

    #[test]
    fn safetensors_are_checked() {
        let check = |content: &[u8]| check_safetensors(seed(content).path());
        check(&safetensors(HEADER, 4)).unwrap();
        assert!(check(&safetensors(HEADER, 3)).unwrap_err().contains("\"w\" is not a tensor within"));
        assert!(check(b"short").unwrap_err().contains("too short"));
        assert!(check(&safetensors("{]", 0)).unwrap_err().contains("invalid header"));
        assert!(check(&safetensors(r#"{"w":{"dtype":1}}"#, 0)).unwrap_err().contains("\"w\""));
        assert!(check(b"version https://git-lfs.github.com/spec/v1\n").unwrap_err().contains("bytes long"));
        // Its length field, 640, starts like a pickle.
        let long = safetensors(&format!("{HEADER:640}"), 4);
        assert!(
            long.starts_with(&[0x80, 2])
                && !is_like_a_pickle("m.safetensors", &long)
                && is_like_a_pickle("m.pt", &long)
        );
    }
}
