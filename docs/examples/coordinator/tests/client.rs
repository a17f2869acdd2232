//! And its use: everything that `leasehold` offers, over a coordinator of one's own.

use std::sync::Arc;

use leasehold::{Label, Leases, Namespace};
use shelf::{Shelf, ShelfCoordinator};

#[tokio::test]
async fn a_lease_on_a_shelf() {
    let coordinator = Arc::new(ShelfCoordinator::new(Shelf::new()));
    let leases = Leases::over(coordinator, Namespace::default(), Label::from_lossy("me")).await.unwrap();
    let lease = leases.lease("orders/42").acquire().await.unwrap();
    lease.check().unwrap();
    assert_eq!(leases.held(), 1);
    lease.release().await.unwrap();
}
