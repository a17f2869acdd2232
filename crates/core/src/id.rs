//! Identities: the lease id of one claim, the holder id of one process run, and the label that people read.
//!
//! Ids are 128 random bits that the caller brings (this crate draws nothing). A lease id is made once per acquire call
//! and reused by that call's retries, which is what makes a retried acquire recognisable. Labels are for people and are
//! never compared.

use alloc::{string::String, sync::Arc};
use core::{fmt, str::FromStr};

use crate::{
    error::Invalid,
    name::{check_text, write_visibly},
};

macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name([u8; 16]);

        impl $name {
            /// Takes 128 bits that the caller drew at random.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }

            /// The 128 bits.
            pub const fn as_bytes(&self) -> &[u8; 16] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = Invalid;

            /// Reads 32 hexadecimal digits.
            fn from_str(text: &str) -> Result<Self, Invalid> {
                parse_hex(text).map(Self).ok_or_else(|| Invalid::new($what, "must be 32 hexadecimal digits"))
            }
        }
    };
}

random_id!(
    /// Names one claim, and the grant that answers it. Unique per acquire call, chosen by the asker.
    LeaseId,
    "lease id"
);
random_id!(
    /// Names one run of one holding process. Unique per process run; never reused, never shown as a name.
    HolderId,
    "holder id"
);

fn parse_hex(text: &str) -> Option<[u8; 16]> {
    let digits = text.as_bytes();
    if digits.len() != 32 {
        return None;
    }
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let value = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(bytes)
}

/// What people call a holder: `host:pid:command` or whatever `--holder` says. Never compared.
///
/// 0–255 bytes of UTF-8 without NUL. [`fmt::Display`] escapes control and bidirectional characters.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Label(Option<Arc<str>>);

impl Label {
    /// Checks and takes a label.
    ///
    /// # Errors
    /// [`Invalid`] when it is longer than 255 bytes or contains NUL.
    pub fn new(text: &str) -> Result<Self, Invalid> {
        check_text("label", text, 0)?;
        Ok(if text.is_empty() { Self(None) } else { Self(Some(text.into())) })
    }

    /// Takes a label, cutting it at 255 bytes and replacing NUL: for text we did not choose, such as a command line.
    pub fn from_lossy(text: &str) -> Self {
        let mut clean: String = text.chars().map(|c| if c == '\0' { '\u{FFFD}' } else { c }).collect();
        let mut end = clean.len().min(crate::name::MAX_NAME_BYTES);
        while !clean.is_char_boundary(end) {
            end -= 1;
        }
        clean.truncate(end);
        if clean.is_empty() { Self(None) } else { Self(Some(clean.into())) }
    }

    /// The label as it was given; empty when there is none.
    pub fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }

    /// True when there is no label.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_visibly(f, self.as_str())
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Label({:?})", self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ids_survive_text(bytes: [u8; 16]) {
            let id = LeaseId::from_bytes(bytes);
            prop_assert_eq!(id.to_string().parse::<LeaseId>().unwrap(), id);
            prop_assert_eq!(id.to_string().len(), 32);
        }

        #[test]
        fn parsing_an_id_never_panics(text in "\\PC{0,40}") {
            let _ = text.parse::<HolderId>();
        }

        #[test]
        fn any_text_becomes_a_valid_label(text in "\\PC{0,400}|[\\x00-\\x7f]{0,300}") {
            let label = Label::from_lossy(&text);
            prop_assert!(Label::new(label.as_str()).is_ok());
        }
    }

    #[test]
    fn labels_are_bounded_and_harmless() {
        assert!(Label::new(&"x".repeat(256)).is_err());
        assert!(Label::new("a\0").is_err());
        assert!(Label::new("").unwrap().is_empty());
        assert_eq!(Label::new("\u{1b}]0;x").unwrap().to_string(), "\\u{1b}]0;x");
    }
}
