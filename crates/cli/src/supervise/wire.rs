//! The words that front and guard exchange, and their encoding.
//!
//! One message is one packet of a `SOCK_SEQPACKET` pair: it arrives whole or not at all, so no framing is
//! needed, and both ends are the same program, so no versions either.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::event::{Ended, Process, Start, Status, StopReason};
use std::time::Duration;

/// Longest packet. The default socket buffer holds several of these.
pub(super) const MAX_PACKET: usize = 64 * 1024;

/// From the front to the guard.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Start(Start),
    Extend { deadline_ns: u64 },
    Signal(Forward),
    Stop { grace_ns: u64 },
    Keep { handoff: Vec<u8> },
    TakeBack,
}

/// A signal for the command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forward {
    pub(super) signo: i32,
    /// The value it carries, if it was queued.
    pub(super) value: Option<u64>,
    /// A SIGCONT that the front got after a suspension: a shell sends it to the whole group, so the command needs it
    /// only if it is still stopped.
    pub(super) if_stopped: bool,
}

/// From the guard to the front.
#[derive(Clone, Debug)]
pub(super) enum Tell {
    /// `missed`: signals (bit n−1 for n) that the process group got before the command was part of it.
    Started {
        pid: i32,
        missed: u64,
    },
    SpawnFailed {
        errno: i32,
    },
    ChildStopped {
        signal: i32,
    },
    ChildContinued,
    Stopping {
        reason: StopReason,
    },
    Kept,
    TakenBack {
        deadline_ns: u64,
        lost: bool,
    },
    Ended(Ended),
}

impl Ask {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Self::Start(start) => {
                out.number(0).number(start.deadline_ns);
                out.number(super::clock::nanos(start.grace)).number(super::clock::nanos(start.kill_margin));
                out.number(u64::from(start.kill_leftovers)).bytes(&start.handoff);
                out.count(start.set_env.len());
                for (key, value) in &start.set_env {
                    out.bytes(key.as_bytes()).bytes(value.as_bytes());
                }
                out.count(start.remove_env.len());
                for key in &start.remove_env {
                    out.bytes(key.as_bytes());
                }
            }
            Self::Extend { deadline_ns } => {
                out.number(1).number(*deadline_ns);
            }
            Self::Signal(forward) => {
                out.number(2).signed(forward.signo).number(u64::from(forward.value.is_some()));
                out.number(forward.value.unwrap_or(0)).number(u64::from(forward.if_stopped));
            }
            Self::Stop { grace_ns } => {
                out.number(3).number(*grace_ns);
            }
            Self::Keep { handoff } => {
                out.number(4).bytes(handoff);
            }
            Self::TakeBack => {
                out.number(5);
            }
        }
        out.0
    }

    pub(super) fn decode(packet: &[u8]) -> Option<Self> {
        let mut from = Reader(packet);
        Some(match from.number()? {
            0 => {
                let deadline_ns = from.number()?;
                let grace = Duration::from_nanos(from.number()?);
                let kill_margin = Duration::from_nanos(from.number()?);
                let kill_leftovers = from.flag()?;
                let handoff = from.bytes()?;
                let set_env = from.list(|from| {
                    Some((OsString::from_vec(from.bytes()?), OsString::from_vec(from.bytes()?)))
                })?;
                let remove_env = from.list(|from| from.bytes().map(OsString::from_vec))?;
                Self::Start(Start {
                    set_env,
                    remove_env,
                    deadline_ns,
                    grace,
                    kill_margin,
                    handoff,
                    kill_leftovers,
                })
            }
            1 => Self::Extend { deadline_ns: from.number()? },
            2 => {
                let signo = from.signed()?;
                let carries = from.flag()?;
                let value = from.number()?;
                Self::Signal(Forward { signo, value: carries.then_some(value), if_stopped: from.flag()? })
            }
            3 => Self::Stop { grace_ns: from.number()? },
            4 => Self::Keep { handoff: from.bytes()? },
            5 => Self::TakeBack,
            _ => return None,
        })
    }
}

impl Tell {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Self::Started { pid, missed } => {
                out.number(0).signed(*pid).number(*missed);
            }
            Self::SpawnFailed { errno } => {
                out.number(1).signed(*errno);
            }
            Self::ChildStopped { signal } => {
                out.number(2).signed(*signal);
            }
            Self::ChildContinued => {
                out.number(3);
            }
            Self::Stopping { reason } => {
                out.number(4).number(reason_number(*reason));
            }
            Self::Kept => {
                out.number(5);
            }
            Self::TakenBack { deadline_ns, lost } => {
                out.number(6).number(*deadline_ns).number(u64::from(*lost));
            }
            Self::Ended(ended) => {
                let (kind, number) = match ended.status {
                    None => (0, 0),
                    Some(Status::Code(code)) => (1, code),
                    Some(Status::Signal(signal)) => (2, signal),
                };
                out.number(7).number(kind).signed(number).number(ended.at_ns);
                out.number(ended.deadline_ns);
                out.number(ended.stopped.map_or(0, reason_number)).number(u64::from(ended.killed));
                out.number(u64::from(ended.released)).count(ended.left.len());
                for process in &ended.left {
                    out.signed(process.pid).bytes(process.name.as_bytes());
                }
            }
        }
        out.0
    }

    pub(super) fn decode(packet: &[u8]) -> Option<Self> {
        let mut from = Reader(packet);
        Some(match from.number()? {
            0 => Self::Started { pid: from.signed()?, missed: from.number()? },
            1 => Self::SpawnFailed { errno: from.signed()? },
            2 => Self::ChildStopped { signal: from.signed()? },
            3 => Self::ChildContinued,
            4 => Self::Stopping { reason: reason_from(from.number()?)? },
            5 => Self::Kept,
            6 => Self::TakenBack { deadline_ns: from.number()?, lost: from.flag()? },
            7 => {
                let (kind, number) = (from.number()?, from.signed()?);
                let status = match kind {
                    0 => None,
                    1 => Some(Status::Code(number)),
                    2 => Some(Status::Signal(number)),
                    _ => return None,
                };
                let (at_ns, deadline_ns) = (from.number()?, from.number()?);
                let stopped = reason_from(from.number()?);
                let killed = from.flag()?;
                let released = from.flag()?;
                let left = from.list(|from| {
                    let pid = from.signed()?;
                    Some(Process { pid, name: String::from_utf8_lossy(&from.bytes()?).into_owned() })
                })?;
                Self::Ended(Ended { status, at_ns, deadline_ns, stopped, killed, left, released })
            }
            _ => return None,
        })
    }
}

