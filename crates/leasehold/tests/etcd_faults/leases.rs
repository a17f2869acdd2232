//! etcd's own leases: revoked behind our back, kept for the next grant, shared by many.

use std::{sync::Arc, time::Duration};

use leasehold::{Kind, Leases};
use leasehold_core::{
    Token,
    record::{Acquired, EndReason, Gone, Grant, Renewed},
    request::Claim,
};
use leasehold_testkit::{
    clock::Stopwatch,
    server::{Cut, Etcd},
};

use super::world::{
    Client, GLANCE, PATIENCE, again, claim, end, extended, open, ready, renew, renewal, seconds, take, woken,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_was_revoked_behind_our_back_is_gone() {
    let etcd = Etcd::start(1).unwrap();
    let client = ready(&etcd).await;
    let held = claim("r", seconds(30));
    let grant = take(&client, &held).await;
    for id in etcd.ctl(&["lease", "list"]).unwrap().lines().skip(1) {
        etcd.ctl(&["lease", "revoke", id]).unwrap();
    }
    woken(&client, held.lease_id).await;
    let answer = renew(&client, &held, grant.token).await.unwrap();
    assert_eq!(answer, Renewed::Gone(Gone::Expired));
    let next = take(&client, &again(&held)).await;
    assert!(next.after_lapse && next.token > grant.token);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_lease_that_is_gone_is_replaced() {
    let etcd = Etcd::start(1).unwrap();
    let client = ready(&etcd).await;
    let first = claim("r", seconds(30));
    let grant = take(&client, &first).await;
    end(&client, &first, grant.token).await;
    for id in etcd.ctl(&["lease", "list"]).unwrap().lines().skip(1) {
        etcd.ctl(&["lease", "revoke", id]).unwrap();
    }
    let second = again(&first);
    let grant = take(&client, &second).await;
    extended(&client, &second, grant.token).await;
    assert_eq!(client.inspect(first.resource.clone()).await.unwrap().record.unwrap().token, grant.token);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_nobody_wrote_down_is_told_as_an_expiry() {
    let etcd = Etcd::start(1).unwrap();
    let client = ready(&etcd).await;
    let held = claim("r", seconds(2));
    let grant = take(&client, &held).await;
    let since = Stopwatch::start();
    while client.inspect(held.resource.clone()).await.unwrap().record.is_some() {
        assert!(since.elapsed() < PATIENCE);
        tokio::time::sleep(GLANCE).await;
    }
    let end = client.inspect(held.resource.clone()).await.unwrap().last_end.unwrap();
    assert_eq!((end.lease_id, end.token, end.reason), (held.lease_id, grant.token, EndReason::Expired));
}

/// Renews one grant until another one, of the same shared lease, is over.
async fn until_over(keeper: &Client, kept: (&Claim, Token), wanted: &Claim) -> (Grant, Duration) {
    let since = Stopwatch::start();
    loop {
        extended(keeper, kept.0, kept.1).await;
        if let Acquired::Granted(grant) = keeper.acquire(wanted.clone()).await.unwrap() {
            return (grant, since.elapsed());
        }
        assert!(since.elapsed() < PATIENCE, "it lives as long as the lease that it shares");
        tokio::time::sleep(GLANCE).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn grants_that_share_a_lease_end_each_in_its_own_time() {
    let etcd = Etcd::start(1).unwrap();
    ready(&etcd).await;
    let cut = Cut::start(etcd.address(0)).unwrap();
    cut.set(false);
    let client = open(&cut.address().to_string(), "?shared_lease=true").await.unwrap();
    let kept = claim("kept", seconds(3));
    let token = take(&client, &kept).await.token;
    // One is forgotten by its holder, and one never came to be known.
    let forgotten = claim("forgotten", seconds(3));
    let first = take(&client, &forgotten).await;
    let (next, lasted) = until_over(&client, (&kept, token), &again(&forgotten)).await;
    assert!(next.after_lapse && next.token > first.token && lasted >= Duration::from_secs(2), "{lasted:?}");
    let leases = etcd.ctl(&["lease", "list"]).unwrap();
    assert_eq!(leases.lines().count(), 2, "all hang on one lease: {leases}");
    // The connection may be cut at the answer of the keepalive, before the grant itself: then it is tried again.
    let mut unknown = claim("unknown", seconds(3));
    loop {
        cut.set(true);
        assert_eq!(client.acquire(unknown.clone()).await.unwrap_err().kind(), Kind::Unknown);
        cut.set(false);
        extended(&client, &kept, token).await;
        if client.inspect(unknown.resource.clone()).await.unwrap().record.is_some() {
            break;
        }
        unknown = again(&unknown);
    }
    let (next, _) = until_over(&client, (&kept, token), &again(&unknown)).await;
    assert!(next.after_lapse);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_on_a_shared_lease_may_be_kept_by_another_client() {
    let etcd = Etcd::start(1).unwrap();
    let other = ready(&etcd).await;
    let sharing = open(&etcd.hosts(), "?shared_lease=true").await.unwrap();
    let held = claim("r", seconds(3));
    let token = take(&sharing, &held).await.token;
    let since = Stopwatch::start();
    while since.elapsed() < Duration::from_secs(8) {
        extended(&other, &held, token).await;
        let holder = other.inspect(held.resource.clone()).await.unwrap().record;
        assert_eq!(holder.unwrap().token, token, "its former client has ended it");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    end(&other, &held, token).await;
}

/// Thousands of grants of one client are a few leases of etcd's, and one round of renewals of all is a few keepalives.
#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_grants_share_few_leases_and_few_keepalives() {
    const GRANTS: usize = 2_000;
    const FEW: u64 = 100;
    const RENEWED: &str = "etcd_debugging_lease_renewed_total";
    let etcd = Etcd::start(1).unwrap();
    ready(&etcd).await;
    let client = open(&etcd.hosts(), "?shared_lease=true").await.unwrap();
    // The longest that the namespace has: nothing ends while the machine is busy.
    let names: Vec<usize> = (0..GRANTS).collect();
    let mut grants = Vec::with_capacity(GRANTS);
    for some in names.chunks(100) {
        let taken = some.iter().map(|at| {
            let (client, claim) = (Arc::clone(&client), claim(&format!("orders/{at}"), seconds(60)));
            tokio::spawn(async move {
                let token = take(&client, &claim).await.token;
                (claim, token)
            })
        });
        for one in taken.collect::<Vec<_>>() {
            grants.push(one.await.unwrap());
        }
    }
    let leases = etcd.ctl(&["lease", "list"]).unwrap().lines().count() as u64;
    assert!(leases <= FEW, "{leases} leases for {GRANTS} grants");

    let before = etcd.figure(0, RENEWED, &[]).unwrap();
    let renewals = grants.iter().map(|(claim, token)| renewal(claim, *token)).collect();
    let answers = client.renew(renewals).await.unwrap();
    let kept = answers.iter().filter(|answer| matches!(answer, Ok(Renewed::Extended { .. }))).count();
    assert_eq!(kept, GRANTS);
    let keepalives = etcd.figure(0, RENEWED, &[]).unwrap() - before;
    assert!((1..=FEW).contains(&keepalives), "{keepalives} keepalives for {GRANTS} renewals");
}

fn leases_there(etcd: &Etcd) -> usize {
    etcd.ctl(&["lease", "list"]).unwrap().lines().skip(1).count()
}

/// Leases that are kept for the next grant, and that of the places, do not outlive their client. What somebody else holds stays.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_ends_leaves_no_lease_of_etcd_behind() {
    let etcd = Etcd::start(1).unwrap();
    let other = ready(&etcd).await;
    let kept = claim("kept", seconds(60));
    let token = take(&other, &kept).await.token;
    for settings in ["", "?shared_lease=true"] {
        let url = format!("etcd://{}{settings}", etcd.hosts());
        let (one, two) = (Leases::connect(&url).await.unwrap(), Leases::connect(&url).await.unwrap());
        let held = one.lease("r").ttl(Duration::from_secs(60)).acquire().await.unwrap();
        let many = one.lease("s").ttl(Duration::from_secs(50)).acquire().await.unwrap();
        let request = two.lease("r").ttl(Duration::from_secs(60)).wait(PATIENCE);
        let waiting = tokio::spawn(async move { request.acquire().await.unwrap().release().await.map(drop) });
        let resource = leasehold::Resource::new("r").unwrap();
        let since = Stopwatch::start();
        while one.inspect(&resource).await.unwrap().waiting == 0 {
            assert!(since.elapsed() < PATIENCE);
            tokio::time::sleep(GLANCE).await;
        }
        let _ended = (held.release().await.unwrap(), many.release().await.unwrap());
        waiting.await.unwrap().unwrap();
        let left = leases_there(&etcd);
        assert!(left > 1, "there is something to leave behind: {left}");
        let since = Stopwatch::start();
        tokio::join!(one.close(PATIENCE), two.close(PATIENCE));
        while leases_there(&etcd) > 1 {
            // Sooner than any of them would have run out.
            assert!(
                since.elapsed() < Duration::from_secs(30),
                "{settings:?}: {} are left",
                leases_there(&etcd)
            );
            tokio::time::sleep(GLANCE).await;
        }
    }
    extended(&other, &kept, token).await;
    // A grant that its client did not release is not the client's to end.
    let url = format!("etcd://{}?shared_lease=true", etcd.hosts());
    let gone = Leases::connect(&url).await.unwrap();
    let forsaken = gone.lease("forsaken").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    let token = forsaken.token();
    let _left = forsaken.forsake();
    gone.close(PATIENCE).await;
    let record = other.inspect(leasehold::Resource::new("forsaken").unwrap()).await.unwrap().record;
    assert_eq!(record.map(|record| record.token), Some(token));
}
