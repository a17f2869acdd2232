//! One stream for all watches of a client.
//!
//! A watch is told of changes of one key after one revision. When the stream breaks, or etcd has forgotten that revision,
//! every watch concerned is told that it has ended: whoever wants to know must then read what is there, and watch from there.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use tokio::sync::{mpsc, watch};
use tonic::Streaming;

use super::{
    failure::Fail,
    member::Link,
    proto::{Event, WatchCancel, WatchCreate, WatchOrder, WatchRequest, WatchResponse},
    rpc::Rpc,
};

/// Opens watches.
#[derive(Debug)]
pub(super) struct Watches {
    orders: mpsc::UnboundedSender<Order>,
    next: AtomicI64,
}

/// One watch. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Watch {
    id: i64,
    events: mpsc::UnboundedReceiver<Event>,
    orders: mpsc::UnboundedSender<Order>,
}

#[derive(Debug)]
enum Order {
    Open { id: i64, key: String, after: i64, events: mpsc::UnboundedSender<Event> },
    Close { id: i64 },
}

impl Watches {
    /// Starts the stream's task. It ends when this and all watches are dropped.
    pub(super) fn start(rpc: Arc<Rpc>) -> Self {
        let (orders, ordered) = mpsc::unbounded_channel();
        tokio::spawn(run(rpc, ordered));
        Self { orders, next: AtomicI64::new(1) }
    }

    /// Watches a key for what happens after `after`: the revision of the answer that showed its state. (From that revision
    /// itself, etcd would wait until it has synchronised the watch with its history, which takes up to 100 ms.)
    pub(super) fn open(&self, key: String, after: i64) -> Watch {
        let (events, received) = mpsc::unbounded_channel();
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let _ = self.orders.send(Order::Open { id, key, after, events });
        Watch { id, events: received, orders: self.orders.clone() }
    }
}

impl Watch {
    /// The next change; `None` when something may have been missed.
    pub(super) async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::Close { id: self.id });
    }
}

/// The watches that are open, by number.
type Open = HashMap<i64, mpsc::UnboundedSender<Event>>;

async fn run(rpc: Arc<Rpc>, mut orders: mpsc::UnboundedReceiver<Order>) {
    let mut next = orders.recv().await;
    while let Some(order) = next {
        let turns = rpc.turns();
        let (questions, asked) = mpsc::unbounded_channel();
        let mut open = Open::new();
        // A watch that was ordered and is not in here has ended: its sender is gone.
        carry_out(order, &questions, &mut open);
        if let Ok((link, answers)) = rpc.stream("/etcdserverpb.Watch/Watch", asked).await {
            serve(&rpc, &link, answers, &questions, &mut open, &mut orders, turns).await;
        }
        drop(open);
        next = orders.recv().await;
    }
}

async fn serve(
    rpc: &Rpc,
    link: &Link,
    mut answers: Streaming<WatchResponse>,
    questions: &mpsc::UnboundedSender<WatchRequest>,
    open: &mut Open,
    orders: &mut mpsc::UnboundedReceiver<Order>,
    mut turns: watch::Receiver<u64>,
) {
    loop {
        tokio::select! {
            biased;
            message = answers.message() => match message {
                Ok(Some(answer)) => {
                    if is_about_login(&answer) {
                        // The stream goes on with the login that it was opened with: another one is needed.
                        rpc.forget_login().await;
                        return;
                    }
                    deliver(answer, open);
                }
                Ok(None) => return,
                Err(status) => {
                    if Fail::of(&status).is_the_members() {
                        rpc.avoid(link);
                    }
                    return;
                }
            },
            _ = turns.changed() => return,
            order = orders.recv() => match order {
                Some(order) => carry_out(order, questions, open),
                None => return,
            },
        }
    }
}

fn carry_out(order: Order, questions: &mpsc::UnboundedSender<WatchRequest>, open: &mut Open) {
    let order = match order {
        Order::Open { id, key, after, events } => {
            open.insert(id, events);
            WatchOrder::Create(WatchCreate { key: key.into(), start_revision: after + 1, watch_id: id })
        }
        Order::Close { id } => {
            if open.remove(&id).is_none() {
                return;
            }
            WatchOrder::Cancel(WatchCancel { watch_id: id })
        }
    };
    // A stream that is gone is noticed by whoever reads it.
    let _ = questions.send(WatchRequest { order: Some(order) });
}

fn deliver(answer: WatchResponse, open: &mut Open) {
    if answer.canceled {
        open.remove(&answer.watch_id);
        return;
    }
    let Some(events) = open.get(&answer.watch_id) else { return };
    for event in answer.events {
        // Nobody may be listening any more; its end is on the way.
        let _ = events.send(event);
    }
}

fn is_about_login(answer: &WatchResponse) -> bool {
    answer.canceled
        && (answer.cancel_reason.contains("auth token") || answer.cancel_reason.contains("permission denied"))
}
