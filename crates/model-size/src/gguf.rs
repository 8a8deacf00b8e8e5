//! Reads the header of a GGUF file (`docs/gguf.md` of ggml): the shape of the model, and its parameters.

use std::collections::BTreeMap;
use std::io::Read;

use crate::config::{HEADS_MAX, HIDDEN_MAX, LAYERS_MAX, TOKENS_MAX, VOCAB_MAX, WIDTH_MAX};
use crate::error::Error;
use crate::shape::{Attention, Mlp, Shape, Windows};

const MAGIC: [u8; 4] = *b"GGUF";

// Bounds of what a header may say. A vocabulary has up to a few hundred thousand entries.
const HEADER_BYTES_MAX: u64 = 256 << 20;
const ENTRIES_MAX: u64 = 1 << 16;
const ITEMS_MAX: u64 = 1 << 24;
const TEXT_BYTES_MAX: u64 = 16 << 20;
const DIMENSIONS_MAX: u32 = 8;

/// A model in a GGUF file.
#[derive(Debug, Clone, PartialEq)]
pub struct Gguf {
    /// `general.architecture`, e.g. `llama`.
    pub family: String,
    /// The shape of the decoder. Its feed-forward network is only right for dense models.
    pub shape: Shape,
    /// Number of parameters in this file.
    pub parameters: u64,
    /// The longest sequence that the model was made for, in tokens.
    pub context: Option<u64>,
    /// Number of files that the model is divided into.
    pub files: u64,
}

/// Reads the header at the start of a file.
///
/// # Errors
/// If it is not a GGUF file of a language model.
pub fn read(file: impl Read) -> Result<Gguf, Error> {
    let mut input = Input(file.take(HEADER_BYTES_MAX));
    let magic = input.bytes::<4>()?;
    let version = input.u32()?;
    if magic != MAGIC || !(2..=3).contains(&version) {
        return Err(Error::invalid("not a GGUF file of version 2 or 3"));
    }
    let (tensors, entries) = (bounded(input.u64()?, ENTRIES_MAX)?, bounded(input.u64()?, ENTRIES_MAX)?);
    let mut header = Header::default();
    for _ in 0..entries {
        let key = input.text()?;
        let kind = input.u32()?;
        header.add(key, input.value(kind)?);
    }
    let mut parameters = 0_u64;
    for _ in 0..tensors {
        input.text()?;
        let dimensions = input.u32()?;
        if dimensions > DIMENSIONS_MAX {
            return Err(Error::invalid("a tensor of the GGUF file has too many dimensions"));
        }
        let mut elements = 1_u64;
        for _ in 0..dimensions {
            elements = elements.saturating_mul(input.u64()?);
        }
        parameters = parameters.saturating_add(elements);
        // Type and offset.
        input.u32()?;
        input.u64()?;
    }
    header.model(parameters)
}

/// A value of the header that matters; others are skipped.
enum Value {
    Number(u64),
    Text(String),
    /// Length and largest number of an array.
    List(u64, u64),
    Skipped,
}

#[derive(Default)]
struct Header {
    numbers: BTreeMap<String, u64>,
    family: Option<String>,
    tokens: Option<u64>,
}

impl Header {
    fn add(&mut self, key: String, value: Value) {
        match value {
            Value::Text(text) if key == "general.architecture" => self.family = Some(text),
            Value::List(length, _) if key == "tokenizer.ggml.tokens" => self.tokens = Some(length),
            Value::Number(number) | Value::List(_, number) => {
                self.numbers.insert(key, number);
            }
            Value::Text(_) | Value::Skipped => {}
        }
    }

    fn model(self, parameters: u64) -> Result<Gguf, Error> {
        let Some(family) = self.family.clone() else {
            return Err(Error::invalid("the GGUF file has no general.architecture; is it a language model?"));
        };
        let get = |name: &str, max: u64| -> Result<Option<u64>, Error> {
            let key = format!("{family}.{name}");
            match self.numbers.get(&key).copied() {
                Some(number) if number > max => Err(Error::invalid(format!("{key} is {number}; the maximum is {max}"))),
                number => Ok(number),
            }
        };
        let need = |name: &str, max: u64| match get(name, max)? {
            None | Some(0) => Err(Error::invalid(format!("{family}.{name} is missing in the GGUF file"))),
            Some(number) => Ok(number),
        };
        let hidden = need("embedding_length", HIDDEN_MAX)?;
        let heads = need("attention.head_count", HEADS_MAX)?;
        let head_dim = match get("attention.key_length", HEADS_MAX)? {
            Some(head_dim) => head_dim,
            None => hidden / heads,
        };
        let vocab = match get("vocab_size", VOCAB_MAX)? {
            Some(vocab) => vocab,
            None => self.tokens.unwrap_or(0).min(VOCAB_MAX),
        };
        let attention = match (get("attention.kv_lora_rank", WIDTH_MAX)?, get("attention.key_length_mla", HEADS_MAX)?) {
            // Files without `key_length_mla` are of a version that caches whole keys and values.
            (Some(kv_rank), Some(key)) => {
                let rope_dim = get("rope.dimension_count", HEADS_MAX)?.unwrap_or(0);
                let value_dim = get("attention.value_length_mla", HEADS_MAX)?.unwrap_or(key);
                Attention::Latent {
                    heads,
                    q_rank: 0,
                    kv_rank,
                    nope_dim: key.saturating_sub(rope_dim),
                    rope_dim,
                    value_dim,
                }
            }
            _ => Attention::Grouped {
                heads,
                kv_heads: get("attention.head_count_kv", heads)?.unwrap_or(heads).max(1),
                head_dim,
                has_qkv_bias: false,
                has_output_bias: false,
                qk_norm: 0,
                extra: 0,
            },
        };
        let intermediate = get("feed_forward_length", WIDTH_MAX)?.or(get("expert_feed_forward_length", WIDTH_MAX)?);
        Ok(Gguf {
            shape: Shape {
                hidden,
                layers: need("block_count", LAYERS_MAX)?,
                vocab,
                is_tied: false,
                attention,
                mlp: Mlp { intermediate: intermediate.unwrap_or(4 * hidden), matrices: 3, has_bias: false },
                experts: None,
                norms: 2,
                has_norm_bias: false,
                // All layers count as whole: which have a window depends on the version of llama.cpp.
                windows: Windows::default(),
            },
            parameters,
            context: get("context_length", TOKENS_MAX)?,
            files: self.numbers.get("split.count").copied().unwrap_or(1).max(1),
            family,
        })
    }
}

