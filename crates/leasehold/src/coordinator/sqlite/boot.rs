//! Which boot of which machine wrote a time.
//!
//! Every time in the file is a reading of `CLOCK_BOOTTIME`, and means something only to processes that share that clock:
//! the same boot of the same kernel, seen through the same time namespace. So each time is stored with the identity of
//! the clock it was read from, and a reader asks how that clock is related to its own.

use std::{fs, sync::LazyLock};

/// What stands for the boot id where there is none: nobody shares our clock then as far as anyone can tell, so every run of a
/// process is an identity of its own. All its coordinators do share one.
static UNKNOWN: LazyLock<String> = LazyLock::new(|| format!("unknown-{}", random_word()));

/// The identity of a boot clock.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Boot {
    machine: String,
    kernel: String,
    offset: String,
}

/// How a clock of the past is related to ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Relation {
    /// The very same clock: its times compare with ours.
    Same,
    /// This machine's clock before a reboot: whoever lived by it is dead.
    Rebooted,
    /// Perhaps alive somewhere, on a clock that we cannot read.
    Unknown,
}

impl Boot {
    /// This process's own.
    pub(super) fn read() -> Self {
        let kernel = word("/proc/sys/kernel/random/boot_id").unwrap_or_else(|| UNKNOWN.clone());
        let machine = word("/etc/machine-id").unwrap_or_else(|| "-".to_owned());
        Self { machine, kernel, offset: offset() }
    }

    /// The identity as it is stored.
    pub(super) fn text(&self) -> String {
        format!("{}/{}/{}", self.machine, self.kernel, self.offset)
    }

    /// Reads back [`Boot::text`]; anything else is an identity unlike every other.
    pub(super) fn parse(text: &str) -> Self {
        let mut parts = text.splitn(3, '/').map(str::to_owned);
        let mut part = || parts.next().unwrap_or_default();
        Self { machine: part(), kernel: part(), offset: part() }
    }

    /// The identity of "several clocks of this boot": unknown to each of them, over with the reboot.
    pub(super) fn mixed(&self) -> Self {
        Self { offset: "mixed".to_owned(), ..self.clone() }
    }

    /// True for an identity that ends with the process: no other one is ever related to it.
    pub(super) fn is_of_one_run(&self) -> bool {
        self.kernel.starts_with("unknown-")
    }

    /// True when a later boot of this machine is recognised as one.
    pub(super) fn tells_reboots(&self) -> bool {
        self.machine != "-" && !self.is_of_one_run()
    }

    /// How `other`, found in a file, is related to this clock. `local` when the file lies on a file system that no
    /// other machine can write at the same time: only then does another boot id mean a reboot.
    pub(super) fn relation(&self, other: &Self, local: bool) -> Relation {
        if self.kernel == other.kernel {
            return if self.offset == other.offset { Relation::Same } else { Relation::Unknown };
        }
        let same_machine = self.machine == other.machine && self.machine != "-";
        if local && same_machine && !self.is_of_one_run() && !other.is_of_one_run() {
            Relation::Rebooted
        } else {
            Relation::Unknown
        }
    }
}

fn word(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let word = text.trim();
    let plain =
        !word.is_empty() && word.len() <= 64 && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    plain.then(|| word.to_owned())
}

/// The boot-time shift of this process's time namespace, `seconds.nanoseconds`; `none` on kernels without them.
fn offset() -> String {
    let Ok(text) = fs::read_to_string("/proc/self/timens_offsets") else { return "none".to_owned() };
    let mut words =
        text.lines().find(|line| line.starts_with("boottime")).unwrap_or_default().split_whitespace();
    match (words.nth(1), words.next()) {
        (Some(seconds), Some(nanos)) => format!("{seconds}.{nanos}"),
        _ => "none".to_owned(),
    }
}

fn random_word() -> String {
    let mut bytes = [0; 8];
    // Without randomness either, the process id is what is left; it only has to differ between live processes.
    if getrandom::fill(&mut bytes).is_err() {
        bytes = u64::from(std::process::id()).to_be_bytes();
    }
    format!("{:016x}", u64::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot(machine: &str, boot: &str, offset: &str) -> Boot {
        Boot::parse(&format!("{machine}/{boot}/{offset}"))
    }

    #[test]
    fn an_identity_survives_text() {
        let mine = Boot::read();
        assert_eq!(Boot::parse(&mine.text()), mine);
        assert_eq!(mine.relation(&mine, true), Relation::Same);
        assert_eq!(mine.relation(&mine.mixed(), true), Relation::Unknown);
    }

    #[test]
    fn only_a_known_machine_on_a_local_file_system_can_have_rebooted() {
        let mine = boot("m1", "b1", "0.0");
        assert_eq!(mine.relation(&boot("m1", "b0", "0.0"), true), Relation::Rebooted);
        assert_eq!(mine.relation(&boot("m1", "b0", "0.0"), false), Relation::Unknown);
        assert_eq!(mine.relation(&boot("m2", "b0", "0.0"), true), Relation::Unknown);
        assert_eq!(mine.relation(&boot("m1", "b1", "9.0"), true), Relation::Unknown);
        assert_eq!(mine.relation(&boot("m2", "b1", "0.0"), true), Relation::Same);
        assert_eq!(mine.relation(&boot("m1", "unknown-3", "0.0"), true), Relation::Unknown);
        assert_eq!(boot("-", "b1", "").relation(&boot("-", "b0", ""), true), Relation::Unknown);
        assert_eq!(mine.relation(&Boot::parse("rubbish"), true), Relation::Unknown);
    }

    #[test]
    fn no_hostile_identity_is_related_to_a_real_one() {
        let mine = Boot::read();
        for text in leasehold_testkit::hostile::texts() {
            let other = Boot::parse(&text);
            assert_eq!(mine.relation(&other, true), Relation::Unknown, "{text}");
            assert_eq!(Boot::parse(&other.text()), other);
        }
    }
}
