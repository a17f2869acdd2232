//! Where events go.

use std::{
    fmt::{self, Debug},
    io::{self, Write},
    time::Duration,
};

use serde_json::Value;

use crate::effects::{Event, Working};

/// Why an event was not published.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotPublished {
    /// The far end refuses this event. It is tried again a few times, and then set aside.
    Event(String),
    /// The far end takes nothing at the moment: no event is to blame. It is tried again for as long as that takes.
    Down {
        /// What is the matter.
        why: String,
        /// When it asks to be tried again.
        again_in: Option<Duration>,
    },
    /// There is no far end any more: the relay ends.
    Gone(String),
}

impl fmt::Display for NotPublished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Event(why) | Self::Gone(why) | Self::Down { why, .. } => f.write_str(why),
        }
    }
}

/// A far end of the relay.
pub trait Sink: Send + Sync + Debug {
    /// Publishes one event, whose JSON is `envelope`. Ready when the far end **has** it. It may come twice.
    ///
    /// # Errors
    /// [`NotPublished`].
    fn publish<'a>(&'a mut self, event: &'a Event, envelope: &'a Value) -> Working<'a, (), NotPublished>;

    /// Makes sure of what was published so far, before it is noted.
    ///
    /// # Errors
    /// [`NotPublished`]: all of it is published once more.
    fn flush(&mut self) -> Result<(), NotPublished> {
        Ok(())
    }
}

/// One line of JSON an event.
pub struct Lines<W>(W);

impl<W: Write + Send + Sync> Lines<W> {
    /// Lines to this writer.
    pub fn new(writer: W) -> Self {
        Self(writer)
    }
}

impl<W> Debug for Lines<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lines")
    }
}

fn gone(error: &io::Error) -> NotPublished {
    NotPublished::Gone(format!("the events cannot be written: {error}"))
}

impl<W: Write + Send + Sync> Sink for Lines<W> {
    fn publish<'a>(&'a mut self, _: &'a Event, envelope: &'a Value) -> Working<'a, (), NotPublished> {
        Box::pin(async move { writeln!(self.0, "{envelope}").map_err(|error| gone(&error)) })
    }

    fn flush(&mut self) -> Result<(), NotPublished> {
        self.0.flush().map_err(|error| gone(&error))
    }
}
