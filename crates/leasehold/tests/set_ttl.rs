//! The TTL of held leases changes again and again while they are renewed: none is lost, and no window is shortened.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::time::Duration;

use common::{eventually, faulty, ms};
use leasehold::{Kind, Lease, Resource, Ttl, coordinator::memory::MemoryStore};

const LEASES: usize = 200;

#[tokio::test]
async fn changes_under_load_lose_no_lease_and_shorten_no_window() {
    let (leases, _) = faulty(&MemoryStore::default()).await;
    let mut held: Vec<Lease> = Vec::new();
    for n in 0..LEASES {
        held.push(leases.lease(&format!("r{n}")).ttl(ms(6_000)).acquire().await.unwrap());
    }
    let mut closes: Vec<u64> = held.iter().map(|lease| lease.closes().boot_ns).collect();
    // Up, down, up; each lease is renewed two or three times meanwhile.
    for (round, seconds) in [9, 6, 12, 5, 10, 6, 8, 45].into_iter().enumerate() {
        let ttl = Ttl::new(Duration::from_secs(seconds)).unwrap();
        for lease in &held {
            lease.set_ttl(ttl).unwrap();
        }
        tokio::time::sleep(ms(1_000)).await;
        for (lease, known) in held.iter().zip(&mut closes) {
            lease.check().unwrap();
            let now = lease.closes().boot_ns;
            assert!(now >= *known, "round {round}: a window was shortened");
            *known = now;
        }
    }
    let last = Ttl::new(Duration::from_secs(45)).unwrap();
    for n in 0..LEASES {
        let resource = Resource::new(&format!("r{n}")).unwrap();
        eventually("the last TTL at the coordinator", async || {
            leases.inspect(&resource).await.unwrap().record.unwrap().ttl == last
        })
        .await;
    }
    assert_eq!(leases.held(), LEASES);
}

#[tokio::test]
async fn a_ttl_out_of_bounds_is_refused_and_the_old_one_stays() {
    let (leases, _) = faulty(&MemoryStore::default()).await;
    let lease = leases.lease("r").ttl(ms(3_000)).acquire().await.unwrap();
    let error = lease.set_ttl(Ttl::MAX).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("longest that this namespace allows"), "{error}");
    assert_eq!(lease.belief().ttl, Ttl::from_millis(3_000).unwrap());
    lease.check().unwrap();
}
