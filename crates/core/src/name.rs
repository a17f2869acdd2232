//! Names: what a resource or a namespace may be called, and the one way a name is written into an engine.
//!
//! A resource name is whatever the user's world calls the thing: `orders/42`, `backup of db-1`, an emoji. We accept any
//! UTF-8 of 1–255 bytes without NUL (a NUL can live neither in an environment variable nor in PostgreSQL text) and
//! never splice it into SQL, Lua or keys: engines store [`Resource::encode`], which has no separators, braces, wildcards
//! or control characters, is reversible, and never makes one name a path-prefix of another.

use alloc::{borrow::ToOwned, string::String, sync::Arc};
use core::fmt::{self, Write as _};

use crate::error::Invalid;

/// Longest name in bytes, resource and label alike (ours: fits every engine's limits even when fully encoded).
pub const MAX_NAME_BYTES: usize = 255;
/// Longest namespace in bytes (ours: short enough to prefix any engine's key or table column).
pub const MAX_NAMESPACE_BYTES: usize = 63;

/// The named thing that a lease protects.
///
/// 1–255 bytes of UTF-8 without NUL. [`fmt::Display`] escapes what could deceive a reader's terminal (control and
/// bidirectional characters); [`Resource::as_str`] gives the name as it is.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resource(Arc<str>);

impl Resource {
    /// Checks and takes a name.
    ///
    /// # Errors
    /// [`Invalid`] when it is empty, longer than [`MAX_NAME_BYTES`] bytes, or contains NUL.
    pub fn new(name: &str) -> Result<Self, Invalid> {
        check_text("resource name", name, 1)?;
        Ok(Self(name.into()))
    }

    /// The name as the user wrote it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as engines store it: letters, digits, `_`, `-` and inner `.` as they are, every other byte as `%XX`.
    ///
    /// At most 765 bytes of ASCII. Encoded names sort by engine, not by language.
    pub fn encode(&self) -> String {
        let mut out = String::with_capacity(self.0.len());
        for (at, byte) in self.0.bytes().enumerate() {
            let plain =
                byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') || (byte == b'.' && at > 0);
            if plain {
                out.push(char::from(byte));
            } else {
                // Writing into a String cannot fail.
                let _ = write!(out, "%{byte:02X}");
            }
        }
        out
    }

    /// Reads back what [`Resource::encode`] wrote.
    ///
    /// # Errors
    /// [`Invalid`] when `encoded` is not something `encode` could have written.
    pub fn decode(encoded: &str) -> Result<Self, Invalid> {
        let malformed = || Invalid::new("encoded resource name", "is not one that Leasehold wrote");
        let mut bytes = alloc::vec::Vec::with_capacity(encoded.len());
        let mut rest = encoded.bytes();
        while let Some(byte) = rest.next() {
            if byte == b'%' {
                let (high, low) = (rest.next().and_then(hex_value), rest.next().and_then(hex_value));
                bytes.push(high.zip(low).map(|(high, low)| high << 4 | low).ok_or_else(malformed)?);
            } else {
                bytes.push(byte);
            }
        }
        let name = Self::new(core::str::from_utf8(&bytes).map_err(|_| malformed())?)?;
        // One name has one encoding: anything else was not written by us.
        if name.encode() == encoded { Ok(name) } else { Err(malformed()) }
    }
}

fn hex_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_visibly(f, &self.0)
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Resource({:?})", &*self.0)
    }
}

/// A group of resources that share settings and a quarantine; resources of different namespaces never meet.
///
/// 1–63 bytes of ASCII letters, digits, `_`, `-` and `.`, starting with a letter, a digit or `_`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Namespace(Arc<str>);

