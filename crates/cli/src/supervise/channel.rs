//! The socket pair between front and guard.
//!
//! The kernel closes an end when its process dies, however it dies: the end of this channel is the one sign of
//! death that cannot be forgotten or delayed.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, Shutdown, SockFlag, SockType, recv, send, shutdown, socketpair,
};

use super::wire::MAX_PACKET;

/// One end.
#[derive(Debug)]
pub(super) struct Channel(OwnedFd);

/// What was read.
#[derive(Debug)]
pub(super) enum Packet {
    Bytes(Vec<u8>),
    /// Nothing to read now.
    Nothing,
    /// The other process is gone.
    End,
}

impl Channel {
    /// Both ends; neither survives an exec.
    pub(super) fn pair() -> io::Result<(Self, Self)> {
        let (a, b) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        Ok((Self(a), Self(b)))
    }

    /// Ends the conversation, whoever else of this process still has the channel.
    pub(super) fn close(&self) {
        let _gone = shutdown(self.0.as_raw_fd(), Shutdown::Both);
    }

    /// Sends one packet, without waiting: a peer that does not read for a whole buffer's length is stuck, and
    /// waiting for it would stick us too.
    pub(super) fn send(&self, packet: &[u8]) -> io::Result<()> {
        if packet.len() > MAX_PACKET {
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        send(self.0.as_raw_fd(), packet, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT)?;
        Ok(())
    }

    /// Reads one packet, without waiting.
    pub(super) fn receive(&self) -> io::Result<Packet> {
        // Asking for the length first is cheaper than having room for the longest packet.
        let Some(length) = self.read(&mut [], MsgFlags::MSG_PEEK | MsgFlags::MSG_TRUNC)? else {
            return Ok(Packet::Nothing);
        };
        if length == 0 {
            return Ok(Packet::End);
        }
        let mut packet = vec![0; length];
        self.read(&mut packet, MsgFlags::empty())?;
        Ok(Packet::Bytes(packet))
    }

    fn read(&self, buffer: &mut [u8], flags: MsgFlags) -> io::Result<Option<usize>> {
        loop {
            return match recv(self.0.as_raw_fd(), buffer, flags | MsgFlags::MSG_DONTWAIT) {
                Ok(length) => Ok(Some(length)),
                Err(Errno::EAGAIN) => Ok(None),
                // A peer that ended without reading everything makes the kernel say so once, ahead of what that peer
                // had sent before: its last word is still to be read.
                Err(Errno::EINTR | Errno::ECONNRESET) => continue,
                Err(other) => Err(other.into()),
            };
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
