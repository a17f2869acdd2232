//! A lease and its fence.

use leasehold::{
    Leases,
    fence::{Fence, MemoryFence},
};

use crate::table::pass;

#[tokio::test]
async fn a_lease_seals_the_fence_and_its_passes_are_let_in() {
    let fence = Fence::over(MemoryFence::default());
    let leases = Leases::connect("memory:fence-lease").await.unwrap();
    let lease = leases.lease("orders/42").acquire().await.unwrap();
    lease.seal(&fence).await.unwrap();
    fence.check(&lease.pass()).await.unwrap();
    let (first, second) = (lease.handle().numbered_pass(), lease.numbered_pass());
    fence.check(&second).await.unwrap();
    assert!(fence.check(&first).await.unwrap_err().is_stale(), "the first was overtaken");
    let old = lease.pass();
    assert_eq!((&old.holder, old.token), (leases.label(), lease.token()));
    let _ = lease.release().await.unwrap();
    let next = leases.lease("orders/42").acquire().await.unwrap();
    next.seal(&fence).await.unwrap();
    assert!(fence.check(&old).await.unwrap_err().is_stale());
}

/// A coordinator that lost its counter: the fence knows better, and the next grant is above what it knows.
#[tokio::test]
async fn what_a_fence_has_seen_becomes_the_floor_of_the_next_grant() {
    let fence = Fence::over(MemoryFence::default());
    let leases = Leases::connect("memory:fence-floor").await.unwrap();
    let lease = leases.lease("r").acquire().await.unwrap();
    let ahead = lease.token().get() + 60_000_000;
    fence.seal(&pass("r", ahead, 9)).await.unwrap();
    assert!(lease.seal(&fence).await.unwrap_err().is_stale());
    let _ = lease.release().await.unwrap();
    let next = leases.lease("r").acquire().await.unwrap();
    assert!(next.token().get() > ahead);
    next.seal(&fence).await.unwrap();
}
