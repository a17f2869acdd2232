//! Twins that meet in the database: the key alone must do, because they do not share a lease.

use leasehold::{
    coordinator::memory::MemoryStore,
    core::fence::Refusal,
    effects::{NotDone, failpoint::Point},
    fence::NotAdmitted,
};
use tokio_postgres::IsolationLevel;

use crate::{
    crashes::somebody_waits,
    world::{BODY, Bank, Worker},
};

const LEVELS: [IsolationLevel; 3] =
    [IsolationLevel::ReadCommitted, IsolationLevel::RepeatableRead, IsolationLevel::Serializable];

/// Two twins with leases of two coordinators that know nothing of each other: the older is between its key and its commit, and the
/// younger waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_twin_waits_for_the_key_and_answers_what_the_other_stored() {
    for level in LEVELS {
        let bank = Bank::postgres_at(level).await;
        let (reached, go_on) = (
            std::sync::Arc::new(tokio::sync::Notify::new()),
            std::sync::Arc::new(tokio::sync::Notify::new()),
        );
        let (tell, wait) = (reached.clone(), go_on.clone());
        let first = Worker::new(&bank, &MemoryStore::default()).await.hooked(move |point| {
            let (tell, wait) = (tell.clone(), wait.clone());
            Box::pin(async move {
                if point == Point::BeforeCommit {
                    tell.notify_one();
                    wait.notified().await;
                }
            })
        });
        let first = tokio::spawn(async move { first.pay("k", BODY).await });
        reached.notified().await;
        let second = Worker::new(&bank, &MemoryStore::default()).await;
        let second = tokio::spawn(async move { second.pay("k", BODY).await });
        somebody_waits(&bank).await;
        assert!(!second.is_finished(), "{level:?}");
        go_on.notify_one();
        let (first, second) = (first.await.unwrap().unwrap(), second.await.unwrap().unwrap());
        assert!(!first.replayed && second.replayed && first.response == second.response, "{level:?}");
        assert_eq!(bank.counts().await, (1, 1, 1), "{level:?}");
    }
}

/// The fence out of the way: the same key on the same grant, from two connections. Only the unique key stands between them.
#[tokio::test(flavor = "multi_thread")]
async fn under_one_lease_the_key_alone_keeps_twins_apart() {
    use leasehold::effects::{Key, Request};
    for level in LEVELS {
        let bank = Bank::postgres_at(level).await;
        let worker = Worker::new(&bank, &MemoryStore::default()).await;
        let lease = worker.leases.lease("accounts/k").acquire().await.unwrap();
        let mut executed = 0;
        for round in 0..10 {
            let (key, request) =
                (Key::new("pay", &format!("{round}")).unwrap(), Request::new("accounts/k", BODY).unwrap());
            let (effects, mut one, mut two) = (worker.postgres(), bank.client().await, bank.client().await);
            let work = |tx: &leasehold::effects::postgres::PostgresTx<'_>| {
                let key = tx.key().as_str().to_owned();
                format!("INSERT INTO effect VALUES ('{key}', 1)")
            };
            let run = async |client: &mut tokio_postgres::Client| {
                for _ in 0..50 {
                    let answer = effects
                        .run_under(&lease, client, &key, &request, |tx| {
                            Box::pin(async move {
                                tx.batch_execute(&work(tx)).await.map_err(|error| error.to_string())?;
                                tx.emit("paid", &serde_json::json!({}))
                                    .await
                                    .map_err(|error| error.to_string())?;
                                Ok::<_, String>(serde_json::json!("paid"))
                            })
                        })
                        .await;
                    match answer {
                        Ok(answer) => return answer,
                        Err(no) => assert!(no.is_transient(), "{level:?}: {no}"),
                    }
                }
                panic!("it came to no answer")
            };
            let (first, second) = tokio::join!(run(&mut one), run(&mut two));
            executed += u32::from(!first.replayed) + u32::from(!second.replayed);
        }
        assert_eq!(executed, 10, "{level:?}");
        assert_eq!(bank.counts().await, (10, 10, 10), "{level:?}");
        let _ = lease.release().await.unwrap();
    }
}

fn is_collision(no: &NotAdmitted) -> bool {
    matches!(no.refusal(), Some(Refusal::Collision { .. }))
}

/// Many twins at once, each with a lease of a coordinator of its own: leases help nobody here.
#[tokio::test(flavor = "multi_thread")]
async fn twins_without_a_common_coordinator_have_one_effect() {
    for bank in Bank::all().await {
        let mut twins = Vec::new();
        for _ in 0..6 {
            let worker = Worker::new(&bank, &MemoryStore::default()).await;
            twins.push(tokio::spawn(async move {
                for _ in 0..100 {
                    match worker.pay("k", BODY).await {
                        Ok(answer) => return answer.replayed,
                        // Coordinators that know nothing of each other may give one token in the same microsecond. The fence
                        // tells them apart, and the next grant has another.
                        Err(NotDone::NotAdmitted(no)) if is_collision(&no) => {}
                        Err(no) => assert!(no.is_transient(), "{no}"),
                    }
                }
                panic!("it came to no answer")
            }));
        }
        let mut executed = 0;
        for twin in twins {
            executed += u32::from(!twin.await.unwrap());
        }
        assert_eq!((executed, bank.counts().await), (1, (1, 1, 1)), "{}", bank.name());
    }
}
