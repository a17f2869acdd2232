//! Where calls wait for their turn on a connection.
//!
//! A call that comes while nothing is under way is due at once. While something is, the others gather, and leave together: when
//! it is over, or before, as soon as they are no fewer than what is under way. So the server always has its next message, and
//! under load few large messages go instead of many small ones: a call of the script has its price, whatever it does.

use std::sync::{Arc, Mutex};

use redis::Cmd;
use tokio::sync::{Notify, oneshot};

use super::{flight::MAX_OPS, link::Answer, op::Op, space::Space};
use crate::sync::lock;

/// What is to be done for one call.
#[derive(Debug)]
pub(crate) enum Task {
    /// Operations of a shard, all of one kind; at most [`MAX_OPS`]. With `asking` they go to a node that is only about to get the slot.
    Step { space: Arc<Space>, ops: Vec<Op>, asking: bool },
    /// A plain command.
    Plain(Cmd),
}

impl Task {
    fn size(&self) -> usize {
        match self {
            Self::Step { ops, .. } => ops.len(),
            Self::Plain(_) => 1,
        }
    }
}

#[derive(Debug)]
pub(super) struct Job {
    pub(super) task: Task,
    pub(super) answer: oneshot::Sender<Answer>,
}

#[derive(Debug, Default)]
struct Waiting {
    jobs: Vec<Job>,
    /// Operations of all of them.
    size: usize,
    /// The operations of each lot that is under way, the earliest first.
    under_way: Vec<Lot>,
    /// How many lots there have been.
    lots: u64,
    /// True once there is nobody to ask, or nobody to do it.
    closed: bool,
}

#[derive(Debug)]
struct Lot {
    number: u64,
    size: usize,
}

impl Waiting {
    /// True when what waits should leave now.
    fn is_due(&self, most: usize) -> bool {
        let Some(last) = self.under_way.last() else { return !self.jobs.is_empty() };
        !self.jobs.is_empty() && self.under_way.len() < most && self.size >= last.size.min(MAX_OPS)
    }
}

/// The calls that wait, shared by those who ask and the task that sends.
#[derive(Debug)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    /// Lots that may be under way at once.
    most: usize,
    changed: Notify,
}

/// Calls that leave together, and the number under which they are [over](Queue::over).
pub(super) struct Launch {
    pub(super) jobs: Vec<Job>,
    pub(super) lot: u64,
}

impl Queue {
    pub(super) fn new(most: usize) -> Self {
        Self { waiting: Mutex::default(), most, changed: Notify::new() }
    }

    /// Adds a call. False when nobody will do it any more.
    pub(super) fn push(&self, job: Job) -> bool {
        let mut waiting = lock(&self.waiting);
        if waiting.closed {
            return false;
        }
        waiting.size += job.task.size();
        waiting.jobs.push(job);
        let due = waiting.is_due(self.most);
        drop(waiting);
        if due {
            self.changed.notify_one();
        }
        true
    }

