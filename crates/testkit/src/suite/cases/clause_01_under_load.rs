//! Clause 1 when many ask at once.

use std::{future::Future, sync::Arc, time::Duration};

use leasehold_core::{
    Coordinator, Error, Kind,
    record::{Acquired, Grant, Released, Renewed},
    request::Claim,
    window::Margin,
};

use super::super::{
    Context, Failure, Verdict,
    context::{GLANCE, PATIENCE},
    failure::{ensure, ensure_eq},
    shape::{Shape as _, Taken, take_back},
};
use crate::{
    check::{Event, History, What},
    clock::{Stopwatch, boot_ns},
    random::{Choices, seed},
};

pub(super) async fn clause_01_fifty_claims_have_one_winner(context: Context) -> Verdict {
    let claim = context.claim("orders/42")?;
    let mut clients = vec![Arc::clone(context.main())];
    for _ in 0..4 {
        clients.push(context.client().await?);
    }
    let mut tasks = Vec::new();
    for at in 0..50 {
        let (client, claim) = (Arc::clone(&clients[at % clients.len()]), claim.again());
        tasks.push(tokio::spawn(async move {
            settled(|| client.acquire(claim.clone())).await.map(|answer| (claim.clone(), answer))
        }));
    }
    let (mut winners, mut named) = (Vec::new(), Vec::new());
    for task in tasks {
        let (claim, answer) = task.await.map_err(|error| Failure::new(error.to_string()))??;
        match answer {
            Acquired::Granted(_) => winners.push(claim.lease_id),
            Acquired::Busy(busy) => named.push(busy.holder.lease_id),
            other => return Err(Failure::new(format!("a claim is granted or finds it busy: got {other:?}"))),
        }
    }
    ensure_eq!(winners.len(), 1, "fifty claims have one winner");
    ensure!(named.iter().all(|id| winners.contains(id)), "every loser is told who won");
    Ok(())
}

const WORKERS: u64 = 8;
const ROUNDS: u64 = 25;
const RESOURCES: u64 = 3;

/// Claims, renewals, releases and desertions by eight workers on three resources, judged by the history checker.
pub(super) async fn clause_01_a_concurrent_history_is_clean(context: Context) -> Verdict {
    let seed = seed();
    let mut tasks = Vec::new();
    for worker in 0..WORKERS {
        let client = context.client().await?;
        let mut claims = Vec::new();
        for at in 0..RESOURCES {
            claims.push(context.claim(&format!("r{at}"))?.for_(context.short()));
        }
        let mut choices = Choices::new(seed ^ worker);
        tasks.push(tokio::spawn(async move {
            let mut worker = Worker { name: format!("worker-{worker}"), client, events: Vec::new() };
            for _ in 0..ROUNDS {
                let at = usize::try_from(choices.below(RESOURCES)).unwrap_or_default();
                let claim = claims[at].again();
                let claim = if choices.one_in(2) { claim.queueing() } else { claim };
                worker.round(&claim, &mut choices).await?;
            }
            Ok::<_, Failure>(worker.events)
        }));
    }
    let mut events = Vec::new();
    for task in tasks {
        events.extend(task.await.map_err(|error| Failure::new(error.to_string()))??);
    }
    let report = History::new(events).judge();
    ensure!(
        report.judged.grants >= 10,
        "too few grants to mean anything: {} (seed {seed})",
        report.judged.grants
    );
    ensure!(report.is_clean(), "the history breaks an invariant (seed {seed}): {report}");
    Ok(())
}

/// A request that certainly had no effect is made again: with so many at once, one may be in another's way for longer than an
/// engine waits for.
async fn settled<T, F: Future<Output = Result<T, Error>>>(ask: impl Fn() -> F) -> Result<T, Error> {
    let since = Stopwatch::start();
    loop {
        match ask().await {
            Err(error) if error.kind() == Kind::Unavailable && since.elapsed() < PATIENCE => {
                tokio::time::sleep(GLANCE).await;
            }
            answer => return answer,
        }
    }
}

struct Worker {
    name: String,
    client: Arc<dyn Coordinator>,
    events: Vec<Event>,
}

impl Worker {
    fn note(&mut self, claim: &Claim, what: What) {
        self.events.push(Event::now(&self.name, claim.resource.as_str(), claim.lease_id, what));
    }

    /// Asks once or, in the queue, for a while. With when the granted request was sent.
    async fn ask(
        &mut self,
        claim: &Claim,
        choices: &mut Choices,
    ) -> Result<Option<(Stopwatch, Grant)>, Failure> {
        self.note(claim, What::Attempt);
        for _ in 0..if claim.queue { 30 } else { 1 } {
            let sent = Stopwatch::start();
            if let Acquired::Granted(grant) = settled(|| self.client.acquire(claim.clone())).await? {
                return Ok(Some((sent, grant)));
            }
            tokio::time::sleep(Duration::from_millis(5 + choices.below(20))).await;
        }
        self.note(claim, What::GaveUp);
        // A place that is left without a word must not matter to the others, but it does keep try-once claims out.
        if !choices.one_in(10) {
            let _left = settled(|| Coordinator::release(&*self.client, take_back(claim))).await?;
        }
        Ok(None)
    }

    async fn round(&mut self, claim: &Claim, choices: &mut Choices) -> Verdict {
        let Some((sent, grant)) = self.ask(claim, choices).await? else { return Ok(()) };
        let taken = Taken { claim: claim.clone(), grant };
        let close_ns = closes(sent, &taken);
        if close_ns <= boot_ns() {
            // Too late: the window was over before the answer came.
            return Ok(());
        }
        let (token, sent_ns) = (taken.token(), Some(sent.started_ns()));
        self.note(
            claim,
            What::Granted {
                token,
                sent_ns,
                open_ns: boot_ns(),
                close_ns,
                ttl_ms: Some(claim.ttl.as_millis()),
            },
        );
        tokio::time::sleep(Duration::from_millis(choices.below(20))).await;
        if choices.one_in(3) {
            let sent = Stopwatch::start();
            let renewed = settled(|| async {
                let mut answers = self.client.renew(vec![taken.renewal()]).await?;
                answers.pop().unwrap_or_else(|| Err(Error::new(Kind::Corrupt, "one renewal has no answer")))
            });
            if let Renewed::Extended { .. } = renewed.await? {
                if boot_ns() < close_ns {
                    self.note(
                        claim,
                        What::Extended {
                            token,
                            sent_ns: Some(sent.started_ns()),
                            close_ns: closes(sent, &taken),
                        },
                    );
                }
            } else if boot_ns() < close_ns {
                return Err(Failure::new("a renewal inside the window was refused"));
            }
        }
        if choices.one_in(5) {
            return Ok(()); // deserted: the window stays open until it closes by itself
        }
        self.note(claim, What::Released { token });
        let before_close = boot_ns() < close_ns;
        let answer = settled(|| Coordinator::release(&*self.client, taken.release())).await?;
        let ended = matches!(answer, Released::Ended);
        ensure!(
            ended || !before_close || boot_ns() >= close_ns,
            "a release inside the window was refused: {answer:?}"
        );
        Ok(())
    }
}

fn closes(sent: Stopwatch, taken: &Taken) -> u64 {
    let window = Margin::DEFAULT.window_of(taken.claim.ttl);
    sent.started_ns().saturating_add(u64::try_from(window.as_nanos()).unwrap_or(u64::MAX))
}
