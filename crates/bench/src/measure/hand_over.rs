//! How long it takes from a release until the next waiter holds.
//!
//! All waiters are in one process, so that both ends are read from one clock. Each takes its turn, rests while the others
//! settle down to wait, and hands on.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use leasehold_testkit::clock::boot_ns;
use tokio::{sync::Barrier, task::JoinSet};

use crate::task::{Answer, Failure, Task, count, figure, number};

/// A holder rests this long, so that whoever waits does wait.
const REST: Duration = Duration::from_millis(5);
/// The first hand-overs find caches and connections cold.
const COLD: usize = 10;
/// So many are measured for each second that a task gives.
const PER_SECOND: u64 = 150;
/// A line of more than so many is long.
const LONG: usize = 100;
/// Turns are judged only where each waiter had several.
const ROUNDS: usize = 4;

/// One who waits for a turn, holds, hands on, and waits again.
pub(super) trait Turn: Send + 'static {
    /// Waits until it holds.
    fn take(&mut self) -> impl Future<Output = Result<(), Failure>> + Send;
    /// Hands on.
    fn give(&mut self) -> impl Future<Output = Result<(), Failure>> + Send;
    /// How many requests the engine has had until now, where it tells.
    fn asked(&mut self) -> impl Future<Output = Option<f64>> + Send {
        std::future::ready(None)
    }
}

#[derive(Default)]
struct Book {
    /// When, and by whom.
    released: Option<(u64, usize)>,
    took_us: Vec<f64>,
    /// Who had a turn, in order.
    order: Vec<usize>,
    /// What the engine has been asked when measuring began, and when it ended.
    asked: [Option<f64>; 2],
}

/// The figures of so many hand-overs.
pub(super) async fn hand_overs<T: Turn>(turns: Vec<T>, task: &Task) -> Result<Answer, Failure> {
    let waiters = turns.len();
    let cold = COLD.max(waiters / 4);
    // In a line that is not long, everybody has several turns.
    let several = if waiters <= LONG { ROUNDS * waiters } else { 0 };
    let enough = cold + wanted(task).max(several);
    let book = Arc::new(Mutex::new(Book::default()));
    let begun = Arc::new(Barrier::new(waiters));
    let mut running = JoinSet::new();
    for (at, mut turn) in turns.into_iter().enumerate() {
        let (book, begun) = (Arc::clone(&book), Arc::clone(&begun));
        running.spawn(async move {
            begun.wait().await;
            loop {
                turn.take().await?;
                let now = note(&book, at);
                for (place, edge) in [cold, enough].into_iter().enumerate() {
                    if now == edge {
                        let asked = turn.asked().await;
                        with(&book, |book| book.asked[place] = asked);
                    }
                }
                let enough = now >= enough;
                // At the end a long line is wound up at once; in a short one whoever has just handed on is still joining.
                if !enough || waiters <= LONG {
                    tokio::time::sleep(REST).await;
                }
                with(&book, |book| book.released = Some((boot_ns(), at)));
                turn.give().await?;
                if enough {
                    return Ok::<_, Failure>(());
                }
            }
        });
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(with(&book, |book| figures(book, cold, enough, waiters)))
}

/// How many hand-overs a task asks for, beside the cold ones.
pub(super) fn wanted(task: &Task) -> usize {
    usize::try_from(task.millis * PER_SECOND / 1_000).unwrap_or(usize::MAX).max(20)
}

fn note(book: &Mutex<Book>, at: usize) -> usize {
    let now_ns = boot_ns();
    with(book, |book| {
        // Whoever took it again itself has handed nothing on.
        if let Some((released_ns, _)) = book.released.take().filter(|(_, by)| *by != at) {
            book.took_us.push(number(now_ns.saturating_sub(released_ns)) / 1e3);
        }
        book.order.push(at);
        book.took_us.len()
    })
}

fn with<T>(book: &Mutex<Book>, act: impl FnOnce(&mut Book) -> T) -> T {
    act(&mut book.lock().unwrap_or_else(PoisonError::into_inner))
}

fn figures(book: &mut Book, cold: usize, enough: usize, waiters: usize) -> Answer {
    let mut answer = Answer::new();
    if let [Some(before), Some(after)] = book.asked {
        answer.insert(figure::COMMANDS.to_owned(), (after - before) / count(enough - cold));
    }
    if book.order.len() >= ROUNDS * waiters {
        book.order.truncate(enough);
        answer.insert(figure::TURN.to_owned(), longest_turn(&book.order, waiters));
    }
    book.took_us.truncate(enough);
    let took = book.took_us.split_off(cold.min(book.took_us.len()));
    answer.extend(spread(took));
    answer
}

/// The middle and the end of a distribution.
pub(super) fn spread(mut took_us: Vec<f64>) -> Answer {
    took_us.sort_by(f64::total_cmp);
    let at = |percent: usize| took_us.get((took_us.len().saturating_sub(1)) * percent / 100).copied();
    let named = [(figure::P50, at(50)), (figure::P99, at(99))];
    named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// The most hand-overs between two turns of one waiter, as a multiple of how many take turns.
fn longest_turn(order: &[usize], waiters: usize) -> f64 {
    let mut last = vec![None; waiters];
    let mut longest = 0;
    for (now, &who) in order.iter().enumerate() {
        if let Some(before) = last.get(who).copied().flatten() {
            longest = longest.max(now - before);
        }
        if let Some(last) = last.get_mut(who) {
            *last = Some(now);
        }
    }
    // Whoever never came again has waited until the end.
    let open = last.iter().map(|last| order.len() - last.unwrap_or(0)).max().unwrap_or(0);
    count(longest.max(open.saturating_sub(1))) / count(waiters)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(value: f64, expected: f64) -> bool {
        (value - expected).abs() < 1e-9
    }

    #[test]
    fn a_fair_order_has_a_longest_turn_of_one() {
        assert!(is(longest_turn(&[0, 1, 2, 0, 1, 2, 0, 1, 2], 3), 1.0));
    }

    #[test]
    fn whoever_is_passed_over_is_seen() {
        assert!(is(longest_turn(&[0, 1, 2, 0, 1, 0, 1, 0, 1, 2], 3), 7.0 / 3.0));
        // Also one who never came again.
        assert!(longest_turn(&[2, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1], 3) > 2.0);
    }

    #[test]
    fn the_cold_ones_and_those_behind_the_last_do_not_count() {
        let took_us = std::iter::repeat_n(1e6, COLD).chain([5.0; 20]).chain([1e6; 7]).collect();
        let mut book = Book { took_us, ..Book::default() };
        let answer = figures(&mut book, COLD, COLD + 20, 50);
        assert!(is(answer[figure::P50], 5.0) && is(answer[figure::P99], 5.0));
        assert!(!answer.contains_key(figure::TURN));
    }
}
