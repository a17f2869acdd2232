//! What is set aside for an heir changes nothing but who waits for the disk, and survives the machine.

use leasehold_core::{
    line::{Line as _, MemoryLine},
    record::Released,
    slot::{Freed, Held},
};

use super::*;
use crate::coordinator::sqlite::heir::{self, Heir};

const TABLES: [&str; 4] = ["boot", "space", "slot", "queue"];
const LEASES: u8 = 5;

/// One step of a story about one resource.
#[derive(Clone, Copy, Debug)]
enum Act {
    Claim {
        by: u8,
        queue: bool,
        woken: bool,
        ttl_ms: u64,
    },
    Release(u8),
    TakeBack(u8),
    Revoke {
        now: bool,
    },
    /// The process that released dies before its commit, and after the wake.
    Fail(u8),
    /// The first in line was found dead when it was woken.
    Bury,
    Wait(u64),
}

fn any_act() -> impl Strategy<Value = Act> {
    let by = || 0..LEASES;
    let ttl_ms = prop_oneof![Just(300u64), Just(10_000)];
    let claim = (by(), proptest::bool::weighted(0.9), any::<bool>(), ttl_ms)
        .prop_map(|(by, queue, woken, ttl_ms)| Act::Claim { by, queue, woken, ttl_ms });
    prop_oneof![
        8 => claim,
        4 => by().prop_map(Act::Release),
        1 => by().prop_map(Act::TakeBack),
        1 => any::<bool>().prop_map(|now| Act::Revoke { now }),
        1 => by().prop_map(Act::Fail),
        1 => Just(Act::Bury),
        2 => prop_oneof![0..100u64, 400..700u64, 2_000..4_000u64].prop_map(Act::Wait),
    ]
}

/// The story on SQLite, beside what it must be: the pure slot, which knows nothing of heirs.
struct Story {
    desk: Desk,
    slot: Slot,
    line: MemoryLine,
    now: Now,
    /// The claim of each claimant: it gets a new lease id once the old one has been used up.
    ids: [u8; LEASES as usize],
    fresh: u8,
    /// The real tokens, by the lease id and the token of the pure slot.
    tokens: std::collections::HashMap<(LeaseId, Token), Token>,
    highest: u64,
    quick: u32,
}

fn taken(answer: &Acquired) -> bool {
    matches!(answer, Acquired::Granted(grant) if !grant.adopted)
}

/// An answer without its token.
fn outline(answer: &Acquired) -> String {
    match answer {
        Acquired::Granted(grant) => {
            format!("granted {:?} {} {}", grant.ttl, grant.adopted, grant.after_lapse)
        }
        Acquired::Busy(busy) => {
            format!("busy {:?} {:?} {:?}", busy.holder.lease_id, busy.position, busy.recheck)
        }
        Acquired::Spent(end) => format!("spent {:?} {:?}", end.lease_id, end.reason),
        other => format!("{other:?}"),
    }
}

impl Story {
    fn new() -> Self {
        let mut desk = Desk::new();
        desk.clocks = Clocks::new(Boot::parse("m/b1/0.0"), true);
        desk.connection.execute_batch("ATTACH ':memory:' AS disk").unwrap();
        for table in TABLES {
            let sql = format!("CREATE TABLE disk.{table} AS SELECT * FROM main.{table}");
            desk.connection.execute_batch(&sql).unwrap();
        }
        let ids = std::array::from_fn(|n| u8::try_from(n).unwrap() + 1);
        Self {
            desk,
            slot: Slot::default(),
            line: MemoryLine::default(),
            now: NOW,
            ids,
            fresh: LEASES,
            tokens: std::collections::HashMap::default(),
            highest: 0,
            quick: 0,
        }
    }

    fn copy(&self, from: &str, to: &str) {
        for table in TABLES {
            let sql =
                format!("DELETE FROM {to}.{table}; INSERT INTO {to}.{table} SELECT * FROM {from}.{table}");
            self.desk.connection.execute_batch(&sql).unwrap();
        }
    }

    /// As a session does: a claim that was woken is tried without waiting for the disk, and done anew where that will not do.
    fn acquire(&mut self, claim: &Claim, woken: bool) -> Acquired {
        if woken {
            self.desk.connection.execute_batch("BEGIN IMMEDIATE").unwrap();
            let now = self.now;
            let (answer, must_last) = self.desk.within(|step| {
                let answer = step.acquire(claim, now).unwrap().unwrap();
                (answer, step.effects.must_last)
            });
            let end = if must_last { "ROLLBACK" } else { "COMMIT" };
            self.desk.connection.execute_batch(end).unwrap();
            if !must_last {
                self.quick += u32::from(taken(&answer));
                return answer;
            }
            self.desk.clocks.forget();
        }
        let answer = self.desk.acquire(claim, self.now);
        self.copy("main", "disk");
        answer
    }

