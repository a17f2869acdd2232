//! Calls to a cluster: which member is asked, with which login, for how long, and when another may be asked instead.
//!
//! One member is asked until it disappoints; then the next one in the URL's order. A call is sent again only where the first
//! attempt certainly had no effect, or where it changes nothing. The client library retries nothing by itself.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use leasehold_core::Error;
use prost::Message;
use tokio::{sync::watch, time::timeout};
use tonic::{
    Request, Response, Streaming,
    client::Grpc,
    codegen::{http::uri::PathAndQuery, tokio_stream::wrappers::UnboundedReceiverStream},
    transport::Channel,
};
use tonic_prost::ProstCodec;

use super::{
    failure::Fail,
    login::Login,
    member::{Link, Member},
    options::Options,
};
use crate::clock;

/// How long a read may take: longer than any healthy member's worst day, and short enough to ask two of them within the time
/// that a caller gives us.
pub(super) const READ_LIMIT: Duration = Duration::from_secs(2);
/// How long a write may take: a leader's disk may be slow, and what has been sent cannot be sent again.
const WRITE_LIMIT: Duration = Duration::from_secs(4);
/// A member that has not answered for so long is left alone by those who come next.
const DISAPPOINTING_US: u64 = 500_000;

/// Whether a call may be repeated elsewhere when nobody knows what became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Effect {
    /// It changes nothing, or only makes what ends by itself.
    None,
    /// It may.
    Some,
}

/// The way to a cluster.
#[derive(Debug)]
pub(super) struct Rpc {
    members: Vec<Member>,
    current: AtomicUsize,
    /// Counts how often another member was turned to: streams are then opened anew.
    turns: watch::Sender<u64>,
    login: Login,
}

impl Rpc {
    /// # Errors
    /// [`leasehold_core::Kind::Invalid`] for TLS files that cannot be used.
    pub(super) fn new(options: &Options) -> Result<Self, Error> {
        let members = Member::all(options)?;
        let (turns, _) = watch::channel(0);
        let login = Login::new(options.login.clone());
        Ok(Self { members, current: AtomicUsize::new(0), turns, login })
    }

    /// Follows the turns from one member to another.
    pub(super) fn turns(&self) -> watch::Receiver<u64> {
        self.turns.subscribe()
    }

