//! A program whose own pool is used up, on a server that has no connection left for anybody.

use std::time::Duration;

use leasehold::{Leases, Namespace};
use leasehold_core::request::Preparation;
use leasehold_testkit::server::Postgres;
use sqlx::{Connection as _, PgConnection, postgres::PgPoolOptions};

use super::scene::{PATIENCE, until};

const TTL: Duration = Duration::from_secs(6);
/// Far beyond the TTL.
const RENEWALS: usize = 4;

/// Connects until the server takes nobody any more.
async fn all_that_are_left(url: &str) -> Vec<PgConnection> {
    let mut taken = Vec::new();
    loop {
        match PgConnection::connect(url).await {
            Ok(connection) => taken.push(connection),
            Err(error) => {
                assert!(error.to_string().contains("too many clients"), "{error}");
                return taken;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_that_user_work_has_used_up_costs_no_lease() {
    let server = Postgres::start_with(&[("max_connections", "12")]).unwrap();
    let url = server.url(&server.database().unwrap());
    let leases = Leases::builder(&url).namespace(Namespace::default()).connect().await.unwrap();
    leases.prepare(Preparation { fresh: true, max_ttl: None }).await.unwrap();
    // What any program may have: a pool of one, whose connection is in a transaction that takes its time.
    let pool = PgPoolOptions::new().max_connections(1).connect(&url).await.unwrap();
    let mut work = pool.begin().await.unwrap();
    sqlx::query("CREATE TABLE mine (x integer)").execute(&mut *work).await.unwrap();
    let others = all_that_are_left(&url).await;
    assert!(!others.is_empty() && pool.try_acquire().is_none());

    let lease = leases.lease("r").ttl(TTL).acquire().await.unwrap();
    let mut seen = lease.closes().boot_ns;
    for _ in 0..RENEWALS {
        seen = until("a renewal", async || {
            assert_eq!(lease.check(), Ok(()));
            Some(lease.closes().boot_ns).filter(|closes| *closes > seen)
        })
        .await;
    }
    // Others are waited for and served meanwhile.
    let waits = leases.lease("r").ttl(TTL).wait(PATIENCE).acquire();
    let (next, ended) = tokio::join!(waits, async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        lease.release().await
    });
    let _ = (ended.unwrap(), next.unwrap().release().await.unwrap());
    work.rollback().await.unwrap();
}
