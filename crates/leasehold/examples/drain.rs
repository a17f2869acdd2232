//! Draining: asked to end, the worker finishes what it has begun, starts nothing new, and releases only then. The lease is
//! renewed all the while.
#![allow(clippy::print_stdout, reason = "an example talks")]

use std::{error::Error, time::Duration};

use leasehold::Leases;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let leases = Leases::connect(&url).await?;
    let lease = leases.lease("queue/emails").ttl(Duration::from_secs(10)).acquire().await?;

    let worker = tokio::spawn({
        let lease = lease.handle();
        async move {
            let mut sent = 0;
            loop {
                tokio::select! {
                    biased;
                    () = lease.draining() => return sent,
                    () = tokio::time::sleep(Duration::from_millis(20)) => sent += 1,
                }
            }
        }
    });

    // In a service: on SIGTERM.
    tokio::time::sleep(Duration::from_millis(200)).await;
    lease.drain();

    println!("sent {} emails, all of them under the lease", worker.await?);
    println!("the lease ended: {:?}", lease.release().await?);
    Ok(())
}
