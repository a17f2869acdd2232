//! A line of text that the coordinator keeps at a place of its own, by means that every engine has already: by whom the last
//! grant of a resource was ended.
//!
//! ```text
//!   line that counts:   the `by` of the last end of the place, of at most 255 bytes
//!   to change it:       claim the place, its label being that line ─▶ look ─▶ revoke our own grant, by the new line
//! ```
//!
//! The revocation is the one step in which something changes, and it names the token of our grant: whoever was paused for too
//! long changes nothing. A grant that is left to expire, or released, is ended by its label: then what counted counts
//! on. Somebody else may have changed it between our look and our grant; that is seen under the grant, put back, and begun anew.

use std::time::Duration;

use leasehold_core::{
    Error, Kind, Label, Resource, Token, Ttl,
    backoff::Backoff,
    record::{Acquired, Grant, Revoked},
    request::{Claim, Release, Revocation},
};

use crate::{driver::CALL_LIMIT, leases::Client, random};

/// A claim without an answer is repeated this often.
const REPEATS: u32 = 3;

/// What stands at a place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    /// The line; empty where there is none.
    pub(crate) line: Label,
    /// When it was written, µs since 1970 by the engine's clock; zero where there is none.
    #[cfg(feature = "settings")]
    pub(crate) at_us: u64,
}

/// Reads a place: one look at one resource.
pub(crate) async fn read(client: &Client, place: &Resource) -> Result<Cell, Error> {
    let call = client.coordinator().inspect(place.clone());
    let found = client.driver.bounded(CALL_LIMIT, "look at a resource", call).await;
    let found = found.map_err(Error::without_effect)?;
    Ok(found.last_end.map_or_else(Cell::default, |end| Cell {
        line: end.by,
        #[cfg(feature = "settings")]
        at_us: end.at_us,
    }))
}

/// Leaves a line at a place where nobody else writes another one, or where the same one stands already.
#[cfg(feature = "settings")]
pub(crate) async fn leave(
    client: &Client,
    place: &Resource,
    line: &Label,
    attempts: u32,
) -> Result<(), Error> {
    for attempt in 0..attempts {
        let claim = claim(client, place, line.clone())?;
        if let Some(grant) = come_in(client, &claim).await? {
            return release(client, claim, grant.token).await;
        }
        pause(client, attempt).await;
    }
    Err(crowd(place))
}

/// Puts another line in place of the one that stands there. `next` is told that one, and the time by the engine's clock; `None`
/// leaves it as it is. What was written, if anything was.
///
/// # Errors
/// [`Kind::Unavailable`]: nothing has changed, because the coordinator cannot be asked, grants nothing now, or others come first
/// all the time. [`Kind::Unknown`]: nobody knows whether the line counts.
pub(crate) async fn change<T>(
    client: &Client,
    place: &Resource,
    reason: &str,
    attempts: u32,
    next: impl Fn(&Label, u64) -> Option<(Label, T)>,
) -> Result<Option<T>, Error> {
    for attempt in 0..attempts {
        let claim = claim(client, place, read(client, place).await?.line)?;
        let Some(grant) = come_in(client, &claim).await? else {
            pause(client, attempt).await;
            continue;
        };
        let stands = match read(client, place).await {
            Ok(cell) => cell.line,
            Err(error) => {
                let _ = release(client, claim, grant.token).await;
                return Err(error);
            }
        };
        if stands != claim.label {
            end(client, place, grant.token, stands, reason).await?;
            continue;
        }
        let Some((line, written)) = next(&stands, grant.granted_us) else {
            return release(client, claim, grant.token).await.map(|()| None);
        };
        if end(client, place, grant.token, line, reason).await? {
            return Ok(Some(written));
        }
    }
    Err(crowd(place))
}

/// A claim that carries a line.
fn claim(client: &Client, place: &Resource, line: Label) -> Result<Claim, Error> {
    Ok(Claim {
        resource: place.clone(),
        lease_id: random::lease_id()?,
        holder_id: client.holder_id(),
        label: line,
        // As long as the calls may take.
        ttl: Ttl::new(3 * CALL_LIMIT)?.min(client.coordinator().profile().max_ttl),
        lock_delay: Duration::ZERO,
        floor: None,
        queue: false,
        once_per: None,
    })
}

/// Claims. `None`: others are there. A claim whose answer is missing is repeated as it was, and recognised.
async fn come_in(client: &Client, claim: &Claim) -> Result<Option<Grant>, Error> {
    let mut repeats = 0;
    loop {
        let call = client.coordinator().acquire(claim.clone());
        match client.driver.bounded(CALL_LIMIT, "claim", call).await {
            Ok(Acquired::Granted(grant)) => return Ok(Some(grant)),
            Ok(Acquired::Quarantined { remaining, .. }) => {
                let what =
                    format!("the namespace is in quarantine for another {}s", remaining.as_secs().max(1));
                let error = Error::new(Kind::Unavailable, what).at(&client.coordinator().profile().place);
                return Err(error.advise("wait, or see `leasehold init --fresh`"));
            }
            Ok(_) => return Ok(None),
            Err(error) if error.is_transient() && repeats < REPEATS => {
                repeats += 1;
                pause(client, repeats).await;
            }
            // Whatever became of the claim, it changes no line by itself.
            Err(error) => return Err(error.without_effect()),
        }
    }
}

