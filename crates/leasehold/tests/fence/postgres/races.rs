//! Two grants at once, and two writes of one grant at once, at every isolation level.

use std::time::Duration;

use leasehold::{
    Kind, Token,
    fence::{NotAdmitted, Pass, postgres::PostgresFence},
};
use tokio_postgres::{Client, IsolationLevel, Transaction};

use super::Base;
use crate::table::{numbered, pass};

const LEVELS: [IsolationLevel; 3] =
    [IsolationLevel::ReadCommitted, IsolationLevel::RepeatableRead, IsolationLevel::Serializable];

async fn begin(client: &mut Client, level: IsolationLevel) -> Transaction<'_> {
    client.build_transaction().isolation_level(level).start().await.unwrap()
}

async fn balance(client: &impl tokio_postgres::GenericClient) -> i64 {
    client.query_one("SELECT balance FROM account", &[]).await.unwrap().get(0)
}

/// Waits until a session of the database waits for a lock.
async fn somebody_waits(client: &Client) {
    for _ in 0..1_000 {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        if client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) > 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("nobody waits for a lock");
}

fn is_serialisation_failure(answer: &Result<(), NotAdmitted>) -> bool {
    matches!(answer, Err(NotAdmitted::Failed(error)) if error.kind() == Kind::Unavailable && error.to_string().contains("40001"))
}

/// An older holder is between its check and its commit: the successor's seal waits for it, and the successor then reads what it
/// has written.
#[tokio::test(flavor = "multi_thread")]
async fn a_seal_waits_for_an_older_transaction_and_sees_what_it_wrote() {
    let (fence, watch) = (PostgresFence::default(), Base::new().await);
    let observer = watch.client().await;
    for level in LEVELS {
        let resource = format!("{level:?}");
        let (old, new) = (pass(&resource, 10, 1), pass(&resource, 20, 2));
        let (mut first, mut second) = (watch.client().await, watch.client().await);
        first.execute("UPDATE account SET balance = 100", &[]).await.unwrap();
        fence.seal(&mut first, &old).await.unwrap();
        let tx = begin(&mut first, level).await;
        fence.check(&tx, &old).await.unwrap();
        let seal = tokio::spawn({
            let (fence, new) = (fence.clone(), new.clone());
            async move { fence.seal(&mut second, &new).await.map(|()| second) }
        });
        somebody_waits(&observer).await;
        assert!(!seal.is_finished());
        tx.execute("UPDATE account SET balance = 70", &[]).await.unwrap();
        tx.commit().await.unwrap();
        let mut second = seal.await.unwrap().unwrap();
        let tx = begin(&mut second, level).await;
        fence.check(&tx, &new).await.unwrap();
        assert_eq!(balance(&tx).await, 70, "{level:?}: read after the seal");
        tx.commit().await.unwrap();
    }
}

/// The control: without the unique index on the token the row lock is too weak, and the successor reads what is about to change.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_index_on_the_token_a_seal_overtakes_an_open_transaction() {
    let (fence, base) = (PostgresFence::default(), Base::new().await);
    base.psql("ALTER TABLE leasehold.fence DROP CONSTRAINT fence_namespace_resource_token_key").unwrap();
    let (mut first, mut second) = (base.client().await, base.client().await);
    fence.seal(&mut first, &pass("r", 10, 1)).await.unwrap();
    let tx = begin(&mut first, IsolationLevel::ReadCommitted).await;
    fence.check(&tx, &pass("r", 10, 1)).await.unwrap();
    fence.seal(&mut second, &pass("r", 20, 2)).await.unwrap();
    let read = balance(&second).await;
    tx.execute("UPDATE account SET balance = 70", &[]).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!((read, balance(&second).await), (100, 70), "the damage that the index prevents");
}

/// An older holder's transaction began before the successor's seal and comes to its check after it.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_older_than_a_seal_never_commits_a_write() {
    let (fence, base) = (PostgresFence::default(), Base::new().await);
    for level in LEVELS {
        let resource = format!("{level:?}");
        let (old, new) = (pass(&resource, 10, 1), pass(&resource, 20, 2));
        let (mut first, mut second) = (base.client().await, base.client().await);
        first.execute("UPDATE account SET balance = 100", &[]).await.unwrap();
        fence.seal(&mut first, &old).await.unwrap();
        let tx = begin(&mut first, level).await;
        assert_eq!(balance(&tx).await, 100, "its snapshot is taken");
        fence.seal(&mut second, &new).await.unwrap();
        let answer = fence.check(&tx, &old).await;
        if matches!(level, IsolationLevel::ReadCommitted) {
            assert!(answer.as_ref().unwrap_err().is_stale(), "{answer:?}");
        } else {
            assert!(is_serialisation_failure(&answer), "{level:?}: {answer:?}");
        }
        // Whoever does not look cannot do harm either.
        tx.execute("UPDATE account SET balance = 70", &[]).await.unwrap_err();
        let _ = tx.commit().await;
        assert_eq!(balance(&second).await, 100, "{level:?}");
        let tx = begin(&mut first, level).await;
        assert!(
            fence.check(&tx, &old).await.unwrap_err().is_stale(),
            "begun anew it is told what is the matter"
        );
    }
}

