//! Packs the arguments of an operation: the few forms of `MessagePack` that the server's own reader needs.
//!
//! One packed argument for an operation instead of ten plain ones: the server parses, counts and frees each argument, and
//! that is what a small script spends its time on. The items follow one another without the head of an array: so the server's
//! reader gives them as they are, and makes no table that grows item by item.

/// Packed items, one after another.
#[derive(Clone, Debug)]
pub(super) struct Packed(Vec<u8>);

impl Packed {
    /// Nothing yet.
    pub(super) fn new() -> Self {
        Self(Vec::with_capacity(128))
    }

    /// Adds bytes, at most 65,535 of them (names and labels have 765 at most).
    pub(super) fn bytes(mut self, item: &[u8]) -> Self {
        let item = &item[..item.len().min(usize::from(u16::MAX))];
        match u16::try_from(item.len()).unwrap_or(u16::MAX) {
            length @ 0..=31 => self.0.push(0xa0 | length.to_be_bytes()[1]),
            length => {
                self.0.push(0xda);
                self.0.extend(length.to_be_bytes());
            }
        }
        self.0.extend(item);
        self
    }

    /// Adds text.
    pub(super) fn text(self, item: &str) -> Self {
        self.bytes(item.as_bytes())
    }

    /// Adds a number. The server's are doubles: exact below 2^53.
    pub(super) fn number(mut self, item: u64) -> Self {
        self.0.push(0xcf);
        self.0.extend(item.to_be_bytes());
        self
    }

    /// Adds 1 or 0.
    pub(super) fn flag(mut self, item: bool) -> Self {
        self.0.push(u8::from(item));
        self
    }

    /// Adds true or false.
    pub(super) fn truth(mut self, item: bool) -> Self {
        self.0.push(0xc2 | u8::from(item));
        self
    }

    /// The items.
    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_packed_as_the_format_says() {
        let packed = Packed::new().text("a").number(1).flag(true).bytes(&[7; 40]).finish();
        let mut expected = vec![0xa1, b'a', 0xcf, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0xda, 0, 40];
        expected.extend([7; 40]);
        assert_eq!(packed, expected);
    }
}