/// Zero stands for "no reason".
fn reason_number(reason: StopReason) -> u64 {
    match reason {
        StopReason::Asked => 1,
        StopReason::Deadline => 2,
        StopReason::LeaseLost => 3,
        StopReason::FrontGone => 4,
        StopReason::Leftovers => 5,
    }
}

fn reason_from(number: u64) -> Option<StopReason> {
    Some(match number {
        1 => StopReason::Asked,
        2 => StopReason::Deadline,
        3 => StopReason::LeaseLost,
        4 => StopReason::FrontGone,
        5 => StopReason::Leftovers,
        _ => return None,
    })
}

#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, number: u64) -> &mut Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    fn signed(&mut self, number: i32) -> &mut Self {
        self.number(u64::from(number.cast_unsigned()))
    }

    fn count(&mut self, count: usize) -> &mut Self {
        self.number(u64::try_from(count).unwrap_or(u64::MAX))
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.count(bytes.len());
        self.0.extend_from_slice(bytes);
        self
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn number(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*first))
    }

    fn signed(&mut self) -> Option<i32> {
        u32::try_from(self.number()?).ok().map(u32::cast_signed)
    }

    fn flag(&mut self) -> Option<bool> {
        self.number().map(|number| number != 0)
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let length = usize::try_from(self.number()?).ok()?;
        let (first, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(first.to_vec())
    }

    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.number()?;
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(item(self)?);
        }
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks() -> Vec<Ask> {
        let start = Start {
            set_env: vec![("A".into(), "1=2".into()), (OsString::from_vec(vec![0xff]), "".into())],
            remove_env: vec!["B".into()],
            deadline_ns: u64::MAX,
            grace: Duration::from_millis(5),
            kill_margin: Duration::from_millis(1),
            handoff: vec![0, 1, 255],
            kill_leftovers: true,
        };
        vec![
            Ask::Start(start),
            Ask::Extend { deadline_ns: 7 },
            Ask::Signal(Forward { signo: 64, value: Some(u64::MAX), if_stopped: false }),
            Ask::Signal(Forward { signo: 18, value: None, if_stopped: true }),
            Ask::Stop { grace_ns: 3 },
            Ask::Keep { handoff: vec![9] },
            Ask::TakeBack,
        ]
    }

    fn tells() -> Vec<Tell> {
        let ended = Ended {
            status: Some(Status::Signal(9)),
            at_ns: 5,
            deadline_ns: 6,
            stopped: Some(StopReason::FrontGone),
            killed: true,
            left: vec![Process { pid: 1, name: "a b".into() }],
            released: true,
        };
        vec![
            Tell::Started { pid: -1, missed: 1 << 63 },
            Tell::SpawnFailed { errno: 2 },
            Tell::ChildStopped { signal: 20 },
            Tell::ChildContinued,
            Tell::Stopping { reason: StopReason::LeaseLost },
            Tell::Kept,
            Tell::TakenBack { deadline_ns: 4, lost: true },
            Tell::Ended(ended),
        ]
    }

    #[test]
    fn what_is_told_is_what_was_said() {
        for ask in asks() {
            let back = Ask::decode(&ask.encode()).unwrap();
            assert_eq!(format!("{back:?}"), format!("{ask:?}"));
        }
        for tell in tells() {
            let back = Tell::decode(&tell.encode()).unwrap();
            assert_eq!(format!("{back:?}"), format!("{tell:?}"));
        }
    }

    #[test]
    fn a_torn_packet_is_no_message() {
        let whole = Ask::Keep { handoff: vec![1, 2, 3] }.encode();
        for length in 0..whole.len() {
            assert!(Ask::decode(&whole[..length]).is_none(), "{length} bytes");
        }
    }

    /// Neither end reads more than there is, whatever a packet says of its own length.
    #[test]
    fn a_damaged_packet_is_read_as_something_or_as_nothing() {
        let written: Vec<Vec<u8>> =
            asks().iter().map(Ask::encode).chain(tells().iter().map(Tell::encode)).collect();
        let near = written.iter().flat_map(|packet| leasehold_testkit::hostile::near(packet));
        for packet in near.chain(leasehold_testkit::hostile::bytes()) {
            let _ = (Ask::decode(&packet), Tell::decode(&packet));
        }
    }
}
