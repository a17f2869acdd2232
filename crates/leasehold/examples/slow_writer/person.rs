//! One of the two: acquires, seals, reads, checks, and writes when told to go on.

use std::{env, error::Error, io, time::Duration};

use leasehold::blocking::Leases;

use crate::bank::Place;

pub(crate) const NAME: &str = "SLOW_WRITER_NAME";
pub(crate) const URL: &str = "SLOW_WRITER_URL";
pub(crate) const PLACE: &str = "SLOW_WRITER_PLACE";
pub(crate) const FENCED: &str = "SLOW_WRITER_FENCED";

/// The account's resource.
pub(crate) const ACCOUNT: &str = "accounts/7";

pub(crate) fn live(name: &str) -> Result<(), Box<dyn Error>> {
    let place = Place::parse(&env::var(PLACE)?)?;
    let fenced = env::var(FENCED)? == "true";
    let label = leasehold::Label::new(name)?;
    let leases = Leases::connect_with(leasehold::Leases::builder(&env::var(URL)?).label(label))?;
    let configure =
        |lease: leasehold::LeaseRequest| lease.ttl(Duration::from_secs(1)).wait(Duration::from_secs(60));
    let lease = leases.lease(ACCOUNT, configure).acquire()?;
    println!("acquires {ACCOUNT} with fencing token {}", lease.token());
    let mut bank = place.open()?;
    if fenced {
        bank.seal(&lease.pass())?;
        println!("seals the fence: whoever came before is shut out");
    }
    let balance = bank.balance()?;
    let (sum, rest) = if name == "alice" { (30, balance - 30) } else { (50, balance - 50) };
    lease.check()?;
    println!(
        "checked that the lease is still held; read {balance}, takes {sum}, and is about to write {rest}"
    );
    // This is where a process may be stopped: between the check and the write. No check can be late enough.
    io::stdin().read_line(&mut String::new())?;
    match bank.write(&lease.pass(), fenced, rest) {
        Ok(()) => println!("done: wrote {rest}"),
        Err(no) => println!("done: REFUSED: {no}"),
    }
    Ok(())
}
