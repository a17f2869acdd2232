//! The least that could work on etcd, and etcd's own Lock service.

use tonic::Streaming;

use super::{
    etcd_wire::{Compare, Delete, Done, Etcd, Operation, Put, Transaction, Watched},
    hand_over::{Turn, hand_overs},
    pairs::{Pair, rate},
    who,
};
use crate::task::{Answer, Failure, Task, failed};

/// 1 is a deletion.
const DELETION: i32 = 1;

/// Puts a key where there is none.
fn take(key: &str, lease: i64) -> Transaction {
    let put = Put { key: key.as_bytes().to_vec(), value: b"benchmark".to_vec(), lease };
    let absent = Compare { target: 1, key: key.as_bytes().to_vec(), created: Some(0) };
    Transaction { compare: vec![absent], success: vec![Operation { put: Some(put), delete: None }] }
}

fn remove(key: &str) -> Transaction {
    let delete = Delete { key: key.as_bytes().to_vec() };
    Transaction { compare: Vec::new(), success: vec![Operation { put: None, delete: Some(delete) }] }
}

fn succeeded(done: Done) -> Result<(), Failure> {
    if done.succeeded { Ok(()) } else { failed("the floor's key was taken") }
}

/// One way to lock and unlock.
enum Way {
    /// Two puts: what any two changes cost.
    Puts,
    Session(i64),
    Each,
    RpcSession(i64),
    RpcEach,
}

struct Floor {
    etcd: Etcd,
    /// Keys that nobody else leaves behind.
    name: String,
    way: Way,
}

pub(super) async fn pairs(task: &Task) -> Result<Answer, Failure> {
    let etcd = Etcd::connect(task).await?;
    let way = match task.who.as_str() {
        who::FLOOR_PUTS => Way::Puts,
        who::FLOOR_SESSION => Way::Session(etcd.grant().await?),
        who::FLOOR_EACH => Way::Each,
        who::RPC_SESSION => Way::RpcSession(etcd.grant().await?),
        who::RPC_EACH => Way::RpcEach,
        other => return failed(format!("nobody called {other} does pairs on etcd")),
    };
    rate(Floor { etcd, name: task.who.clone(), way }, task).await
}

impl Pair for Floor {
    async fn pair(&self, at: usize) -> Result<(), Failure> {
        let Self { etcd, name, way } = self;
        let key = format!("{name}/{at}");
        match *way {
            Way::Puts => {
                etcd.put(&key).await?;
                etcd.put(&key).await.map(drop)
            }
            Way::Session(lease) => {
                succeeded(etcd.change(take(&key, lease)).await?)?;
                succeeded(etcd.change(remove(&key)).await?)
            }
            Way::Each => {
                let lease = etcd.grant().await?;
                succeeded(etcd.change(take(&key, lease)).await?)?;
                etcd.revoke(lease).await
            }
            Way::RpcSession(lease) => {
                let locked = etcd.lock(&format!("rpc/{at}"), lease).await?;
                etcd.unlock(locked).await
            }
            Way::RpcEach => {
                let lease = etcd.grant().await?;
                let locked = etcd.lock(&format!("rpc/{at}"), lease).await?;
                etcd.unlock(locked).await?;
                etcd.revoke(lease).await
            }
        }
    }
}

/// One of a ring: its key stands while it waits or holds, and it holds when its predecessor's key goes.
struct Neighbour {
    etcd: Etcd,
    key: String,
    predecessor: String,
    gone: Option<Streaming<Watched>>,
    holds: bool,
}

impl Neighbour {
    async fn join(&mut self) -> Result<(), Failure> {
        let put = self.etcd.put(&self.key).await?;
        // From the revision behind our own: what happened before is not what we wait for, and etcd has it at hand.
        let from = put.header.unwrap_or_default().revision + 1;
        self.gone = Some(self.etcd.watch(&self.predecessor, from).await?);
        Ok(())
    }
}

impl Turn for Neighbour {
    async fn take(&mut self) -> Result<(), Failure> {
        if std::mem::take(&mut self.holds) {
            return Ok(());
        }
        if self.gone.is_none() {
            self.join().await?;
        }
        let Some(mut gone) = self.gone.take() else { return failed("nothing to wait for") };
        loop {
            match gone.message().await? {
                Some(told) if told.events.iter().any(|event| event.kind == DELETION) => return Ok(()),
                Some(_) => {}
                None => return failed("the watch ended"),
            }
        }
    }

    async fn give(&mut self) -> Result<(), Failure> {
        succeeded(self.etcd.change(remove(&self.key)).await?)
    }
}

/// One who waits by etcd's own Lock service, on a lease of its own.
struct Locker {
    etcd: Etcd,
    lease: i64,
    held: Option<Vec<u8>>,
}

impl Turn for Locker {
    async fn take(&mut self) -> Result<(), Failure> {
        self.held = Some(self.etcd.lock("rpc/handed-over", self.lease).await?);
        Ok(())
    }

    async fn give(&mut self) -> Result<(), Failure> {
        match self.held.take() {
            Some(key) => self.etcd.unlock(key).await,
            None => failed("a holder had nothing"),
        }
    }
}

pub(super) async fn hand_over(task: &Task) -> Result<Answer, Failure> {
    let members = task.tasks() + 1;
    match task.who.as_str() {
        who::FLOOR => {
            let key = |at: usize| format!("floor/handed-over/{}/{at}", task.size);
            let mut ring = Vec::new();
            for at in 0..members {
                let (key, predecessor) = (key(at), key((at + members - 1) % members));
                let etcd = Etcd::connect(task).await?;
                ring.push(Neighbour { etcd, key, predecessor, gone: None, holds: at == 0 });
            }
            for neighbour in &mut ring {
                neighbour.join().await?;
            }
            // The first one holds already, and joins again when it has handed on.
            if let Some(first) = ring.first_mut() {
                first.gone = None;
            }
            hand_overs(ring, task).await
        }
        who::RPC_SESSION => {
            let mut line = Vec::new();
            for _ in 0..members {
                let etcd = Etcd::connect(task).await?;
                line.push(Locker { lease: etcd.grant().await?, etcd, held: None });
            }
            hand_overs(line, task).await
        }
        other => failed(format!("nobody called {other} hands over on etcd")),
    }
}
