//! One key in a backup: a line of JSON that people can read, as can any release that supports the key.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The root that a key belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Root {
    /// The jobs, batches, schedules and deliveries of the tenants of one shard.
    Shard(u8),
    /// The endpoints, tokens, secrets and instances.
    Registry,
}

impl fmt::Display for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shard(number) => write!(f, "shard {number}"),
            Self::Registry => f.write_str("the registry"),
        }
    }
}

/// A key, or a part of a large one. The parts of a key are consecutive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The root of the key.
    pub root: Root,
    /// The name below the root, without the colon.
    pub name: Bytes,
    /// Time at which the key expires, Unix milliseconds; absent if it does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
    /// Whether the entry continues the previous entry of the same key.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_more: bool,
    /// The content.
    #[serde(flatten)]
    pub content: Content,
}

/// The content of a key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "value", rename_all = "snake_case")]
pub enum Content {
    /// A STRING.
    String(Bytes),
    /// A HASH: fields and values.
    Hash(Vec<(Bytes, Bytes)>),
    /// A LIST, from its head.
    List(Vec<Bytes>),
    /// A SET.
    Set(Vec<Bytes>),
    /// A ZSET: members, and scores in Redis's notation.
    SortedSet(Vec<(Bytes, Bytes)>),
    /// A STREAM.
    Stream {
        /// Ids, each with alternating fields and values.
        entries: Vec<(Bytes, Vec<Bytes>)>,
        /// The last id that the stream generated.
        last: Bytes,
    },
}

/// Bytes that are usually text. JSON represents them as text if they are UTF-8, otherwise as `{"hex": "..."}`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(pub Vec<u8>);

impl Bytes {
    /// The text, if the bytes are UTF-8.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl From<&str> for Bytes {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Bytes {
    /// Omits the content, which may be a tenant's input.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl redis::FromRedisValue for Bytes {
    fn from_redis_value(value: redis::Value) -> Result<Self, redis::ParsingError> {
        Vec::from_redis_value(value).map(Self)
    }
}

impl redis::ToRedisArgs for Bytes {
    fn write_redis_args<W: ?Sized + redis::RedisWrite>(&self, out: &mut W) {
        out.write_arg(&self.0);
    }
}

/// The JSON form of [`Bytes`].
#[derive(Deserialize)]
#[serde(untagged)]
enum Written<'a> {
    Text(#[serde(borrow)] std::borrow::Cow<'a, str>),
    Hex { hex: String },
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        match self.text() {
            Some(text) => serializer.serialize_str(text),
            None => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("hex", &hex::encode(&self.0))?;
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Written::deserialize(deserializer)? {
            Written::Text(text) => Ok(Self(text.into_owned().into_bytes())),
            Written::Hex { hex } => hex::decode(hex).map(Self).map_err(serde::de::Error::custom),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(is: &bool) -> bool {
    !*is
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(field: &str, value: &[u8]) -> (Bytes, Bytes) {
        (field.into(), Bytes(value.to_vec()))
    }

    #[test]
    fn every_content_comes_back_from_its_line() {
        let raw = [0xff, 0x00, 0x9f];
        let contents = [
            Content::String(Bytes(raw.to_vec())),
            Content::Hash(vec![pair("state", b"queued"), pair("input", &raw)]),
            Content::List(vec!["a".into(), "".into()]),
            Content::Set(vec!["\u{e9}\"\n".into()]),
            Content::SortedSet(vec![pair("job", b"1.7e+308")]),
            Content::Stream {
                entries: vec![("1-0".into(), vec!["j".into(), Bytes(raw.to_vec())])],
                last: "9-1".into(),
            },
        ];
        for content in contents {
            let entry = Entry {
                root: Root::Shard(7),
                name: "j:1".into(),
                expires_ms: Some(5),
                is_more: true,
                content: content.clone(),
            };
            let line = serde_json::to_string(&entry).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<Entry>(&line).unwrap(), entry, "{line}");
        }
    }

    #[test]
    fn a_line_is_readable() {
        let hash = Content::Hash(vec![pair("state", b"queued")]);
        let entry =
            Entry { root: Root::Registry, name: "tokens".into(), expires_ms: None, is_more: false, content: hash };
        let line = serde_json::to_string(&entry).unwrap();
        assert_eq!(line, r#"{"root":"registry","name":"tokens","type":"hash","value":[["state","queued"]]}"#);
    }
}
