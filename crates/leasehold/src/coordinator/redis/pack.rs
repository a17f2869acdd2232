//! Packs the arguments of an operation: the few forms of `MessagePack` that the server's own reader needs.
//!
//! One packed argument for an operation instead of ten plain ones: the server parses, counts and frees each argument, and
//! that is what a small script spends its time on.

/// A packed array under construction.
#[derive(Clone, Debug)]
pub(super) struct Packed {
    bytes: Vec<u8>,
    items: u8,
}

impl Packed {
    /// An empty array.
    pub(super) fn new() -> Self {
        let mut bytes = Vec::with_capacity(128);
        bytes.push(0x90);
        Self { bytes, items: 0 }
    }

    /// Adds bytes, at most 65,535 of them (names and labels have 765 at most).
    pub(super) fn bytes(mut self, item: &[u8]) -> Self {
        let item = &item[..item.len().min(usize::from(u16::MAX))];
        match u16::try_from(item.len()).unwrap_or(u16::MAX) {
            length @ 0..=31 => self.bytes.push(0xa0 | length.to_be_bytes()[1]),
            length => {
                self.bytes.push(0xda);
                self.bytes.extend(length.to_be_bytes());
            }
        }
        self.bytes.extend(item);
        self.count()
    }

    /// Adds text.
    pub(super) fn text(self, item: &str) -> Self {
        self.bytes(item.as_bytes())
    }

    /// Adds a number. The server's are doubles: exact below 2^53.
    pub(super) fn number(mut self, item: u64) -> Self {
        self.bytes.push(0xcf);
        self.bytes.extend(item.to_be_bytes());
        self.count()
    }

    /// Adds 1 or 0.
    pub(super) fn flag(mut self, item: bool) -> Self {
        self.bytes.push(u8::from(item));
        self.count()
    }

    /// Adds true or false.
    pub(super) fn truth(mut self, item: bool) -> Self {
        self.bytes.push(0xc2 | u8::from(item));
        self.count()
    }

    fn count(mut self) -> Self {
        self.items += 1;
        debug_assert!(self.items <= 15, "the head of a longer array has another form");
        self.bytes[0] = 0x90 | self.items;
        self
    }

    /// The packed array.
    pub(super) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_packed_as_the_format_says() {
        let packed = Packed::new().text("a").number(1).flag(true).bytes(&[7; 40]).finish();
        let mut expected = vec![0x94, 0xa1, b'a', 0xcf, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0xda, 0, 40];
        expected.extend([7; 40]);
        assert_eq!(packed, expected);
    }
}
