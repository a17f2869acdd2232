//! A connection for questions that are asked now and then, beside leases: it lives in a room of its own, is made when it is first
//! needed, and is given up when a question failed on it.

use std::{pin::Pin, sync::Arc, time::Duration};

use leasehold_core::{Error, Kind};
use tokio::sync::Mutex;
use tokio_postgres::Client;

use super::link::{Dialler, Link};
use crate::{address::Address, room::Room};

/// A question that takes longer has no answer: the connection is given up.
const LIMIT: Duration = Duration::from_secs(15);

/// The future of what is done on the connection.
pub(crate) type Answering<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// Asks one question after the other. `C` is what the questions have in common: names, statements.
#[derive(Debug)]
pub(crate) struct Asker<C> {
    place: String,
    inner: Arc<Inner<C>>,
    room: Room,
}

#[derive(Debug)]
struct Inner<C> {
    dialler: Dialler,
    link: Mutex<Option<Link>>,
    common: C,
}

impl<C: Send + Sync + 'static> Asker<C> {
    /// Connects, so that a wrong address shows at once.
    ///
    /// # Errors
    /// Those of a coordinator that connects; nothing was changed.
    pub(crate) async fn connect(address: &Address, dialler: Dialler, common: C) -> Result<Self, Error> {
        let inner = Arc::new(Inner { dialler, link: Mutex::default(), common });
        let asker = Self { place: address.to_string(), inner, room: Room::open()? };
        asker.run(|_, _| Box::pin(async { Ok(()) })).await.map_err(Error::without_effect)?;
        Ok(asker)
    }

    /// The database, as errors name it.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// Asks on a connection that stands; one that a question failed on is given up with whatever was begun there.
    ///
    /// # Errors
    /// What `work` gives; [`Kind::Unknown`] when it takes longer than 15 s.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl for<'a> FnOnce(&'a mut Client, &'a C) -> Answering<'a, T> + Send + 'static,
    ) -> Result<T, Error> {
        let inner = Arc::clone(&self.inner);
        let answer = self.room.run(async move {
            let mut slot = inner.link.lock().await;
            let mut link = match slot.take().filter(Link::is_open) {
                Some(link) => link,
                None => inner.dialler.dial(Arc::new(|_| ())).await?,
            };
            let asked = tokio::time::timeout(LIMIT, work(&mut link.client, &inner.common));
            let late =
                |_| Err(Error::new(Kind::Unknown, format!("the database did not answer within {LIMIT:?}")));
            let answer = asked.await.unwrap_or_else(late);
            if answer.is_ok() {
                *slot = Some(link);
            }
            answer
        });
        answer.await.map_err(|error| error.at(&self.place))
    }
}