/// Two writes of one grant are under way at once, and the later one arrives first.
#[tokio::test(flavor = "multi_thread")]
async fn pipelined_writes_of_one_grant_do_not_cross() {
    let (fence, base) = (PostgresFence::default(), Base::new().await);
    let observer = base.client().await;
    for level in LEVELS {
        let resource = format!("{level:?}");
        let (mut first, mut second) = (base.client().await, base.client().await);
        fence.seal(&mut first, &pass(&resource, 10, 1)).await.unwrap();
        let tx = begin(&mut second, level).await;
        fence.check(&tx, &numbered(&resource, 10, 1, 2)).await.unwrap();
        tx.execute("UPDATE account SET balance = 2", &[]).await.unwrap();
        let earlier = tokio::spawn({
            let (fence, earlier) = (fence.clone(), numbered(&resource, 10, 1, 1));
            async move {
                let tx = begin(&mut first, level).await;
                let answer = fence.check(&tx, &earlier).await;
                let written = tx.execute("UPDATE account SET balance = 1", &[]).await.is_ok();
                let _ = tx.commit().await;
                (answer, written)
            }
        });
        somebody_waits(&observer).await;
        tx.commit().await.unwrap();
        let (answer, written) = earlier.await.unwrap();
        let overtaken = answer.as_ref().is_err_and(NotAdmitted::is_stale);
        assert!(overtaken || is_serialisation_failure(&answer), "{level:?}: {answer:?}");
        assert!(!written);
        assert_eq!(balance(&observer).await, 2, "{level:?}");
    }
}

/// The control: without numbers the same two writes cross.
#[tokio::test(flavor = "multi_thread")]
async fn without_numbers_pipelined_writes_cross() {
    let (fence, base) = (PostgresFence::default(), Base::new().await);
    let mut client = base.client().await;
    fence.seal(&mut client, &pass("r", 10, 1)).await.unwrap();
    for value in [2_i64, 1] {
        let tx = begin(&mut client, IsolationLevel::ReadCommitted).await;
        fence.check(&tx, &pass("r", 10, 1)).await.unwrap();
        tx.execute("UPDATE account SET balance = $1", &[&value]).await.unwrap();
        tx.commit().await.unwrap();
    }
    assert_eq!(balance(&client).await, 1, "the write that was sent first has won");
}

/// One write: the fence's answer and the place in the log in one transaction.
async fn write(
    client: &mut Client,
    level: IsolationLevel,
    fence: Option<&PostgresFence>,
    pass: &Pass,
) -> bool {
    let tx = begin(client, level).await;
    if let Some(fence) = fence
        && fence.check(&tx, pass).await.is_err()
    {
        return false;
    }
    let token = i64::try_from(pass.token.get()).unwrap();
    let op_seq = pass.op_seq.map(|op_seq| i64::try_from(op_seq.get()).unwrap());
    let sql = "WITH v AS (UPDATE account SET version = version + 1 RETURNING version)
        INSERT INTO log SELECT version, $1, $2 FROM v";
    tx.execute(sql, &[&token, &op_seq]).await.is_ok() && tx.commit().await.is_ok()
}

/// What was committed, in order.
async fn log(client: &Client) -> Vec<(i64, i64)> {
    let rows =
        client.query("SELECT token, coalesce(op_seq, 0) FROM log ORDER BY version", &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Six grants take over from each other while the workers of the older ones go on as if nothing had happened; the writes of each
/// grant are numbered and sent by two workers at once.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_races_no_write_lands_behind_a_later_grants() {
    for level in LEVELS {
        let base = Base::new().await;
        let mut workers = Vec::new();
        for grant in 1..=6_u8 {
            let mut sealer = base.client().await;
            let fence = PostgresFence::default();
            let token = u64::from(grant) * 10;
            fence.seal(&mut sealer, &pass("r", token, grant)).await.unwrap();
            for worker in 0..2_u64 {
                let (mut client, fence) = (base.client().await, fence.clone());
                workers.push(tokio::spawn(async move {
                    let mut landed = 0;
                    for n in 1..=25 {
                        let pass = numbered("r", token, grant, n * 2 + worker);
                        landed += u32::from(write(&mut client, level, Some(&fence), &pass).await);
                    }
                    landed
                }));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let mut landed = 0;
        for worker in workers {
            landed += worker.await.unwrap();
        }
        let log = log(&base.client().await).await;
        assert_eq!(log.len(), usize::try_from(landed).unwrap(), "what was answered was kept");
        assert!(log.is_sorted() && log.windows(2).all(|pair| pair[0] != pair[1]), "{level:?}: {log:?}");
        let grants = log.chunk_by(|a, b| a.0 == b.0).count();
        assert!(grants > 1, "{level:?}: no race took place: {log:?}");
    }
}

/// The control: the same without the fence.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_fence_older_writes_land_behind_newer_ones() {
    let base = Base::new().await;
    let mut client = base.client().await;
    for token in [10, 20, 10] {
        let pass = Pass { token: Token::new(token).unwrap(), ..pass("r", 1, 1) };
        assert!(write(&mut client, IsolationLevel::ReadCommitted, None, &pass).await);
    }
    assert!(!log(&client).await.is_sorted());
}
