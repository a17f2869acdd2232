//! What the SQLite engine does with the file itself: made, refused, removed, replaced, written by other clocks.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use leasehold::{
    clock::ManualClock,
    coordinator::sqlite::{Options, SqliteCoordinator},
};
use leasehold_core::{
    Coordinator, Error, HolderId, Kind, Label, LeaseId, Namespace, Resource, Token, Ttl,
    record::{Acquired, Gone, Grant, Released, Renewed},
    request::{Claim, Listing, Preparation, Release, Renewal},
};
use rusqlite::Connection;
use tempfile::TempDir;

const TTL: Duration = Duration::from_secs(10);

struct Place {
    folder: TempDir,
    clock: Arc<ManualClock>,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), clock: Arc::new(ManualClock::from_system()) }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("leases.db")
    }

    fn lock_path(&self) -> PathBuf {
        self.folder.path().join(".leases.db-lock")
    }

    fn open(&self) -> SqliteCoordinator {
        self.try_open().unwrap()
    }

    fn try_open(&self) -> Result<SqliteCoordinator, Error> {
        self.try_open_with(None)
    }

    fn try_open_with(&self, max_ttl: Option<Ttl>) -> Result<SqliteCoordinator, Error> {
        let options = Options { max_ttl, clock: self.clock.clone(), ..Options::default() };
        SqliteCoordinator::open(&self.path(), Namespace::default(), options)
    }

    fn sql(&self, sql: &str) {
        Connection::open(self.path()).unwrap().execute_batch(sql).unwrap();
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn claim_of(resource: &str, n: u8) -> Claim {
    Claim {
        resource: Resource::new(resource).unwrap(),
        lease_id: LeaseId::from_bytes([n; 16]),
        holder_id: HolderId::from_bytes([n; 16]),
        label: Label::new("test").unwrap(),
        ttl: Ttl::new(TTL).unwrap(),
        lock_delay: Duration::ZERO,
        floor: None,
        queue: false,
        once_per: None,
    }
}

fn claim(n: u8) -> Claim {
    claim_of("r", n)
}

fn renewal(claim: &Claim, token: Token) -> Renewal {
    Renewal {
        resource: claim.resource.clone(),
        lease_id: claim.lease_id,
        token,
        ttl: claim.ttl,
        lock_delay: Duration::ZERO,
    }
}

fn release(claim: &Claim, token: Token) -> Release {
    Release {
        resource: claim.resource.clone(),
        lease_id: claim.lease_id,
        token: Some(token),
        succeeded: false,
    }
}

async fn granted(coordinator: &SqliteCoordinator, claim: Claim) -> Grant {
    match coordinator.acquire(claim).await.unwrap() {
        Acquired::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

async fn quarantine(coordinator: &SqliteCoordinator, claim: Claim) -> Duration {
    match coordinator.acquire(claim).await.unwrap() {
        Acquired::Quarantined { remaining, .. } => remaining,
        other => panic!("not quarantined: {other:?}"),
    }
}

#[tokio::test]
async fn everything_it_makes_is_private() {
    let place = Place::new();
    let path = place.folder.path().join("state/leasehold/leases.db");
    let coordinator = SqliteCoordinator::open(&path, Namespace::default(), Options::default()).unwrap();
    granted(&coordinator, claim(1)).await;
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    for name in ["leases.db", "leases.db-wal", "leases.db-shm", ".leases.db-lock"] {
        assert_eq!(mode(&path.with_file_name(name)), 0o600, "{name}");
    }
    let left: Vec<_> =
        fs::read_dir(path.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 4, "no draft is left behind: {left:?}");
}

#[tokio::test]
async fn an_empty_file_may_be_used_and_its_permissions_are_not_widened() {
    let place = Place::new();
    fs::write(place.path(), "").unwrap();
    granted(&place.open(), claim(1)).await;
    assert_eq!(mode(&place.path()), 0o600);
}

#[test]
fn what_is_not_a_lease_file_is_refused_and_left_as_it_is() {
    let place = Place::new();
    let refused = |kind: Kind, word: &str| {
        let before = fs::read(place.path()).unwrap();
        let error = place.try_open().unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        let text = error.to_string();
        assert!(text.contains(word) && text.contains("sqlite:/") && text.contains("leases.db"), "{text}");
        assert_eq!(fs::read(place.path()).unwrap(), before);
        let companions = fs::read_dir(place.folder.path()).unwrap().count();
        fs::remove_file(place.path()).unwrap();
        companions
    };
    fs::write(place.path(), "my diary\n").unwrap();
    assert_eq!(refused(Kind::Invalid, "not a SQLite database"), 1);
    place.sql("CREATE TABLE recipes (name TEXT)");
    assert_eq!(refused(Kind::Invalid, "another program"), 1);
    fs::create_dir(place.path()).unwrap();
    assert_eq!(place.try_open().unwrap_err().kind(), Kind::Invalid);
}

#[test]
fn a_newer_format_asks_for_an_upgrade() {
    let place = Place::new();
    drop(place.open());
    place.sql("PRAGMA user_version = 99");
    let error = place.try_open().unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
    assert!(error.to_string().contains("upgrade"), "{error}");
}

/// As it was before tokens were set aside for heirs, and before programs took turns at forgetting.
#[tokio::test]
async fn a_file_of_the_first_format_is_brought_up_to_date_and_keeps_its_leases() {
    let place = Place::new();
    let held = claim(1);
    let grant = granted(&place.open(), held.clone()).await;
    place.sql(
        "ALTER TABLE slot DROP COLUMN heir; ALTER TABLE slot DROP COLUMN ends; DROP TABLE past; \
         ALTER TABLE store DROP COLUMN purged_unix; ALTER TABLE store DROP COLUMN purge_cursor; PRAGMA user_version = 1",
    );
    let coordinator = place.open();
    let version = Connection::open(place.path())
        .unwrap()
        .query_row("PRAGMA user_version", [], |row| row.get::<_, i32>(0));
    assert_eq!(version, Ok(3));
    let next = Claim { queue: true, ..claim(2) };
    assert!(matches!(coordinator.acquire(next.clone()).await.unwrap(), Acquired::Busy(_)));
    let release = Release {
        resource: held.resource.clone(),
        lease_id: held.lease_id,
        token: Some(grant.token),
        succeeded: false,
    };
    assert_eq!(coordinator.release(release).await.unwrap(), Released::Ended);
    let _ = coordinator.next_wake().await;
    assert!(granted(&coordinator, next).await.token > grant.token);
    drop(place.open());
}

#[tokio::test]
async fn damage_is_reported_as_such() {
    let place = Place::new();
    granted(&place.open(), claim(1)).await;
    place.sql("PRAGMA wal_checkpoint(TRUNCATE)");
    let mut bytes = fs::read(place.path()).unwrap();
    let whole = bytes.clone();
    bytes[1024..].fill(0xA5);
    for damaged in [bytes, whole[..whole.len() / 2].to_vec()] {
        fs::write(place.path(), &damaged).unwrap();
        let error = match place.try_open() {
            Err(error) => error,
            Ok(coordinator) => coordinator.acquire(claim(2)).await.unwrap_err(),
        };
        assert_eq!(error.kind(), Kind::Corrupt, "{error}");
        assert!(error.to_string().contains("restore"), "{error}");
        assert!(fs::read(place.path()).unwrap() == damaged, "it is left as it is");
    }
}

#[tokio::test]
async fn impossible_rows_are_reported_and_poison_no_other_request() {
    let place = Place::new();
    let coordinator = place.open();
    granted(&coordinator, claim_of("bad", 1)).await;
    place.sql("UPDATE slot SET ttl_ms = 5 WHERE resource = 'bad'");
    let (bad, good) =
        tokio::join!(coordinator.acquire(claim_of("bad", 2)), coordinator.acquire(claim_of("good", 3)));
    assert_eq!(bad.unwrap_err().kind(), Kind::Corrupt);
    assert!(matches!(good.unwrap(), Acquired::Granted(_)));
}

#[tokio::test]
async fn a_removed_file_loses_its_leases_and_a_new_one_grants_nothing_before_they_have_ended() {
    let place = Place::new();
    let coordinator = place.open();
    let first = granted(&coordinator, claim(1)).await;
    fs::remove_file(place.path()).unwrap();
    let answers = coordinator.renew(vec![renewal(&claim(1), first.token)]).await.unwrap();
    assert_eq!(answers, [Ok(Renewed::Gone(Gone::Absent))]);
    let left = quarantine(&coordinator, claim(2)).await;
    assert!(left > Duration::from_secs(9) && left < Duration::from_secs(11), "{left:?}");
    assert!(coordinator.list(Listing::new()).await.unwrap().quarantine.is_some());
    place.clock.advance(left);
    assert!(granted(&coordinator, claim(2)).await.token > first.token);
}

#[tokio::test]
async fn a_claim_on_a_removed_file_says_so() {
    let place = Place::new();
    let coordinator = place.open();
    granted(&coordinator, claim(1)).await;
    fs::remove_file(place.path()).unwrap();
    let error = coordinator.acquire(claim(2)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.to_string().contains("removed or replaced"), "{error}");
}

#[tokio::test]
async fn the_pause_covers_grants_of_processes_that_are_gone_and_init_fresh_ends_it() {
    let place = Place::new();
    granted(&place.open(), claim(1)).await;
    for name in ["leases.db", "leases.db-wal", "leases.db-shm"] {
        fs::remove_file(place.folder.path().join(name)).unwrap();
    }
    let coordinator = place.open();
    quarantine(&coordinator, claim(2)).await;
    let fresh = Preparation { fresh: true, max_ttl: None };
    let prepared = coordinator.prepare(fresh).await.unwrap();
    assert!(prepared.created && prepared.quarantine.is_none());
    granted(&coordinator, claim(2)).await;
    assert_eq!(coordinator.prepare(fresh).await.unwrap_err().kind(), Kind::Invalid);
}

#[tokio::test]
async fn a_removed_file_without_live_grants_costs_no_pause() {
    let place = Place::new();
    granted(&place.open(), claim(1)).await;
    fs::remove_file(place.path()).unwrap();
    place.clock.advance(TTL + Duration::from_secs(1));
    granted(&place.open(), claim(2)).await;
}

#[tokio::test]
async fn a_removed_lock_file_is_made_again_with_what_it_knew() {
    let place = Place::new();
    let coordinator = place.open();
    granted(&coordinator, claim(1)).await;
    fs::remove_file(place.lock_path()).unwrap();
    place.clock.advance(Duration::from_secs(1));
    granted(&coordinator, claim_of("other", 2)).await;
    fs::remove_file(place.path()).unwrap();
    let left = quarantine(&place.open(), claim(3)).await;
    assert!(left > TTL * 8 / 10, "{left:?}");
}

#[tokio::test]
async fn an_emptied_lock_file_hides_no_live_process_on_an_older_file() {
    let place = Place::new();
    drop(place.open());
    fs::write(place.lock_path(), "").unwrap();
    // What another process that has the file open shows.
    let other = fs::File::open(place.lock_path()).unwrap();
    other.lock_shared().unwrap();
    fs::remove_file(place.path()).unwrap();
    quarantine(&place.open(), claim(1)).await;
    other.unlock().unwrap();
    fs::remove_file(place.path()).unwrap();
    granted(&place.open(), claim(2)).await;
}

#[tokio::test]
async fn a_replaced_file_is_noticed() {
    let (place, other) = (Place::new(), Place::new());
    let coordinator = place.open();
    let grant = granted(&coordinator, claim(1)).await;
    drop(other.open());
    fs::rename(other.path(), place.path()).unwrap();
    let answers = coordinator.renew(vec![renewal(&claim(1), grant.token)]).await.unwrap();
    assert_eq!(answers, [Ok(Renewed::Gone(Gone::Absent))]);
}

#[tokio::test]
async fn a_reboot_ends_every_holder_and_waiter() {
    let place = Place::new();
    let first = {
        let coordinator = place.open();
        let grant = granted(&coordinator, claim(1)).await;
        let queued = coordinator.acquire(Claim { queue: true, ..claim(2) }).await.unwrap();
        assert!(matches!(queued, Acquired::Busy(_)));
        grant
    };
    place.sql("UPDATE boot SET identity = replace(identity, '-', '0')");
    let coordinator = place.open();
    let seen = coordinator.inspect(claim(1).resource).await.unwrap();
    assert_eq!((seen.record, seen.waiting, seen.last_token), (None, 0, Some(first.token)));
    let grant = granted(&coordinator, claim(3)).await;
    assert!(grant.token > first.token && grant.after_lapse);
}

/// Rewrites who wrote the times in the file: the same kernel through another time namespace, or another machine.
fn by_another_clock(place: &Place, foreign: &str) {
    place.sql(&format!("UPDATE boot SET identity = '{foreign}'"));
}

#[tokio::test]
async fn a_lease_of_an_unknown_clock_is_waited_out_from_the_first_look() {
    for foreign in ["other-machine/other-boot/0.0", "-/-/-"] {
        let place = Place::new();
        let first = granted(&place.open(), claim(1)).await;
        by_another_clock(&place, foreign);
        let (a, b) = (place.open(), place.open());
        place.clock.advance(Duration::from_secs(60));
        let Acquired::Busy(busy) = a.acquire(claim(2)).await.unwrap() else { panic!("free at once") };
        assert!(busy.holder.remaining >= TTL, "{busy:?}");
        place.clock.advance(TTL);
        assert!(matches!(b.acquire(claim(3)).await.unwrap(), Acquired::Busy(_)), "the margin counts");
        place.clock.advance(Duration::from_millis(102));
        let grant = granted(&b, claim(3)).await;
        assert!(grant.token > first.token);
    }
}

#[tokio::test]
async fn a_holder_on_an_unknown_clock_that_renews_is_observed_anew() {
    let place = Place::new();
    let first = granted(&place.open(), claim(1)).await;
    by_another_clock(&place, "other-machine/other-boot/0.0");
    let coordinator = place.open();
    let _ = coordinator.acquire(claim(2)).await.unwrap();
    place.clock.advance(TTL);
    // What the holder's renewal does to the row, seen from here: another time, by its own clock.
    place.sql("UPDATE slot SET at = at + 3333333");
    place.clock.advance(Duration::from_millis(102));
    assert!(matches!(coordinator.acquire(claim(2)).await.unwrap(), Acquired::Busy(_)));
    // Had it been our own all along (the file was moved here), it would still be renewed by its holder.
    let answers = coordinator.renew(vec![renewal(&claim(1), first.token)]).await.unwrap();
    assert!(matches!(answers[0], Ok(Renewed::Extended { .. })), "{answers:?}");
    place.clock.advance(TTL + Duration::from_millis(102));
    granted(&coordinator, claim(2)).await;
}

#[tokio::test]
async fn a_client_must_agree_about_the_longest_ttl() {
    let place = Place::new();
    let two_days = Ttl::new(Duration::from_secs(48 * 3_600)).unwrap();
    let told = place.try_open_with(Some(two_days)).unwrap();
    assert_eq!(told.profile().max_ttl, two_days);
    granted(&told, Claim { ttl: two_days, ..claim(1) }).await;
    let error = place.open().acquire(claim_of("s", 2)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("max_ttl=172800000ms"), "{error}");
    let shorter = Preparation { fresh: false, max_ttl: Some(Ttl::DEFAULT) };
    assert_eq!(told.prepare(shorter).await.unwrap().max_ttl, Ttl::DEFAULT);
    assert_eq!(place.open().profile().max_ttl, Ttl::DEFAULT);
    assert_eq!(told.acquire(claim_of("s", 3)).await.unwrap_err().kind(), Kind::Invalid);
    granted(&place.open(), claim_of("s", 4)).await;
}

#[tokio::test]
async fn a_lower_bound_counts_from_the_next_grant_and_running_leases_are_renewed() {
    let place = Place::new();
    let coordinator = place.open();
    let long = Ttl::new(Duration::from_secs(3_600)).unwrap();
    let first = Claim { ttl: long, ..claim(1) };
    let token = granted(&coordinator, first.clone()).await.token;
    let lower = Preparation { fresh: false, max_ttl: Some(Ttl::DEFAULT) };
    assert_eq!(coordinator.prepare(lower).await.unwrap().max_ttl, Ttl::DEFAULT);

    place.clock.advance(Duration::from_secs(1_800));
    let same = renewal(&first, token);
    let longer = Renewal { ttl: Ttl::from_millis(long.as_millis() + 1).unwrap(), ..same.clone() };
    let of_nobody = Renewal { lease_id: claim(9).lease_id, ..same.clone() };
    let answers = coordinator.renew(vec![longer, same, of_nobody]).await.unwrap();
    let [Err(error), Ok(extended), Ok(gone)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(error.kind(), Kind::Invalid);
    assert_eq!(*extended, Renewed::Extended { ttl: long });
    assert_eq!(*gone, Renewed::Gone(Gone::Absent));
    let left = coordinator.inspect(first.resource.clone()).await.unwrap().record.unwrap().remaining;
    assert_eq!(left, long.as_duration());

    let other = Claim { ttl: long, ..claim_of("other", 2) };
    assert_eq!(place.open().acquire(other).await.unwrap_err().kind(), Kind::Invalid);
}

#[tokio::test]
async fn a_file_that_is_locked_by_a_stranger_is_unavailable_and_dropped_requests_have_no_effect() {
    let place = Place::new();
    let coordinator = place.open();
    granted(&coordinator, claim_of("first", 9)).await;
    let stranger = Connection::open(place.path()).unwrap();
    stranger.execute_batch("BEGIN IMMEDIATE").unwrap();
    // The first request makes the worker wait; the second is still in the queue when it is dropped.
    let first = coordinator.acquire(claim_of("first", 1));
    let dropped =
        tokio::time::timeout(Duration::from_millis(100), coordinator.acquire(claim_of("dropped", 2)));
    let (first, dropped) = tokio::join!(first, dropped);
    assert!(dropped.is_err());
    let error = first.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.to_string().contains("resource first") && error.to_string().contains("locked"), "{error}");
    stranger.execute_batch("ROLLBACK").unwrap();
    granted(&coordinator, claim_of("dropped", 3)).await;
}

#[tokio::test]
async fn idle_resources_are_forgotten_after_a_week_and_their_tokens_are_not() {
    let place = Place::new();
    let coordinator = place.open();
    let old = granted(&coordinator, claim_of("old", 1)).await;
    assert_eq!(coordinator.release(release(&claim_of("old", 1), old.token)).await.unwrap(), Released::Ended);
    place.clock.advance(Duration::from_secs(8 * 24 * 3_600));
    for n in 2..5 {
        granted(&coordinator, claim_of("new", n)).await;
        place.clock.advance(Duration::from_secs(61));
    }
    let all = Listing { free_too: true, ..Listing::new() };
    let names: Vec<_> =
        coordinator.list(all).await.unwrap().items.into_iter().map(|item| item.resource).collect();
    assert_eq!(names, [Resource::new("new").unwrap()]);
    place.clock.set_wall(Duration::from_secs(5));
    assert!(granted(&coordinator, claim_of("old", 9)).await.token > old.token);
}

/// Programs that come and go each minute get as far as one that stays, and many at once do not look at the same rows.
#[tokio::test]
async fn however_many_programs_there_are_they_take_turns_at_forgetting() {
    let place = Place::new();
    let turn = || {
        let file = Connection::open(place.path()).unwrap();
        file.query_row("SELECT purged_unix, purge_cursor FROM store", [], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
        })
        .unwrap()
    };
    let first = place.open();
    granted(&first, claim_of("first", 1)).await;
    place.sql(
        "WITH RECURSIVE some(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM some WHERE n < 600) \
         INSERT INTO slot (space, resource, waiting, touched_unix, boot, at, span, ttl_ms) \
         SELECT 1, 'r' || n, 0, 9000000000000000, 1, 0, 0, 0 FROM some",
    );
    place.clock.advance(Duration::from_secs(61));
    let mut cursors = Vec::new();
    for round in 0..3 {
        let mut seen = None;
        for program in 0..3 {
            let another = place.open();
            granted(&another, claim_of(&format!("p{round}-{program}"), 10 * (round + 1) + program)).await;
            let now = turn();
            assert_eq!(*seen.get_or_insert(now), now, "one step a minute, whoever comes");
        }
        cursors.push(seen.unwrap().1);
        place.clock.advance(Duration::from_secs(61));
    }
    assert_eq!(cursors, [256, 512, 0], "each goes on where the last one stopped");
    // Not before the minute is over, for the one that stayed as well; and a clock that is set back is not waited for.
    let before = turn();
    granted(&first, claim_of("stays", 98)).await;
    assert_ne!(turn(), before);
    place.clock.set_wall(Duration::from_secs(5));
    place.clock.advance(Duration::from_secs(61));
    granted(&first, claim_of("back", 99)).await;
    assert!(turn().0 < before.0);
}

#[tokio::test]
async fn a_second_program_finds_what_the_first_was_told() {
    let place = Place::new();
    let first = granted(&place.open(), claim(1)).await;
    let coordinator = place.open();
    let seen = coordinator.inspect(claim(1).resource).await.unwrap();
    assert_eq!(seen.record.unwrap().token, first.token);
    assert!(matches!(coordinator.acquire(claim(2)).await.unwrap(), Acquired::Busy(_)));
}

/// Whoever opens a file is told within seconds that it cannot be had, instead of waiting for a stopped process.
#[test]
fn opening_does_not_wait_for_ever_for_a_lock_file_that_somebody_keeps() {
    let place = Place::new();
    let keeper = fs::File::create(place.lock_path()).unwrap();
    keeper.lock().unwrap();
    let error = place.try_open().unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.to_string().contains("stopped process"), "{error}");
    keeper.unlock().unwrap();
    place.open();
}

/// `rm leases.db-shm`: others begin with a new index, so this process must not write by its own any more.
#[tokio::test]
async fn a_log_or_index_that_was_taken_away_loses_the_leases() {
    for companion in ["leases.db-shm", "leases.db-wal"] {
        let place = Place::new();
        let coordinator = place.open();
        let grant = granted(&coordinator, claim(1)).await;
        fs::remove_file(place.folder.path().join(companion)).unwrap();
        let answers = coordinator.renew(vec![renewal(&claim(1), grant.token)]).await.unwrap();
        assert_eq!(answers, [Ok(Renewed::Gone(Gone::Absent))], "{companion}");
    }
}

/// Every way to a file leads to the same leases, or is refused: also before there is a file.
#[tokio::test]
async fn a_link_made_before_the_file_leads_to_the_same_leases() {
    let place = Place::new();
    std::os::unix::fs::symlink("leases.db", place.folder.path().join("link.db")).unwrap();
    let options = Options { clock: place.clock.clone(), ..Options::default() };
    let through =
        SqliteCoordinator::open(&place.folder.path().join("link.db"), Namespace::default(), options).unwrap();
    granted(&through, claim(1)).await;
    let direct = place.open();
    assert!(matches!(direct.acquire(claim(2)).await.unwrap(), Acquired::Busy(_)));
    drop((through, direct));
    fs::hard_link(place.path(), place.folder.path().join("second.db")).unwrap();
    let error = place.try_open().unwrap_err();
    assert!(error.kind() == Kind::Invalid && error.to_string().contains("hard links"), "{error}");
}
