//! Without async: a program of plain threads. Renewals go on in the background.
#![allow(clippy::print_stdout, reason = "an example talks")]

use std::{error::Error, time::Duration};

use leasehold::{NotAcquired, blocking::Leases};

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let leases = Leases::connect(&url)?;

    let lease = leases.lease("report", |lease| lease.ttl(Duration::from_secs(10))).acquire()?;
    println!("holding with fencing token {}", lease.token());

    // Somebody else tries, and is told who is in the way.
    match leases.lease("report", |lease| lease).acquire() {
        Err(NotAcquired::Refused { .. }) => println!("the second try was refused, as it should be"),
        other => println!("unexpected: {other:?}"),
    }

    lease.check()?;
    println!("the lease ended: {:?}", lease.release()?);
    leases.close(Duration::from_secs(1));
    Ok(())
}
