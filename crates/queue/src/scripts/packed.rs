//! Named arguments: one MessagePack map, which a script reads with `cmsgpack.unpack`.

/// A map under construction.
pub(super) struct Packed {
    bytes: Vec<u8>,
    fields: u16,
}

impl Packed {
    pub(super) fn new() -> Self {
        // A map with a 16-bit number of fields, which is filled in at the end.
        Self { bytes: vec![0xde, 0, 0], fields: 0 }
    }

    /// Adds a text or bytes; Lua does not distinguish them.
    pub(super) fn text(&mut self, name: &str, value: impl AsRef<[u8]>) -> &mut Self {
        self.name(name).put_text(value.as_ref())
    }

    /// Adds a whole number. Lua is exact up to 2^53.
    pub(super) fn number(&mut self, name: &str, value: u64) -> &mut Self {
        self.name(name).put(0xcf, &value.to_be_bytes())
    }

    pub(super) fn float(&mut self, name: &str, value: f64) -> &mut Self {
        self.name(name).put(0xcb, &value.to_be_bytes())
    }

    pub(super) fn flag(&mut self, name: &str, value: bool) -> &mut Self {
        self.name(name).put(if value { 0xc3 } else { 0xc2 }, &[])
    }

    pub(super) fn texts<T: AsRef<[u8]>>(&mut self, name: &str, values: &[T]) -> &mut Self {
        self.name(name).put_array(values.len());
        for value in values {
            self.put_text(value.as_ref());
        }
        self
    }

    pub(super) fn maps(&mut self, name: &str, values: Vec<Self>) -> &mut Self {
        self.name(name).put_array(values.len());
        for value in values {
            self.bytes.extend(value.into_bytes());
        }
        self
    }

    /// Completes the argument.
    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        self.bytes[1..3].copy_from_slice(&self.fields.to_be_bytes());
        self.bytes
    }

    fn name(&mut self, name: &str) -> &mut Self {
        self.fields += 1;
        self.put_text(name.as_bytes())
    }

    fn put_text(&mut self, text: &[u8]) -> &mut Self {
        self.put(0xdb, &length(text.len()));
        self.bytes.extend(text);
        self
    }

    fn put_array(&mut self, values: usize) {
        self.put(0xdd, &length(values));
    }

    fn put(&mut self, kind: u8, bytes: &[u8]) -> &mut Self {
        self.bytes.push(kind);
        self.bytes.extend(bytes);
        self
    }
}

/// The length of a text. Redis accepts no argument of 4 GiB, so no part is longer.
fn length(of: usize) -> [u8; 4] {
    u32::try_from(of).unwrap_or(u32::MAX).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_as_the_format_has_it() {
        let (mut map, mut inner) = (Packed::new(), Packed::new());
        inner.flag("a", true);
        map.text("b", [0, 255]).number("c", 258).float("d", 1.0).texts("e", &["f"]).maps("g", vec![inner]);
        let expected: &[&[u8]] = &[
            b"\xde\x00\x05\xdb\x00\x00\x00\x01b\xdb\x00\x00\x00\x02\x00\xff",
            b"\xdb\x00\x00\x00\x01c\xcf\x00\x00\x00\x00\x00\x00\x01\x02",
            b"\xdb\x00\x00\x00\x01d\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00",
            b"\xdb\x00\x00\x00\x01e\xdd\x00\x00\x00\x01\xdb\x00\x00\x00\x01f",
            b"\xdb\x00\x00\x00\x01g\xdd\x00\x00\x00\x01\xde\x00\x01\xdb\x00\x00\x00\x01a\xc3",
        ];
        assert_eq!(map.into_bytes(), expected.concat());
    }
}