    /// The calls that are due, waiting for some. `None` once the queue is closed and empty. Dropping the future loses nothing.
    pub(super) async fn next(&self) -> Option<Launch> {
        loop {
            {
                let mut waiting = lock(&self.waiting);
                if waiting.is_due(self.most) {
                    return Some(take(&mut waiting));
                }
                if waiting.closed && waiting.jobs.is_empty() {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }

    /// A lot is answered, or will not be.
    pub(super) fn over(&self, lot: u64) {
        let mut waiting = lock(&self.waiting);
        waiting.under_way.retain(|under_way| under_way.number != lot);
        let due = waiting.is_due(self.most);
        drop(waiting);
        if due {
            self.changed.notify_one();
        }
    }

    /// Nobody asks any more: what waits is still done.
    pub(super) fn close(&self) {
        lock(&self.waiting).closed = true;
        self.changed.notify_one();
    }

    /// Nobody will do what waits: each call is told so by its channel.
    pub(super) fn abandon(&self) {
        let mut waiting = lock(&self.waiting);
        waiting.closed = true;
        let jobs = std::mem::take(&mut waiting.jobs);
        drop(waiting);
        drop(jobs);
    }
}

/// Takes what waits, [`MAX_OPS`] operations at most and one call at least.
fn take(waiting: &mut Waiting) -> Launch {
    let mut size = 0;
    let fits = |job: &&Job| {
        size += job.task.size();
        size <= MAX_OPS
    };
    let count = waiting.jobs.iter().take_while(fits).count().max(1);
    let rest = waiting.jobs.split_off(count);
    let jobs = std::mem::replace(&mut waiting.jobs, rest);
    let size: usize = jobs.iter().map(|job| job.task.size()).sum();
    waiting.size -= size;
    waiting.lots += 1;
    let lot = waiting.lots;
    waiting.under_way.push(Lot { number: lot, size });
    Launch { jobs, lot }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> Job {
        Job { task: Task::Plain(redis::cmd("PING")), answer: oneshot::channel().0 }
    }

    fn queue(most: usize) -> Queue {
        Queue::new(most)
    }

    /// What leaves now, if anything does.
    fn now(queue: &Queue) -> Option<(usize, u64)> {
        let mut waiting = lock(&queue.waiting);
        waiting.is_due(queue.most).then(|| take(&mut waiting)).map(|launch| (launch.jobs.len(), launch.lot))
    }

    #[test]
    fn a_lone_call_leaves_at_once_and_so_does_a_second_one() {
        let queue = queue(2);
        assert_eq!(now(&queue), None);
        assert!(queue.push(job()));
        assert_eq!(now(&queue), Some((1, 1)));
        assert!(queue.push(job()));
        assert_eq!(now(&queue), Some((1, 2)));
        assert!(queue.push(job()));
        assert_eq!(now(&queue), None, "two are under way");
        queue.over(1);
        assert_eq!(now(&queue), Some((1, 3)));
    }

    #[test]
    fn what_gathers_leaves_when_it_is_as_much_as_what_is_under_way_or_that_is_over() {
        let queue = queue(2);
        (0..5).for_each(|_| assert!(queue.push(job())));
        assert_eq!(now(&queue), Some((5, 1)));
        (0..4).for_each(|_| assert!(queue.push(job())));
        assert_eq!(now(&queue), None);
        assert!(queue.push(job()));
        assert_eq!(now(&queue), Some((5, 2)));
        assert!(queue.push(job()));
        queue.over(1);
        assert_eq!(now(&queue), None, "five are still under way");
        queue.over(2);
        assert_eq!(now(&queue), Some((1, 3)));
    }

    #[test]
    fn with_one_at_a_time_the_next_leaves_when_the_one_before_is_over() {
        let queue = queue(1);
        assert!(queue.push(job()) && queue.push(job()));
        assert_eq!(now(&queue), Some((2, 1)));
        (0..3).for_each(|_| assert!(queue.push(job())));
        assert_eq!(now(&queue), None);
        queue.over(1);
        assert_eq!(now(&queue), Some((3, 2)));
    }

    #[test]
    fn a_message_has_its_bound_and_what_is_left_goes_next() {
        let queue = queue(2);
        (0..=MAX_OPS).for_each(|_| assert!(queue.push(job())));
        assert_eq!(now(&queue), Some((MAX_OPS, 1)));
        assert_eq!(now(&queue), None);
        queue.over(1);
        assert_eq!(now(&queue), Some((1, 2)));
    }

    #[tokio::test]
    async fn what_waits_when_nobody_asks_any_more_is_done_and_what_nobody_does_is_told() {
        let queue = queue(1);
        assert!(queue.push(job()));
        queue.close();
        assert_eq!(queue.next().await.map(|launch| launch.jobs.len()), Some(1));
        assert!(queue.next().await.is_none());
        assert!(!queue.push(job()));

        let queue = Queue::new(1);
        let (answer, answered) = oneshot::channel();
        assert!(queue.push(Job { task: Task::Plain(redis::cmd("PING")), answer }));
        queue.abandon();
        assert!(answered.await.is_err());
    }
}
