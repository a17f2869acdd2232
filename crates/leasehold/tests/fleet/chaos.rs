//! Workers that contend while they are killed, stopped and started again.

use std::{collections::BTreeMap, time::Duration};

use leasehold_testkit::{
    check::{Fairness, History, Judged, What},
    clock::{Stopwatch, boot_ns},
    process::wait_until,
    random::{Choices, seed},
};

use crate::{
    LONG, World, of_process,
    worker::{self, Role, STOP},
};

const WORKERS: usize = 7;
/// The first of them are left alone: nobody may starve.
const SPARED: usize = 3;
const CHAOS: Duration = Duration::from_secs(6);
/// It goes on for longer on a machine so busy that there would be too little to judge.
const LONGEST: Duration = Duration::from_secs(15);

#[test]
fn killed_and_stopped_workers_never_overlap_and_nobody_starves() {
    let seed = seed();
    println!("seed {seed}");
    let mut choices = Choices::new(seed);
    let mut world = World::new();
    let mut workers: Vec<_> =
        (0..WORKERS).map(|n| world.start(&format!("worker-{n}"), Role::Contend, true)).collect();
    let mut dead = Vec::new();
    let (mut kills, mut stops) = (0, 0);
    let since = Stopwatch::start();
    // When those that stand still may go on.
    let mut resumed_ns = [0; WORKERS];
    while since.elapsed() < CHAOS
        || (since.elapsed() < LONGEST && !is_enough(&world.history().judge().judged))
    {
        pass(Duration::from_millis(choices.below(250)));
        for (worker, due_ns) in workers.iter().zip(&mut resumed_ns) {
            if *due_ns > 0 && *due_ns <= boot_ns() {
                worker.resume().unwrap();
                *due_ns = 0;
            }
        }
        let victim = SPARED + usize::try_from(choices.below((WORKERS - SPARED) as u64)).unwrap();
        if choices.one_in(2) {
            workers[victim].kill().unwrap();
            dead.push(workers[victim].name().to_owned());
            kills += 1;
            resumed_ns[victim] = 0;
            workers[victim] = world.start(&format!("again-{kills}"), Role::Contend, true);
        } else if resumed_ns[victim] == 0 {
            workers[victim].stop().unwrap();
            // Past the longest TTL, most of the time.
            resumed_ns[victim] = boot_ns() + (300 + choices.below(700)) * 1_000_000;
            stops += 1;
        }
    }
    for worker in &workers {
        worker.resume().unwrap();
    }
    world.tell(STOP);
    for worker in &workers {
        let status = worker.wait(LONG).unwrap();
        assert!(
            status.success(),
            "{}: {}\n{}",
            worker.name(),
            worker.stdout().unwrap(),
            worker.stderr().unwrap()
        );
    }
    let history = without_last_wishes(&world.history(), &dead);
    let report = history.judge_with(&Fairness { longest_wait: Some(LONGEST), least_share: 1 });
    let refused =
        history.events().iter().filter(|event| matches!(event.what, What::Write { admitted: false, .. }));
    println!("{kills} kills, {stops} stops; {report}; {} writes refused", refused.count());
    assert!(report.is_clean(), "seed {seed}: {report}");
    assert!(is_enough(&report.judged), "too little to judge: {report}");

    // Those who were left alone all had their share.
    let mut shares: BTreeMap<String, usize> = BTreeMap::new();
    for event in history.events().iter().filter(|event| matches!(event.what, What::Granted { .. })) {
        for name in (0..SPARED).map(|n| format!("worker-{n}")).filter(|name| of_process(&event.process, name))
        {
            *shares.entry(name).or_default() += 1;
        }
    }
    println!("shares of the undisturbed: {shares:?}");
    let most = shares.values().max().copied().unwrap_or_default();
    assert!(shares.len() == SPARED && shares.values().all(|share| share * 8 >= most), "{shares:?}");
}

/// The control: the same workers, each on a lease file of its own, so that the lease keeps nobody apart.
#[test]
fn workers_that_are_not_kept_apart_are_caught() {
    let mut world = World::new();
    for n in 0..4 {
        let url = format!("sqlite:{}", world.folder.path().join(format!("own-{n}.db")).display());
        world.fleet.start(&format!("worker-{n}"), worker::spawn(Role::Contend, &url, true)).unwrap();
    }
    wait_until("an overlap", LONG, || world.history().judge().broken().contains(&"S1-overlap").then_some(()))
        .unwrap();
}

fn is_enough(judged: &Judged) -> bool {
    judged.handovers >= 30 && judged.extensions >= 5 && judged.writes >= 30
}

/// What the dead were still waiting for does not count as waiting.
fn without_last_wishes(history: &History, dead: &[String]) -> History {
    let answered = |id| {
        let mut answers = history.events().iter().filter(|event| event.lease_id == id);
        answers.any(|event| matches!(event.what, What::Granted { .. } | What::GaveUp))
    };
    let is_dead = |process: &str| dead.iter().any(|name| of_process(process, name));
    let kept = history
        .events()
        .iter()
        .filter(|event| event.what != What::Attempt || !is_dead(&event.process) || answered(event.lease_id));
    History::new(kept.cloned().collect())
}

/// Lets time pass: the length of a pause is what these tests are about.
pub fn pass(time: Duration) {
    let until_ns = boot_ns() + u64::try_from(time.as_nanos()).unwrap();
    wait_until("time", time * 2 + LONG, || (boot_ns() >= until_ns).then_some(())).unwrap();
}
