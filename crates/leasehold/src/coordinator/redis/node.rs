//! One server that keeps leases by itself: its connection, and the scripts on it.
//!
//! A node knows shards and operations, not what a coordinator makes of them, so that several independent ones can also be
//! asked together.

use std::{sync::Arc, time::Duration};

use futures_util::future::try_join_all;
use redis::{Cmd, Value};

use super::{
    failure::Failure,
    link::{Link, Replicas},
    op::Op,
    queue::Task,
    space::Space,
    target::Target,
};

pub(crate) use super::flight::MAX_OPS;

/// One server.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    link: Link,
}

impl Node {
    /// Connects. The connection's task lives on the runtime that polls this.
    pub(crate) async fn open(target: Target, replicas: Option<Replicas>) -> Result<Self, Failure> {
        Ok(Self { link: Link::open(target, replicas).await? })
    }

    /// The same without a connection, which is made when it is first needed. What waits for one waits for `patience` at most.
    pub(crate) fn idle(target: Target, patience: Duration) -> Self {
        Self { link: Link::idle(target, patience) }
    }

    /// Runs operations on a shard, in one script ([`MAX_OPS`] at most), and says what time it was at the server. They have
    /// their place in the order at once, before this is waited for.
    pub(crate) fn post(
        &self,
        space: &Arc<Space>,
        ops: Vec<Op>,
    ) -> impl Future<Output = Result<(u64, Vec<Value>), Failure>> + Send + use<> {
        let answer = self.link.post(Task::Step { space: Arc::clone(space), ops, asking: false });
        async move {
            let mut answers = answer.await?;
            if answers.is_empty() {
                return Err(Failure::unanswered("the server did not say its time"));
            }
            let now = redis::from_redis_value(answers.remove(0)).unwrap_or_default();
            Ok((now, answers))
        }
    }

    /// Runs operations on a shard, each of them atomic, in one script where they are no more than [`MAX_OPS`]. One answer
    /// per operation.
    pub(crate) async fn step(&self, space: &Arc<Space>, ops: Vec<Op>) -> Result<Vec<Value>, Failure> {
        self.send(space, ops, false).await
    }

    /// The same on a node of a Cluster that is about to get the slot.
    pub(crate) async fn step_asking(&self, space: &Arc<Space>, ops: Vec<Op>) -> Result<Vec<Value>, Failure> {
        self.send(space, ops, true).await
    }

    async fn send(&self, space: &Arc<Space>, mut ops: Vec<Op>, asking: bool) -> Result<Vec<Value>, Failure> {
        if ops.len() <= MAX_OPS && !ops.is_empty() {
            let mut answers = self.link.call(Task::Step { space: Arc::clone(space), ops, asking }).await?;
            // The first answer of each call is the server's time.
            answers.drain(..1.min(answers.len()));
            return Ok(answers);
        }
        let mut calls = Vec::new();
        while !ops.is_empty() {
            let rest = ops.split_off(ops.len().min(MAX_OPS));
            calls.push(self.link.call(Task::Step { space: Arc::clone(space), ops, asking }));
            ops = rest;
        }
        let answers = try_join_all(calls).await?;
        Ok(answers.into_iter().flat_map(|call| call.into_iter().skip(1)).collect())
    }

    #[cfg(test)]
    pub(super) async fn timed(&self, space: &Arc<Space>, op: Op) -> Result<(u64, Value), Failure> {
        let (now, answers) = self.post(space, vec![op]).await?;
        Ok((now, answers.into_iter().next().unwrap_or(Value::Nil)))
    }

    /// Runs a plain command.
    pub(crate) async fn plain(&self, command: Cmd) -> Result<Value, Failure> {
        let answers = self.link.call(Task::Plain(command)).await?;
        Ok(answers.into_iter().next().unwrap_or(Value::Nil))
    }

    /// The server that the connection leads to, while there is one.
    pub(crate) fn leads_to(&self) -> tokio::sync::watch::Receiver<Option<crate::address::Host>> {
        self.link.leads_to()
    }
}
