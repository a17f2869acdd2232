//! One stream for the keepalives of all leases of a client.
//!
//! etcd answers the keepalives of one stream in the order in which they came, so answers are matched by lease and order.
//! The stream is opened when it is needed, and anew when it breaks, when the client has turned to another member, or when
//! an answer has been due for long. What was outstanding on it is then unanswered, and never sent again from here.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot, watch},
    time::timeout,
};
use tonic::Streaming;

use super::{
    failure::Fail,
    member::Link,
    proto::{KeepAliveResponse, LeaseRequest},
    rpc::{READ_LIMIT, Rpc, unanswered},
};
use crate::clock;

/// An answer that has been due for so long makes the next question go to another stream.
const OVERDUE_US: u64 = 500_000;

/// etcd's answer to a keepalive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Beat {
    /// Seconds for which the lease lives from now on; 0 when there is none.
    pub(super) ttl: u64,
    /// The raft term of the member that answered.
    pub(super) term: u64,
}

/// Sends keepalives.
#[derive(Debug)]
pub(super) struct KeepAlive {
    asks: mpsc::UnboundedSender<Ask>,
}

struct Ask {
    lease: i64,
    answer: oneshot::Sender<Result<Beat, Fail>>,
}

impl KeepAlive {
    /// Starts the stream's task. It ends when this is dropped.
    pub(super) fn start(rpc: Arc<Rpc>) -> Self {
        let (asks, asked) = mpsc::unbounded_channel();
        tokio::spawn(run(rpc, asked));
        Self { asks }
    }

    /// Keeps a lease alive. The request is on its way when this returns; the answer is awaited apart.
    pub(super) fn send(&self, lease: i64) -> impl Future<Output = Result<Beat, Fail>> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        // A task that is gone drops the question, which answers it.
        let _ = self.asks.send(Ask { lease, answer });
        async move {
            match timeout(READ_LIMIT, answered).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Err(Fail::Unanswered("the keepalive stream ended".to_owned())),
                Err(_) => Err(unanswered(READ_LIMIT)),
            }
        }
    }
}

async fn run(rpc: Arc<Rpc>, mut asks: mpsc::UnboundedReceiver<Ask>) {
    let mut next = asks.recv().await;
    while let Some(ask) = next {
        let (questions, asked) = mpsc::unbounded_channel();
        // The server answers the opening only when it has a question to answer.
        let mut stream = Stream::new(questions);
        let turns = rpc.turns();
        stream.ask(ask);
        match rpc.stream("/etcdserverpb.Lease/LeaseKeepAlive", asked).await {
            Ok((link, answers)) => next = stream.serve(&rpc, &link, answers, &mut asks, turns).await,
            Err(fail) => {
                stream.fail(&fail);
                next = asks.recv().await;
            }
        }
    }
}

/// An open stream and what is outstanding on it.
struct Stream {
    questions: mpsc::UnboundedSender<LeaseRequest>,
    outstanding: HashMap<i64, VecDeque<oneshot::Sender<Result<Beat, Fail>>>>,
    count: usize,
    /// When the last answer came, or the first question went out after a pause.
    heard_us: u64,
}

impl Stream {
    fn new(questions: mpsc::UnboundedSender<LeaseRequest>) -> Self {
        Self { questions, outstanding: HashMap::new(), count: 0, heard_us: 0 }
    }

    fn ask(&mut self, ask: Ask) {
        if self.count == 0 {
            self.heard_us = clock::boot_us();
        }
        self.count += 1;
        self.outstanding.entry(ask.lease).or_default().push_back(ask.answer);
        let _ = self.questions.send(LeaseRequest { id: ask.lease });
    }

    /// Serves until the stream ends. Returns the question with which to open the next one.
    async fn serve(
        mut self,
        rpc: &Rpc,
        link: &Link,
        mut answers: Streaming<KeepAliveResponse>,
        asks: &mut mpsc::UnboundedReceiver<Ask>,
        mut turns: watch::Receiver<u64>,
    ) -> Option<Ask> {
        loop {
            tokio::select! {
                biased;
                message = answers.message() => match message {
                    Ok(Some(answer)) => self.answered(&answer),
                    Ok(None) => {
                        self.fail(&Fail::Unanswered("the keepalive stream ended".to_owned()));
                        return asks.recv().await;
                    }
                    Err(status) => {
                        let fail = Fail::of(&status);
                        if fail == Fail::StaleLogin {
                            rpc.forget_login().await;
                        }
                        rpc.avoid(link);
                        self.fail(&Fail::Unanswered(status.message().to_owned()));
                        return asks.recv().await;
                    }
                },
                _ = turns.changed() => {
                    self.linger(answers).await;
                    return asks.recv().await;
                }
                ask = asks.recv() => {
                    let ask = ask?;
                    if self.count > 0 && clock::boot_us().saturating_sub(self.heard_us) > OVERDUE_US {
                        rpc.avoid(link);
                        self.fail(&unanswered(Duration::from_micros(OVERDUE_US)));
                        return Some(ask);
                    }
                    self.ask(ask);
                }
            }
        }
    }

    /// Waits a moment for what is outstanding on a stream that is given up.
    async fn linger(mut self, mut answers: Streaming<KeepAliveResponse>) {
        let rest = async {
            while self.count > 0 {
                match answers.message().await {
                    Ok(Some(answer)) => self.answered(&answer),
                    _ => break,
                }
            }
        };
        let _ = timeout(Duration::from_micros(OVERDUE_US / 5), rest).await;
        self.fail(&Fail::Unanswered("the connection was given up".to_owned()));
    }

    fn answered(&mut self, answer: &KeepAliveResponse) {
        self.heard_us = clock::boot_us();
        let Some(waiting) = self.outstanding.get_mut(&answer.id) else { return };
        if let Some(first) = waiting.pop_front() {
            self.count = self.count.saturating_sub(1);
            let term = answer.header.map_or(0, |header| header.raft_term);
            // Nobody may be listening any more.
            let _ = first.send(Ok(Beat { ttl: u64::try_from(answer.ttl).unwrap_or(0), term }));
        }
        if waiting.is_empty() {
            self.outstanding.remove(&answer.id);
        }
    }

    fn fail(&mut self, fail: &Fail) {
        self.count = 0;
        for waiting in self.outstanding.drain().flat_map(|(_, waiting)| waiting) {
            let _ = waiting.send(Err(fail.clone()));
        }
    }
}