impl Namespace {
    /// Checks and takes a namespace.
    ///
    /// # Errors
    /// [`Invalid`] when it is empty, too long, or has a character outside the set above.
    pub fn new(name: &str) -> Result<Self, Invalid> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        let starts_well =
            name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if name.len() > MAX_NAMESPACE_BYTES || !starts_well || !name.bytes().all(allowed) {
            return Err(Invalid::new(
                "namespace",
                "must be 1-63 ASCII letters, digits, '_', '-' or '.', and start with a letter, a digit or '_'",
            ));
        }
        Ok(Self(name.into()))
    }

    /// The namespace as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Namespace {
    /// `default`: what the command line uses without `--namespace`.
    fn default() -> Self {
        Self("default".to_owned().into())
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Free text that people write and engines store: at least `min` and at most 255 bytes, no NUL.
pub(crate) fn check_text(what: &'static str, text: &str, min: usize) -> Result<(), Invalid> {
    if text.len() < min {
        return Err(Invalid::new(what, "must not be empty"));
    }
    if text.len() > MAX_NAME_BYTES {
        return Err(Invalid::new(what, "must be at most 255 bytes of UTF-8"));
    }
    if text.contains('\0') {
        return Err(Invalid::new(what, "must not contain NUL"));
    }
    Ok(())
}

/// Writes `text` so that a terminal shows every character and obeys none.
pub(crate) fn write_visibly(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    for character in text.chars() {
        if is_deceptive(character) {
            write!(f, "{}", character.escape_unicode())?;
        } else {
            f.write_char(character)?;
        }
    }
    Ok(())
}

/// True for what a terminal would obey or hide instead of showing it: control characters, and those that
/// reorder or hide their neighbours. For programs that print text which others chose.
pub fn is_deceptive(character: char) -> bool {
    character.is_control() || reorders_text(character)
}

/// The format characters that reverse or hide neighbouring text (Unicode bidirectional controls, zero-width marks,
/// line and paragraph separators, tags).
fn reorders_text(character: char) -> bool {
    matches!(character,
        '\u{061C}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{FEFF}'
        | '\u{E0000}'..='\u{E007F}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{format, string::ToString};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_name_survives_the_round_trip(name in "\\PC{1,60}|[\\x01-\\x7f]{1,80}|[{}/%.*\\\\:\\n]{1,40}") {
            let resource = Resource::new(&name).unwrap();
            let encoded = resource.encode();
            prop_assert!(encoded.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.%".contains(&b)));
            prop_assert!(!encoded.starts_with('.'));
            prop_assert_eq!(Resource::decode(&encoded).unwrap(), resource);
        }

        #[test]
        fn different_names_have_different_encodings(a in "\\PC{1,20}", b in "\\PC{1,20}") {
            prop_assume!(a != b);
            prop_assert_ne!(Resource::new(&a).unwrap().encode(), Resource::new(&b).unwrap().encode());
        }

        #[test]
        fn decoding_never_panics(text in "\\PC{0,60}|[%0-9A-Fa-f.]{0,40}") {
            if let Ok(resource) = Resource::decode(&text) {
                prop_assert_eq!(resource.encode(), text);
            }
        }
    }

    #[test]
    fn hostile_names_are_kept_apart_and_shown_harmlessly() {
        for name in
            ["..", ".", "/", "a/b", "{}", "a{b}c", "*", "%", "%2F", "\n", "\u{202e}gnp", "🦀", " ", "'; DROP"]
        {
            let resource = Resource::new(name).unwrap();
            assert_eq!(Resource::decode(&resource.encode()).unwrap().as_str(), name);
        }
        assert_eq!(
            Resource::new("a\nb\u{202e}c\u{1b}[2J").unwrap().to_string(),
            "a\\u{a}b\\u{202e}c\\u{1b}[2J"
        );
        assert_ne!(Resource::new("%2F").unwrap().encode(), Resource::new("/").unwrap().encode());
    }

    #[test]
    fn names_out_of_bounds_are_refused_with_the_reason() {
        assert!(Resource::new("").unwrap_err().to_string().contains("empty"));
        assert!(Resource::new(&"x".repeat(256)).unwrap_err().to_string().contains("255"));
        assert!(Resource::new("a\0b").unwrap_err().to_string().contains("NUL"));
        assert!(Resource::new(&"é".repeat(127)).is_ok());
        for bad in ["", "a b", "-x", ".x", "a/b", "ü", &"x".repeat(64)] {
            assert!(Namespace::new(bad).is_err(), "{bad:?}");
        }
        assert_eq!(format!("{}", Namespace::new("__verify_1").unwrap()), "__verify_1");
    }

    #[test]
    fn only_the_canonical_encoding_decodes() {
        for bad in ["", "%41", "%2f", "%", "%2", ".a", "a b", "%FF", "é"] {
            assert!(Resource::decode(bad).is_err(), "{bad:?}");
        }
    }
}