    fn claim(&mut self, by: u8, queue: bool, woken: bool, ttl_ms: u64) {
        let ttl = Ttl::from_millis(ttl_ms).unwrap();
        let asked = Claim { queue, ttl, ..claim(self.ids[usize::from(by)]) };
        let answer = self.acquire(&asked, woken);
        let expected = self.slot.acquire(&mut self.line, &asked, None, self.now).unwrap();
        assert_eq!(outline(&answer), outline(&expected));
        if let (Acquired::Granted(grant), Acquired::Granted(pure)) = (&answer, &expected) {
            if taken(&answer) {
                assert!(grant.token.get() > self.highest, "{} after {}", grant.token, self.highest);
                self.highest = grant.token.get();
                self.tokens.insert((asked.lease_id, pure.token), grant.token);
            }
            assert_eq!(self.tokens[&(asked.lease_id, pure.token)], grant.token);
        }
        if matches!(answer, Acquired::Spent(_)) {
            self.renew_id(by);
        }
    }

    fn renew_id(&mut self, by: u8) {
        self.fresh += 1;
        self.ids[usize::from(by)] = self.fresh;
    }

    /// A release with the token that this claimant has, where it has one; the same for the pure slot.
    fn releases(&self, by: u8) -> Option<(Release, Release)> {
        let lease_id = id(self.ids[usize::from(by)]);
        let pure = self.slot.held.as_ref().filter(|held| held.lease_id == lease_id)?.token;
        let release =
            |token| Release { resource: claim(1).resource, lease_id, token: Some(token), succeeded: false };
        Some((release(self.tokens[&(lease_id, pure)]), release(pure)))
    }

    fn release(&mut self, by: u8) {
        let Some((real, pure)) = self.releases(by) else { return };
        let now = self.now;
        let (answer, rung) = self.desk.step(|step| {
            let answer = step.release(&real, now).unwrap().unwrap();
            (answer, step.effects.rings.iter().map(|ring| ring.lease_id).collect::<Vec<_>>())
        });
        self.copy("main", "disk");
        let Freed { answer: expected, wake } = self.slot.release(&mut self.line, &pure, now).unwrap();
        assert_eq!((&answer, rung), (&expected, wake.into_iter().collect()));
        if answer == Released::Ended {
            self.renew_id(by);
        }
    }

    fn take_back(&mut self, by: u8) {
        let lease_id = id(self.ids[usize::from(by)]);
        let release = Release { resource: claim(1).resource, lease_id, token: None, succeeded: false };
        let now = self.now;
        let answer = self.desk.step(|step| step.release(&release, now)).unwrap().unwrap();
        self.copy("main", "disk");
        let expected = self.slot.release(&mut self.line, &release, now).unwrap().answer;
        // Of a token that was never given it may say that it was superseded; of its own it says the same.
        assert_eq!(answer, expected);
        self.renew_id(by);
    }

    fn revoke(&mut self, now: bool) {
        let Some(held) = self.slot.held.clone() else { return };
        let Some(&token) = self.tokens.get(&(held.lease_id, held.token)) else { return };
        let pure = leasehold_core::request::Revocation {
            resource: claim(1).resource,
            token: held.token,
            by: Label::default(),
            reason: Label::default(),
            now,
        };
        let real = leasehold_core::request::Revocation { token, ..pure.clone() };
        let at = self.now;
        let _ = self.desk.step(|step| step.revoke(&real, at)).unwrap().unwrap();
        self.copy("main", "disk");
        let _ = self.slot.revoke(&mut self.line, &pure, at).unwrap();
    }

    /// The releaser wakes the heir and dies before it has committed.
    fn fail(&mut self, by: u8) {
        let Some((real, _)) = self.releases(by) else { return };
        self.desk.connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        let now = self.now;
        let _ = self.desk.within(|step| step.release(&real, now)).unwrap().unwrap();
        self.desk.connection.execute_batch("ROLLBACK").unwrap();
    }

    fn bury(&mut self) {
        let Some(first) = self.line.entries().next().map(|entry| entry.lease_id) else { return };
        let unheard =
            Unheard { resource: claim(1).resource, lease_id: first, address: self.desk.setting.own };
        let now = self.now;
        self.desk.step(|step| step.pass_over(&unheard, now)).unwrap().unwrap();
        self.copy("main", "disk");
        let _ = self.line.leave(first);
        if self.slot.is_free(now) {
            let _ = self.slot.reserve(&mut self.line, now);
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Claim { by, queue, woken, ttl_ms } => self.claim(by, queue, woken, ttl_ms),
            Act::Release(by) => self.release(by),
            Act::TakeBack(by) => self.take_back(by),
            Act::Revoke { now } => self.revoke(now),
            Act::Fail(by) => self.fail(by),
            Act::Bury => self.bury(),
            Act::Wait(ms) => {
                self.now.clock_us += ms * 1_000;
                // The wall clock stands still: rising tokens owe nothing to it.
            }
        }
    }

