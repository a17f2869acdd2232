//! What was believed, and when; and the judge of it.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold::{Lease, LeaseId, Leases, Token};
use leasehold_testkit::{
    check::{Event, History, What},
    clock::boot_ns,
    random,
};

use super::place::PATIENCE;

/// What all of a test write down.
#[derive(Clone, Default)]
pub struct Diary(Arc<Mutex<Vec<Event>>>);

/// A lease that is written down.
pub struct Held {
    pub lease: Lease,
    diary: Diary,
    who: String,
    name: String,
    id: LeaseId,
    close_ns: u64,
}

impl Diary {
    fn note(&self, who: &str, name: &str, id: LeaseId, what: What) {
        self.0.lock().unwrap().push(Event::now(who, name, id, what));
    }

    /// Waits for it and takes it.
    pub async fn take(&self, who: &str, leases: &Leases, name: &str, ttl: Duration) -> Held {
        let id = random::lease_id();
        self.note(who, name, id, What::Attempt);
        let lease = leases.lease(name).ttl(ttl).wait(PATIENCE * 2).acquire().await;
        let lease = lease.unwrap_or_else(|refused| panic!("{who}: {refused}"));
        let (open_ns, close_ns, token) = (boot_ns(), lease.closes().boot_ns, lease.token());
        assert!(lease.check().is_ok() && open_ns < close_ns, "{who} stood still for too long to believe");
        self.note(
            who,
            name,
            id,
            What::Granted {
                token,
                sent_ns: None,
                open_ns,
                close_ns,
                ttl_ms: u64::try_from(ttl.as_millis()).ok(),
            },
        );
        Held { lease, diary: self.clone(), who: who.to_owned(), name: name.to_owned(), id, close_ns }
    }

    pub fn events(&self) -> Vec<Event> {
        self.0.lock().unwrap().clone()
    }

    /// The judge finds nothing, in so many grants.
    pub fn is_clean(&self, grants: usize) {
        let report = History::new(self.events()).judge();
        assert!(report.is_clean() && report.judged.grants == grants, "{report}");
    }
}

impl Held {
    pub fn token(&self) -> Token {
        self.lease.token()
    }

    /// Looks whether the window was extended since the last look; it must not have been lost.
    pub fn was_extended(&mut self) -> bool {
        assert_eq!(self.lease.check(), Ok(()), "{}", self.who);
        let close_ns = self.lease.closes().boot_ns;
        if close_ns <= self.close_ns {
            return false;
        }
        self.close_ns = close_ns;
        self.note(What::Extended { token: self.token(), sent_ns: None, close_ns });
        true
    }

    /// Believes until it is told that it has lost it.
    pub async fn until_lost(self) {
        let lost = tokio::time::timeout(PATIENCE, self.lease.lost()).await;
        assert!(lost.is_ok(), "{} goes on believing", self.who);
        self.note(What::Lost { token: self.token() });
    }

    pub async fn release(self) {
        self.note(What::Released { token: self.token() });
        let ended = self.lease.release().await;
        assert!(ended.is_ok(), "{}: {ended:?}", self.who);
    }

    fn note(&self, what: What) {
        self.diary.note(&self.who, &self.name, self.id, what);
    }
}
