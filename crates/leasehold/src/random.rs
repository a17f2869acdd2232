//! The only file that draws random numbers: ids from the operating system, jitter from a small generator seeded there.

use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::{Error, HolderId, Kind, LeaseId};

/// Draws a lease id.
///
/// # Errors
/// [`Kind::Unavailable`] when the operating system gives no randomness: without it ids could collide.
pub(crate) fn lease_id() -> Result<LeaseId, Error> {
    bytes().map(LeaseId::from_bytes)
}

/// Draws a holder id.
///
/// # Errors
/// As [`lease_id`].
pub(crate) fn holder_id() -> Result<HolderId, Error> {
    bytes().map(HolderId::from_bytes)
}

fn bytes() -> Result<[u8; 16], Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|reason| {
        Error::new(Kind::Unavailable, format!("the operating system gave no random bytes: {reason}"))
    })?;
    Ok(bytes)
}

/// Random numbers for jitter: good enough to keep waiters apart, cheap enough to draw at every turn. Not for ids.
#[derive(Debug)]
pub(crate) struct Jitter(AtomicU64);

impl Jitter {
    /// A generator of its own sequence.
    ///
    /// # Errors
    /// As [`lease_id`].
    pub(crate) fn seeded() -> Result<Self, Error> {
        let bytes = bytes()?;
        Ok(Self(AtomicU64::new(bytes.iter().fold(0, |seed, &byte| seed.rotate_left(8) ^ u64::from(byte)))))
    }

    /// The next number, uniform over all 64 bits (the `SplitMix64` sequence).
    pub(crate) fn draw(&self) -> u64 {
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut z = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_draws_differ() {
        assert_ne!(lease_id().unwrap(), lease_id().unwrap());
        let jitter = Jitter::seeded().unwrap();
        let draws: std::collections::HashSet<u64> = (0..10_000).map(|_| jitter.draw()).collect();
        assert_eq!(draws.len(), 10_000);
        let high = draws.iter().filter(|&&draw| draw > u64::MAX / 2).count();
        assert!((4_000..6_000).contains(&high), "{high}");
    }
}
