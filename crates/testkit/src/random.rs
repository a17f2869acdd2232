//! Randomness: ids from the operating system, and a small repeatable generator for choices.

use leasehold_core::{HolderId, LeaseId, Namespace};

/// 128 bits from the operating system. Where it has none (which no supported platform does) the address of a local and
/// the clock stand in: an id in a test needs to be unique, not secret.
fn bytes() -> [u8; 16] {
    let mut bytes = [0; 16];
    if getrandom::fill(&mut bytes).is_err() {
        let here = std::ptr::from_ref(&bytes) as usize as u64;
        let mut stand_in = Choices::new(crate::clock::boot_ns() ^ here);
        bytes[..8].copy_from_slice(&stand_in.next().to_le_bytes());
        bytes[8..].copy_from_slice(&stand_in.next().to_le_bytes());
    }
    bytes
}

/// A lease id that no other claim has.
pub fn lease_id() -> LeaseId {
    LeaseId::from_bytes(bytes())
}

/// A holder id that no other process run has.
pub fn holder_id() -> HolderId {
    HolderId::from_bytes(bytes())
}

/// A namespace that no other case has.
pub fn namespace() -> Namespace {
    Namespace::new(&format!("suite-{}", lease_id())).unwrap_or_default()
}

/// A seed for [`Choices`].
pub fn seed() -> u64 {
    let bytes = bytes();
    bytes.iter().take(8).fold(0, |seed, &byte| seed << 8 | u64::from(byte))
}

/// A repeatable stream of choices (SplitMix64): the seed tells the whole run.
#[derive(Clone, Debug)]
pub struct Choices(u64);

impl Choices {
    /// Starts at `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    #[allow(clippy::should_implement_trait, reason = "it never ends and is no iterator")]
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 up to, and without, `bound`; 0 when the bound is 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }

    /// True once in `n` times.
    pub const fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}
