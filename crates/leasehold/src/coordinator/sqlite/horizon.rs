//! The latest expiry ever granted, kept outside the database.
//!
//! Somebody who removes the database removes the memory of who holds what, while the holders live on. The horizon is
//! what is left of that memory: it is raised in the lock file before a commit that could pass it, and whoever makes a
//! new database grants nothing before it. So the pause after such a removal is as long as it must be and no longer, and
//! covers grants whose process is gone (`leasehold acquire` in a script) as well.
//!
//! It is not synced to disk: it must survive processes, and a crash of the machine ends every holder anyway.

use std::io;

use super::{
    boot::{Boot, Relation},
    gate::{Gate, Passage},
};

/// The record has a fixed size, so that one write replaces all of it.
const SIZE: usize = 256;
const HEAD: &str = "leasehold-horizon-1";
/// It is raised this much further than it must be, so that a busy process writes it a few times a second and not at every
/// commit (ours: a pause after a removed file is longer by at most this).
const LEAP_US: u64 = 250_000;

/// What a lock file says about the past.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Horizon {
    /// Nothing was ever granted through this file.
    Empty,
    /// The latest expiry, by the clock of this boot.
    Until(Boot, u64),
    /// There was something that cannot be read.
    Damaged,
}

impl Horizon {
    /// Reads it.
    pub(super) fn read(gate: &Gate) -> io::Result<Self> {
        let mut buffer = [0; SIZE];
        let length = gate.read_start(&mut buffer)?;
        Ok(if length == 0 { Self::Empty } else { parse(&buffer[..length]).unwrap_or(Self::Damaged) })
    }

    /// Raises it to `until_us` where it is lower; the passage stands for the right to. What it is at least from now on.
    pub(super) fn raise(
        gate: &Gate,
        _passage: &Passage<'_>,
        mine: &Boot,
        local: bool,
        until_us: u64,
    ) -> io::Result<u64> {
        let leap_us = until_us.saturating_add(LEAP_US);
        let raised = match Self::read(gate)? {
            Self::Until(boot, us) => match mine.relation(&boot, local) {
                Relation::Same if us >= until_us => return Ok(us),
                Relation::Same | Relation::Rebooted => (mine.clone(), leap_us),
                // Two clocks that cannot be compared use this file: nothing exact can be said any more.
                Relation::Unknown => (mine.mixed(), 0),
            },
            Self::Empty => (mine.clone(), leap_us),
            Self::Damaged => (mine.mixed(), 0),
        };
        gate.write_start(&render(&raised.0, raised.1))?;
        Ok(raised.1)
    }
}

fn render(boot: &Boot, until_us: u64) -> [u8; SIZE] {
    let body = format!("{HEAD} {} {until_us}", boot.text());
    let line = format!("{body} {:016x}", checksum(body.as_bytes()));
    let mut record = [b' '; SIZE];
    // An identity is at most 64 + 64 + 22 bytes, which leaves room; a longer one would read back as damaged.
    let length = line.len().min(SIZE - 1);
    record[..length].copy_from_slice(&line.as_bytes()[..length]);
    record[SIZE - 1] = b'\n';
    record
}

fn parse(record: &[u8]) -> Option<Horizon> {
    let line = std::str::from_utf8(record).ok()?.trim_end();
    let (body, sum) = line.rsplit_once(' ')?;
    if u64::from_str_radix(sum, 16).ok()? != checksum(body.as_bytes()) {
        return None;
    }
    let mut words = body.split(' ');
    (words.next()? == HEAD).then_some(())?;
    let boot = Boot::parse(words.next()?);
    Some(Horizon::Until(boot, words.next()?.parse().ok()?))
}

/// FNV-1a: against torn and foreign content, not against an attacker, who could write the database itself.
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_horizon_only_rises_and_notices_damage_and_foreign_clocks() {
        let folder = tempfile::tempdir().unwrap();
        let gate = Gate::open(&folder.path().join("leases.db")).unwrap();
        let passage = gate.pass().unwrap();
        let mine = Boot::parse("m/b/0.0");
        assert_eq!(Horizon::read(&gate).unwrap(), Horizon::Empty);
        let leap = 50 + LEAP_US;
        for (us, expected) in [(50, leap), (40, leap), (leap, leap), (leap + 1, leap + 1 + LEAP_US)] {
            assert_eq!(Horizon::raise(&gate, &passage, &mine, true, us).unwrap(), expected);
            assert_eq!(Horizon::read(&gate).unwrap(), Horizon::Until(mine.clone(), expected));
        }
        let after_reboot = Boot::parse("m/b2/0.0");
        Horizon::raise(&gate, &passage, &after_reboot, true, 5).unwrap();
        assert_eq!(Horizon::read(&gate).unwrap(), Horizon::Until(after_reboot.clone(), 5 + LEAP_US));
        Horizon::raise(&gate, &passage, &Boot::parse("m/b2/7.0"), true, 9).unwrap();
        assert_eq!(Horizon::read(&gate).unwrap(), Horizon::Until(after_reboot.mixed(), 0));
        gate.write_start(b"x").unwrap();
        assert_eq!(Horizon::read(&gate).unwrap(), Horizon::Damaged);
    }

    #[test]
    fn a_damaged_record_is_noticed() {
        let whole = render(&Boot::parse("m/b/0.0"), 42);
        let expected = parse(&whole);
        assert_eq!(expected, Some(Horizon::Until(Boot::parse("m/b/0.0"), 42)));
        for record in leasehold_testkit::hostile::near(&whole) {
            let read = parse(&record);
            // Spaces at the end are no part of it.
            let same = record.trim_ascii_end() == whole.trim_ascii_end();
            assert!(read.is_none() || (same && read == expected), "{}", record.escape_ascii());
        }
        assert!(leasehold_testkit::hostile::bytes().iter().all(|record| parse(record).is_none()));
    }
}
