//! A singleton worker: of any number of copies on this machine one works, the others wait, and when it ends (or dies) the
//! next takes over.
//!
//! ```sh
//! cargo run --example singleton -- sqlite:/tmp/demo.db
//! ```
#![allow(clippy::print_stdout, reason = "an example talks")]

use std::{error::Error, time::Duration};

use leasehold::Leases;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let leases = Leases::connect(&url).await?;

    let lease = leases.lease("singleton").ttl(Duration::from_secs(10)).wait_forever().acquire().await?;
    println!("working with fencing token {}", lease.token());

    // `run` drops the work at the moment the lease is lost; what it had sent may still arrive: send the token along.
    let worked = lease.run(work(lease.handle())).await;
    match worked {
        Ok(steps) => println!("done after {steps} steps"),
        Err(loss) => println!("stopped: {loss}"),
    }
    println!("the lease ended: {:?}", lease.release().await?);
    Ok(())
}

async fn work(lease: leasehold::LeaseHandle) -> u32 {
    for step in 1..=3 {
        // Before anything that cannot be undone: still mine, and for long enough?
        if lease.require(Duration::from_secs(1)).is_err() {
            return step - 1;
        }
        println!("step {step}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    3
}