    /// The machine goes down, and comes up with what had reached the disk.
    fn lose_power(mut self) {
        let stands = |held: &Held| self.now.clock_us < held.expires_us && held.revoked.is_none();
        let held = self.slot.held.as_ref().is_some_and(stands);
        self.copy("disk", "main");
        self.desk.clocks = Clocks::new(Boot::parse("m/b2/0.0"), true);
        let early = Now { clock_us: 5_000_000, ..NOW };
        let answer = self.desk.acquire(&Claim { queue: false, ..claim(200) }, early);
        let Acquired::Granted(grant) = &answer else { panic!("{answer:?}") };
        assert!(grant.token.get() > self.highest, "{} after {}", grant.token, self.highest);
        assert!(grant.after_lapse || !held, "whoever held did not end cleanly");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    /// Whatever happens, the answers are those of the slot, which knows no heirs; tokens rise; and when the power goes, no
    /// token is given again and whoever held is found to have lapsed.
    #[test]
    fn heirs_change_no_answer_and_what_they_got_survives_a_power_loss(
        acts in proptest::collection::vec(any_act(), 1..60),
    ) {
        let mut story = Story::new();
        for act in acts {
            story.act(act);
        }
        story.lose_power();
    }
}

fn waiting() -> Story {
    let mut story = Story::new();
    story.claim(0, true, false, 10_000);
    story.claim(1, true, false, 10_000);
    story.claim(2, true, false, 10_000);
    story
}

#[test]
fn an_heir_does_not_wait_for_the_disk_and_nobody_else_is_spared() {
    let mut story = waiting();
    story.claim(1, true, true, 10_000);
    assert_eq!(story.quick, 0, "busy");
    story.release(0);
    story.claim(2, true, true, 10_000);
    assert_eq!(story.quick, 0, "another is first");
    story.claim(1, true, true, 10_000);
    assert_eq!(story.quick, 1, "the heir");
    story.act(Act::Wait(11_000));
    story.claim(2, true, true, 10_000);
    assert_eq!(story.quick, 1, "nothing was set aside when the lease ran out");
    story.lose_power();
}

#[test]
fn an_heir_that_was_passed_gets_a_token_of_its_own() {
    let mut story = waiting();
    story.release(0);
    story.act(Act::Wait(600));
    story.claim(2, true, true, 300);
    story.act(Act::Wait(400));
    story.claim(1, true, true, 10_000);
    assert_eq!(story.quick, 0);
}

#[test]
fn a_wake_whose_commit_failed_is_an_idle_question() {
    let mut story = waiting();
    story.fail(0);
    story.claim(1, true, true, 10_000);
    story.release(0);
    story.claim(1, true, true, 10_000);
    assert_eq!(story.quick, 1);
}

#[test]
fn who_has_seen_a_higher_token_gets_one_above_it() {
    let mut story = waiting();
    story.release(0);
    let floor = token(story.highest + 50);
    let asked = Claim { floor: Some(floor), ..claim(2) };
    let Acquired::Granted(grant) = story.acquire(&asked, true) else { panic!("busy") };
    assert!(grant.token > floor && story.quick == 0);
}

/// A program of the older format gives tokens without looking for an heir.
#[test]
fn a_token_given_since_makes_an_heir_void() {
    let mut story = waiting();
    story.release(0);
    let heir = || -> Option<Heir> { row::load(&story.desk.connection, 1, "r").unwrap().unwrap().1.heir };
    assert_eq!(heir().unwrap().lease_id, id(2));
    story.desk.connection.execute_batch("UPDATE slot SET token = token + 1").unwrap();
    assert_eq!(heir(), None);
}

#[test]
fn where_a_reboot_cannot_be_told_nothing_is_set_aside() {
    for (boot, local) in [("-/unknown-7/none", true), ("-/b1/none", true), ("m/b1/0.0", false)] {
        let mut story = Story::new();
        story.desk.clocks = Clocks::new(Boot::parse(boot), local);
        story.claim(0, true, false, 10_000);
        story.claim(1, true, false, 10_000);
        story.release(0);
        story.claim(1, true, true, 10_000);
        assert_eq!(story.quick, 0, "{boot}");
    }
}

#[test]
fn claims_that_were_woken_are_remembered_within_bounds() {
    use leasehold_core::record::Wake;
    let woken = heir::Woken::default();
    woken.note(Wake::All);
    woken.note(Wake::Lease(id(1)));
    assert!(!woken.forget(id(2)) && woken.forget(id(1)) && !woken.forget(id(1)));
    for n in 0..10_000u32 {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&n.to_be_bytes());
        woken.note(Wake::Lease(LeaseId::from_bytes(bytes)));
    }
    assert!(woken.len() <= 1_024);
}

#[test]
fn nothing_is_set_aside_over_a_grant_that_ran_out_unnoticed() {
    let mut story = Story::new();
    story.claim(0, true, false, 300);
    story.claim(1, true, false, 10_000);
    story.claim(2, true, false, 10_000);
    story.act(Act::Wait(400));
    story.bury();
    story.release(0);
    story.claim(2, true, true, 10_000);
    assert_eq!(story.quick, 0);
}
