//! Wakes: one channel per client, on a connection of its own, made when the first claim waits or the first grant is held.
//!
//! Whoever waits or holds leaves the client's address in the record; the script that frees or revokes publishes to that
//! one channel, so a wake disturbs nobody else and costs the server one delivery. A claim that queues waits for the
//! subscription first: afterwards no wake can be missed. A subscription that breaks is made again, and then everybody looks,
//! because something may have been said in between.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::StreamExt as _;
use leasehold_core::{Error, Kind, LeaseId, record::Wake};
use redis::aio::{PubSub, PubSubSink, PubSubStream};
use tokio::{
    sync::{Notify, watch},
    time::{interval, sleep, timeout},
};

use super::{dial, failure::Failure, op, target::Target};
use crate::{address::Host, coordinator::mailbox::Mailbox, sync::lock};

/// Where a client is woken: its channel's name. Drawn at random for each connection of a client.
pub(crate) type Address = [u8; 8];

/// Between two signs of life: half open connections are noticed within twice this.
const SIGN_EVERY: Duration = Duration::from_secs(5);
/// How long subscribing, or a sign of life, may take.
const LIMIT: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(2);
/// Grants that began before there was a subscription and are remembered to be looked at (ours: beyond that they learn of
/// a revocation at their next renewal).
const MAX_EARLY: usize = 256;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Nobody has asked for it, or it is being made.
    Pending,
    /// It stands.
    Listening,
    /// The last attempt failed; another one is coming.
    Failed,
}

/// The wakes of one client.
#[derive(Debug)]
pub(crate) struct Bell {
    address: Address,
    mailbox: Arc<Mailbox>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Rung when the subscription is needed, and when the bell is gone.
    wanted: Notify,
    gone: AtomicBool,
    state: watch::Sender<State>,
    early: Mutex<Vec<LeaseId>>,
}

impl Bell {
    /// A bell that listens on the runtime that polls this, once it is needed. `follow` says where the requests go: the
    /// subscription goes to the same server.
    pub(crate) fn hang(target: Target, follow: watch::Receiver<Option<Host>>) -> Result<Self, Error> {
        Ok(Self::hang_at(draw_address()?, Arc::default(), target, follow))
    }

    /// The same for one of several servers, at which this client has one address and from which it has one mailbox.
    pub(crate) fn hang_at(
        address: Address,
        mailbox: Arc<Mailbox>,
        target: Target,
        follow: watch::Receiver<Option<Host>>,
    ) -> Self {
        let state = watch::channel(State::Pending).0;
        let shared = Arc::new(Shared {
            wanted: Notify::new(),
            gone: AtomicBool::new(false),
            state,
            early: Mutex::default(),
        });
        let (mail, common) = (Arc::clone(&mailbox), Arc::clone(&shared));
        let listener = Listener { address, target, follow, mailbox: mail, shared: common };
        tokio::spawn(listener.listen());
        Self { address, mailbox, shared }
    }

    /// Where this client is woken.
    pub(crate) fn address(&self) -> Address {
        self.address
    }

    /// Waits until wakes arrive, or until it is clear that they will not for now.
    pub(crate) async fn ready(&self) {
        let mut state = self.shared.state.subscribe();
        self.shared.wanted.notify_one();
        // The sender lives in `self`.
        let _ = state.wait_for(|state| *state != State::Pending).await;
    }

    /// A grant begins: its holder is to hear of a revocation.
    pub(crate) fn expect(&self, lease_id: LeaseId) {
        if *self.shared.state.borrow() == State::Listening {
            return;
        }
        let mut early = lock(&self.shared.early);
        if early.len() < MAX_EARLY {
            early.push(lease_id);
        }
        drop(early);
        self.shared.wanted.notify_one();
    }

    /// The next wake. Dropping the future loses none.
    pub(crate) async fn next(&self) -> Wake {
        self.mailbox.next().await
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        self.shared.gone.store(true, Ordering::Release);
        self.shared.wanted.notify_one();
    }
}

struct Listener {
    address: Address,
    target: Target,
    follow: watch::Receiver<Option<Host>>,
    mailbox: Arc<Mailbox>,
    shared: Arc<Shared>,
}

impl Listener {
    async fn listen(mut self) {
        self.shared.wanted.notified().await;
        let (mut again, mut pause) = (false, FIRST_PAUSE);
        while !self.is_over() {
            match self.subscribe().await {
                Ok((host, sink, stream)) => {
                    pause = FIRST_PAUSE;
                    self.begin(again);
                    again = true;
                    self.hear(&host, sink, stream).await;
                    self.tell(State::Pending);
                }
                Err(failure) => {
                    tracing::debug!(target: "leasehold", error = %failure.error, "no subscription to wakes");
                    again = true;
                    self.tell(State::Failed);
                    sleep(pause).await;
                    pause = (pause * 2).min(LAST_PAUSE);
                }
            }
        }
    }

    /// It ends with its bell.
    fn is_over(&self) -> bool {
        self.shared.gone.load(Ordering::Acquire)
    }

    fn tell(&self, state: State) {
        self.shared.state.send_replace(state);
    }

    /// The subscription stands from now on.
    fn begin(&self, again: bool) {
        self.tell(State::Listening);
        for lease_id in std::mem::take(&mut *lock(&self.shared.early)) {
            self.mailbox.push(Wake::Lease(lease_id));
        }
        if again {
            self.mailbox.push(Wake::All);
        }
    }

    async fn subscribe(&self) -> Result<(Host, PubSubSink, PubSubStream), Failure> {
        let make = async {
            let (host, login) = self.target.find().await?;
            let mut connection: PubSub = dial::messages(&host, &login).await?;
            let channel = channel(self.address);
            connection.subscribe(channel).await.map_err(|error| super::failure::of_login(&error))?;
            let (sink, stream) = connection.split();
            Ok((host, sink, stream))
        };
        timeout(LIMIT, make)
            .await
            .unwrap_or_else(|_| Err(Failure::unsent("the server takes no subscription")))
    }

    /// Hears wakes until the connection breaks, falls silent, or leads to another server than the requests do.
    async fn hear(&mut self, host: &Host, mut sink: PubSubSink, mut stream: PubSubStream) {
        let mut signs = interval(SIGN_EVERY);
        signs.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = stream.next() => match message {
                    Some(message) => {
                        if let Some(lease_id) = op::lease_id(message.get_payload_bytes()) {
                            self.mailbox.push(Wake::Lease(lease_id));
                        }
                    }
                    None => return,
                },
                _ = signs.tick() => {
                    let alive = timeout(LIMIT, sink.ping::<redis::Value>()).await;
                    if !matches!(alive, Ok(Ok(_))) {
                        return;
                    }
                }
                () = self.shared.wanted.notified() => if self.is_over() { return },
                changed = self.follow.changed() => {
                    let elsewhere = self.follow.borrow_and_update().as_ref().is_some_and(|now| now != host);
                    if changed.is_err() || elsewhere {
                        return;
                    }
                }
            }
        }
    }
}

/// Draws an address.
pub(crate) fn draw_address() -> Result<Address, Error> {
    let mut address = Address::default();
    getrandom::fill(&mut address).map_err(|reason| {
        Error::new(Kind::Unavailable, format!("the operating system gave no random bytes: {reason}"))
    })?;
    Ok(address)
}

/// The channel of an address.
fn channel(address: Address) -> String {
    address.iter().fold("lh:wake:".to_owned(), |name, byte| format!("{name}{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_is_named_as_the_script_names_it() {
        assert_eq!(channel([0, 1, 0xab, 0xff, 0, 0, 0, 9]), "lh:wake:0001abff00000009");
    }
}
