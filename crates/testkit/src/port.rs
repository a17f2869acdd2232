//! Ports for servers: below the range from which the kernel gives clients theirs, or the two collide.

use std::{collections::HashSet, io, net::TcpListener, ops::RangeInclusive, sync::Mutex};

use crate::{lock, random};

/// Where ports are looked for. The kernel's ephemeral range starts at 32768.
const PORTS: RangeInclusive<u16> = 20_000..=31_999;
/// So many are tried.
const TRIES: u32 = 200;

/// A port of the loopback interface that nobody uses now, never given twice by one process. `more` ports above it are free
/// and reserved as well (some servers derive a second port from the first).
///
/// # Errors
/// When none is found.
pub fn free_port(more: u16) -> io::Result<u16> {
    static GIVEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);
    let mut given = lock(&GIVEN);
    let given = given.get_or_insert_default();
    for _ in 0..TRIES {
        let span = PORTS.end() - PORTS.start() - more;
        let first = PORTS.start() + u16::try_from(random::seed() % u64::from(span)).unwrap_or_default();
        let ports = first..=first + more;
        if ports.clone().all(|port| !given.contains(&port) && TcpListener::bind(("127.0.0.1", port)).is_ok())
        {
            given.extend(ports);
            return Ok(first);
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, "no free port below 32768 was found"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_twice() {
        let ports: Vec<u16> = (0..50).map(|_| free_port(1).unwrap()).collect();
        let mut all: Vec<u16> = ports.iter().flat_map(|&port| [port, port + 1]).collect();
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "{all:?}");
    }
}