fn bounded(number: u64, max: u64) -> Result<u64, Error> {
    if number > max { Err(Error::invalid("the header of the GGUF file is damaged")) } else { Ok(number) }
}

/// Little-endian input.
struct Input<R>(R);

impl<R: Read> Input<R> {
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32, Error> {
        Ok(u32::from_le_bytes(self.bytes()?))
    }

    fn u64(&mut self) -> Result<u64, Error> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }

    fn text(&mut self) -> Result<String, Error> {
        let length = bounded(self.u64()?, TEXT_BYTES_MAX)?;
        let mut bytes = Vec::new();
        (&mut self.0).take(length).read_to_end(&mut bytes)?;
        if bytes.len() as u64 == length {
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        } else {
            Err(Error::Read(std::io::ErrorKind::UnexpectedEof.into()))
        }
    }

    /// Reads a value of this type. Signed and floating numbers and booleans are skipped, except whole numbers of 32 and
    /// 64 bits that are not negative.
    fn value(&mut self, kind: u32) -> Result<Value, Error> {
        Ok(match kind {
            0 | 1 | 7 => {
                self.bytes::<1>()?;
                Value::Skipped
            }
            2 | 3 => Value::Number(u64::from(u16::from_le_bytes(self.bytes()?))),
            4 | 5 => Value::Number(u64::from(self.u32()?)),
            6 => {
                self.u32()?;
                Value::Skipped
            }
            8 => Value::Text(self.text()?),
            9 => {
                let of = self.u32()?;
                let length = bounded(self.u64()?, ITEMS_MAX)?;
                if of == 9 {
                    return Err(Error::invalid("the GGUF file has an array of arrays"));
                }
                let mut most = 0;
                for _ in 0..length {
                    if let Value::Number(number) = self.value(of)? {
                        most = most.max(number);
                    }
                }
                Value::List(length, most)
            }
            10 | 11 => Value::Number(self.u64()?),
            12 => {
                self.u64()?;
                Value::Skipped
            }
            _ => return Err(Error::invalid(format!("the GGUF file has a value of the unknown type {kind}"))),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn text(into: &mut Vec<u8>, text: &str) {
        into.extend((text.len() as u64).to_le_bytes());
        into.extend(text.as_bytes());
    }

    /// A file with one tensor of 286 x 64.
    fn file(numbers: &[(&str, u32)]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(3_u32.to_le_bytes());
        bytes.extend(1_u64.to_le_bytes());
        bytes.extend((numbers.len() as u64 + 2).to_le_bytes());
        text(&mut bytes, "general.architecture");
        bytes.extend(8_u32.to_le_bytes());
        text(&mut bytes, "llama");
        text(&mut bytes, "tokenizer.ggml.tokens");
        bytes.extend(9_u32.to_le_bytes());
        bytes.extend(8_u32.to_le_bytes());
        bytes.extend(2_u64.to_le_bytes());
        text(&mut bytes, "<s>");
        text(&mut bytes, "</s>");
        for (name, number) in numbers {
            text(&mut bytes, &format!("llama.{name}"));
            bytes.extend(4_u32.to_le_bytes());
            bytes.extend(number.to_le_bytes());
        }
        text(&mut bytes, "token_embd.weight");
        bytes.extend(2_u32.to_le_bytes());
        bytes.extend(64_u64.to_le_bytes());
        bytes.extend(286_u64.to_le_bytes());
        bytes.extend(0_u32.to_le_bytes());
        bytes.extend(0_u64.to_le_bytes());
        bytes
    }

    const NUMBERS: [(&str, u32); 5] = [
        ("embedding_length", 64),
        ("block_count", 2),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
        ("context_length", 512),
    ];

    #[test]
    fn the_header_has_the_shape() {
        let model = read(&file(&NUMBERS)[..]).unwrap();
        assert_eq!(
            (model.family.as_str(), model.parameters, model.context, model.files),
            ("llama", 18_304, Some(512), 1)
        );
        assert_eq!((model.shape.vocab, model.shape.layers), (2, 2));
        // Two layers with keys and values of two heads of 16 elements in float16.
        assert_eq!(model.shape.kv_bytes_per_token(crate::KvDtype::Half, 1), 2 * 2 * 2 * 16 * 2);
    }

    #[test]
    fn damaged_files_are_named_as_such() {
        let whole = file(&NUMBERS);
        for length in [0, 3, 20, whole.len() - 1] {
            assert!(matches!(read(&whole[..length]), Err(Error::Read(_))), "{length}");
        }
        assert!(read(&b"PK\x03\x04\x03\0\0\0"[..]).unwrap_err().to_string().contains("not a GGUF file"));
        let mut huge = whole.clone();
        huge[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(read(&huge[..]).unwrap_err().to_string().contains("damaged"));
        let error = read(&file(&NUMBERS[1..])[..]).unwrap_err().to_string();
        assert_eq!(error, "llama.embedding_length is missing in the GGUF file");
    }
}
