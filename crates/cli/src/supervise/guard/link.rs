//! The guard's line to the front.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::unistd::getppid;

use crate::supervise::channel::{Channel, Packet};
use crate::supervise::sys::signal::send;
use crate::supervise::tree::Stat;
use crate::supervise::wire::{Ask, Tell};

/// What was heard.
#[derive(Debug)]
pub(super) enum Heard {
    Ask(Ask),
    Nothing,
    /// The front is gone.
    End,
}

/// The front, as long as it is there.
#[derive(Debug)]
pub(super) struct Link {
    channel: Channel,
    front: i32,
    gone: bool,
}

impl Link {
    pub(super) fn new(channel: Channel, front: i32) -> Self {
        Self { channel, front, gone: false }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// Never heard again.
    pub(super) fn give_up(&mut self) {
        self.gone = true;
    }

    pub(super) fn hear(&mut self) -> io::Result<Heard> {
        loop {
            match self.channel.receive()? {
                Packet::Nothing => return Ok(Heard::Nothing),
                Packet::End => return Ok(Heard::End),
                Packet::Bytes(packet) => {
                    // What cannot be read was not sent by our front.
                    if let Some(ask) = Ask::decode(&packet) {
                        return Ok(Heard::Ask(ask));
                    }
                }
            }
        }
    }

    /// True if it was said. If the front is gone, its end will be heard in the next round.
    pub(super) fn tell(&self, tell: &Tell) -> bool {
        !self.gone && self.channel.send(&tell.encode()).is_ok()
    }

    /// Does the front stand still?
    pub(super) fn is_stopped(&self) -> bool {
        Stat::read(self.front).is_some_and(|stat| stat.is_stopped())
    }

    /// Continues a suspended front.
    pub(super) fn wake(&self) {
        // As long as it is our parent, the number is its own.
        if getppid().as_raw() == self.front {
            let _gone = send(self.front, libc::SIGCONT);
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