/// Ends our grant so that `line` counts. False: it had ended before, and nothing has changed.
async fn end(
    client: &Client,
    place: &Resource,
    token: Token,
    line: Label,
    reason: &str,
) -> Result<bool, Error> {
    let reason = Label::from_lossy(reason);
    let revocation = Revocation { resource: place.clone(), token, by: line.clone(), reason, now: true };
    let call = client.coordinator().revoke(revocation);
    match client.driver.bounded(CALL_LIMIT, "revocation", call).await {
        Ok(Revoked::Ended { .. }) => Ok(true),
        Ok(_) => Ok(false),
        Err(error) if error.kind() == Kind::Unknown => match read(client, place).await {
            Ok(cell) if cell.line == line => Ok(true),
            _ => Err(error),
        },
        Err(error) => Err(error),
    }
}

/// Ends our grant so that its label counts.
async fn release(client: &Client, claim: Claim, token: Token) -> Result<(), Error> {
    let Claim { resource, lease_id, .. } = claim;
    let release = Release { resource, lease_id, token: Some(token), succeeded: false };
    let call = client.coordinator().release(release);
    client.driver.bounded(CALL_LIMIT, "release", call).await.map(drop)
}

async fn pause(client: &Client, attempt: u32) {
    client.driver.sleep(Backoff::default().delay(attempt.min(3), client.draw())).await;
}

fn crowd(place: &Resource) -> Error {
    Error::new(Kind::Unavailable, "others write there at the same time").on(place).advise("try again")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use leasehold_core::Namespace;

    use super::*;
    use crate::{
        Leases,
        coordinator::memory::{MemoryCoordinator, MemoryStore},
    };

    async fn client(store: &MemoryStore) -> Leases {
        let coordinator = Arc::new(MemoryCoordinator::new(store.clone(), Namespace::default()));
        Leases::over(coordinator, Namespace::default(), Label::from_lossy("test")).await.unwrap()
    }

    fn line(text: &str) -> Label {
        Label::from_lossy(text)
    }

    async fn write(client: &Client, place: &Resource, text: &str) -> Result<Option<()>, Error> {
        change(client, place, "test", 50, |_, _| Some((line(text), ()))).await
    }

    /// A writer that ends, or is paused, between its claim and its revocation has changed nothing.
    #[tokio::test]
    async fn a_writer_that_ends_in_the_middle_has_changed_nothing() {
        let leases = client(&MemoryStore::default()).await;
        let (client, place) = (leases.client(), Resource::new("place").unwrap());
        write(client, &place, "old").await.unwrap();
        let stands = async || read(client, &place).await.unwrap().line;
        let short = Ttl::from_millis(50).unwrap();
        let halfway = Claim { ttl: short, ..claim(client, &place, stands().await).unwrap() };
        let Some(grant) = come_in(client, &halfway).await.unwrap() else { panic!("it is free") };
        assert_eq!(stands().await, line("old"), "while it is changed");
        while leases.inspect(&place).await.unwrap().record.is_some() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(!end(client, &place, grant.token, line("too late"), "test").await.unwrap());
        assert_eq!(stands().await, line("old"));
        write(client, &place, "new").await.unwrap();
        assert_eq!(stands().await, line("new"));
    }

    /// Many add one to what stands there, and some look and change nothing: nobody's is lost, and nobody's counts twice.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn changes_follow_one_another() {
        const WRITERS: u32 = 6;
        const EACH: u32 = 1_000;
        let store = MemoryStore::default();
        let place = Resource::new("place").unwrap();
        let count = |stands: &Label| stands.as_str().parse::<u32>().unwrap_or_default();
        let mut writing = Vec::new();
        for writer in 0..2 * WRITERS {
            let (leases, place) = (client(&store).await, place.clone());
            writing.push(tokio::spawn(async move {
                for _ in 0..EACH {
                    let add = |stands: &Label, _| {
                        (writer < WRITERS).then(|| (line(&(count(stands) + 1).to_string()), ()))
                    };
                    change(leases.client(), &place, "test", 1_000, add).await.unwrap();
                }
            }));
        }
        for task in writing {
            task.await.unwrap();
        }
        let leases = client(&store).await;
        assert_eq!(count(&read(leases.client(), &place).await.unwrap().line), WRITERS * EACH);
        let none = change(leases.client(), &place, "test", 1, |_, _| None::<(Label, ())>).await.unwrap();
        assert_eq!((none, count(&read(leases.client(), &place).await.unwrap().line)), (None, WRITERS * EACH));
    }
}