    /// The members that the URL names.
    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }

    /// A connection to the current member, or to the first one behind it that can be reached.
    pub(super) async fn link(&self) -> Result<Arc<Link>, Fail> {
        let first = self.current.load(Ordering::Relaxed);
        let mut failed = Fail::NotSent("no member is named".to_owned());
        for step in 0..self.members.len() {
            let at = (first + step) % self.members.len();
            match self.members[at].link().await {
                Ok(link) => {
                    // Whoever found a way first decides for those who are still looking.
                    let _ = self.current.compare_exchange(first, at, Ordering::Relaxed, Ordering::Relaxed);
                    return Ok(link);
                }
                Err(fail) => failed = fail,
            }
        }
        Err(failed)
    }

    /// Turns away from a connection: it is given up, and the next member becomes the current one.
    pub(super) fn avoid(&self, link: &Link) {
        let member = link.member();
        if self.members[member].drop_link(link) {
            let next = (member + 1) % self.members.len();
            let _ = self.current.compare_exchange(member, next, Ordering::Relaxed, Ordering::Relaxed);
            self.turns.send_modify(|turns| *turns += 1);
        }
    }

    /// Asks and waits for the answer.
    pub(super) async fn call<Q, A>(&self, path: &'static str, question: Q, effect: Effect) -> Result<A, Fail>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let limit = if effect == Effect::None { READ_LIMIT } else { WRITE_LIMIT };
        let mut tries = self.members.len() + 1;
        loop {
            let link = self.link().await?;
            let token = self.login.token(&link).await?;
            let mut pending = Pending::new(self, &link);
            let mut request = Request::new(question.clone());
            if let Some(token) = &token {
                request.metadata_mut().insert("token", token.clone());
            }
            let answer = ask(&link, path, request, limit).await;
            pending.settle();
            let fail = match answer {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(fail) => fail,
            };
            match &fail {
                Fail::StaleLogin if !self.login.is_given() => {
                    return Err(Fail::Denied("it wants a user and a password".to_owned()));
                }
                Fail::StaleLogin => self.login.forget(token).await,
                // The only member there is says so itself when it will do.
                Fail::NotBegun(_) if self.members.len() == 1 => return Err(fail),
                fail if fail.is_the_members() => self.avoid(&link),
                _ => {}
            }
            let harmless = effect == Effect::None && matches!(fail, Fail::Unanswered(_));
            tries -= 1;
            if tries == 0 || !(fail.may_be_sent_again() || harmless) {
                return Err(fail);
            }
        }
    }

    /// Asks one member, not whichever is current. For looking at each of them.
    pub(super) async fn call_member<Q, A>(
        &self,
        at: usize,
        path: &'static str,
        question: Q,
    ) -> Result<A, Fail>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let link = self.members[at].link().await?;
        let mut request = Request::new(question);
        if let Some(token) = self.login.token(&link).await? {
            request.metadata_mut().insert("token", token);
        }
        ask(&link, path, request, READ_LIMIT).await.map(Response::into_inner)
    }

    /// Opens a stream in both directions on the current member. What is sent into the channel goes out on it.
    pub(super) async fn stream<Q, A>(
        &self,
        path: &'static str,
        questions: tokio::sync::mpsc::UnboundedReceiver<Q>,
    ) -> Result<(Arc<Link>, Streaming<A>), Fail>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let link = self.link().await?;
        let token = self.login.token(&link).await?;
        let mut request = Request::new(UnboundedReceiverStream::new(questions));
        if let Some(token) = token {
            request.metadata_mut().insert("token", token);
        }
        require_leader(&mut request);
        let mut client: Grpc<Channel> = Grpc::new(link.channel());
        let open = async {
            client.ready().await.map_err(|error| Fail::NotSent(error.to_string()))?;
            let codec = ProstCodec::default();
            client
                .streaming(request, PathAndQuery::from_static(path), codec)
                .await
                .map_err(|status| Fail::of(&status))
        };
        let opened = timeout(READ_LIMIT, open).await.unwrap_or_else(|_| Err(unanswered(READ_LIMIT)));
        match opened {
            Ok(answers) => Ok((link, answers.into_inner())),
            Err(fail) => {
                if fail.is_the_members() {
                    self.avoid(&link);
                }
                Err(fail)
            }
        }
    }

    /// True when the cluster has told that it has no users.
    pub(super) async fn has_no_users(&self) -> bool {
        self.login.is_not_needed().await
    }

    /// Forgets the login: a stream was refused because of it.
    pub(super) async fn forget_login(&self) {
        self.login.forget_any().await;
    }
}

/// One attempt on one connection.
pub(super) async fn ask<Q, A>(
    link: &Link,
    path: &'static str,
    mut request: Request<Q>,
    limit: Duration,
) -> Result<Response<A>, Fail>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    require_leader(&mut request);
    let mut client: Grpc<Channel> = Grpc::new(link.channel());
    let asked = async {
        client.ready().await.map_err(|error| Fail::NotSent(error.to_string()))?;
        let codec = ProstCodec::default();
        client
            .unary(request, PathAndQuery::from_static(path), codec)
            .await
            .map_err(|status| Fail::of(&status))
    };
    timeout(limit, asked).await.unwrap_or_else(|_| Err(unanswered(limit)))
}

/// A member without a leader answers so at once, instead of letting the request wait for one.
fn require_leader<Q>(request: &mut Request<Q>) {
    request.metadata_mut().insert("hasleader", tonic::metadata::MetadataValue::from_static("true"));
}

pub(super) fn unanswered(limit: Duration) -> Fail {
    Fail::Unanswered(format!("no answer within {limit:?}"))
}

/// A call under way. Whoever gives it up after waiting for long has learnt something about the member.
struct Pending<'a> {
    rpc: &'a Rpc,
    link: Arc<Link>,
    sent_us: u64,
    settled: bool,
}

impl<'a> Pending<'a> {
    fn new(rpc: &'a Rpc, link: &Arc<Link>) -> Self {
        Self { rpc, link: Arc::clone(link), sent_us: clock::boot_us(), settled: false }
    }

    fn settle(&mut self) {
        self.settled = true;
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.settled && clock::boot_us().saturating_sub(self.sent_us) >= DISAPPOINTING_US {
            self.rpc.avoid(&self.link);
        }
    }
}
