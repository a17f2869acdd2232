//! Everything that is not the wished-for result: errors, and answers such as "held by another". One shape, printed by
//! `output` for people or as JSON, with one exit code.

use std::{
    io,
    ops::{Deref, DerefMut},
};

use leasehold::{Error, Invalid};

use crate::{exit::Exit, view::LeaseFields};

/// Why a verb did not do what was asked. Boxed, because results carry it everywhere.
#[derive(Debug)]
pub(crate) struct Failure(Box<Fields>);

/// What there is to say.
#[derive(Debug)]
pub(crate) struct Fields {
    exit: Exit,
    kind: &'static str,
    what: String,
    pub(crate) resource: Option<String>,
    pub(crate) advice: Option<String>,
    /// Why a grant is not there any more: one stable word.
    pub(crate) reason: Option<&'static str>,
    /// The grant in the way.
    pub(crate) holder: Option<LeaseFields>,
    /// The exact command that would end it.
    pub(crate) revoke: Option<String>,
    /// For people: what else there is to say, as names and values.
    pub(crate) details: Vec<(&'static str, String)>,
    /// For people: replaces `what` where it says more.
    text: Option<String>,
    nature: Nature,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Nature {
    /// Something is wrong.
    Error,
    /// The coordinator's answer is no. `-q` leaves it to the exit code.
    Answer,
    /// Whoever read the output has gone: nobody is there to be told.
    Closed,
}

impl Failure {
    fn new(exit: Exit, kind: &'static str, what: impl Into<String>) -> Self {
        Self(Box::new(Fields {
            exit,
            kind,
            what: what.into(),
            resource: None,
            advice: None,
            reason: None,
            holder: None,
            revoke: None,
            details: Vec::new(),
            text: None,
            nature: Nature::Error,
        }))
    }

    /// A mistake in the words or the configuration, in a few words without a final stop.
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self::new(Exit::Usage, "usage", what)
    }

    /// The same as the argument parser tells it, in lines.
    pub(crate) fn usage_text(text: &str) -> Self {
        // The first paragraph says it in a sentence; the rest is help.
        let paragraph =
            text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect::<Vec<_>>().join(" ");
        let mut failure = Self::usage(paragraph.strip_prefix("error: ").unwrap_or(&paragraph));
        failure.text = Some(text.trim_end().to_owned());
        failure.advice = Some("see `leasehold --help`".to_owned());
        failure
    }

    /// Something went wrong that is told even with `-q`. `kind` is one stable word.
    pub(crate) fn error(exit: Exit, kind: &'static str, what: impl Into<String>) -> Self {
        Self::new(exit, kind, what)
    }

    /// An answer: not what was wished for, and nothing wrong. `kind` is one stable word.
    pub(crate) fn answer(exit: Exit, kind: &'static str, what: impl Into<String>) -> Self {
        let mut failure = Self::new(exit, kind, what);
        failure.nature = Nature::Answer;
        failure
    }

    /// Ended by a signal while waiting.
    pub(crate) fn interrupted(signal: nix::sys::signal::Signal) -> Self {
        Self::answer(
            Exit::Interrupted(signal),
            "interrupted",
            format!("ended by {signal}; the claim was taken back"),
        )
    }

    /// The result could not be written.
    pub(crate) fn unwritten(error: &io::Error) -> Self {
        let closed = error.kind() == io::ErrorKind::BrokenPipe;
        let mut failure = Self::new(Exit::Unwritten, "output", format!("cannot write the result: {error}"));
        failure.nature = if closed { Nature::Closed } else { Nature::Error };
        failure
    }

    /// The same with another exit code, for a verb that has its own.
    pub(crate) fn moved_to(mut self, exit: Exit) -> Self {
        // What was typed wrong is that everywhere.
        if self.exit != Exit::Usage {
            self.exit = exit;
        }
        self
    }

    /// Adds what to do next.
    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// What happened.
    pub(crate) fn what(&self) -> &str {
        &self.what
    }

    /// The stable word for it.
    pub(crate) fn kind(&self) -> &'static str {
        self.kind
    }

    /// How the program ends. A reader that went away has had enough of a list: nothing is wrong.
    pub(crate) fn exit(&self) -> Exit {
        if self.nature == Nature::Closed { Exit::Done } else { self.exit }
    }

    /// False when there is nobody to tell, or when `quiet` leaves it to the exit code.
    pub(crate) fn is_told(&self, quiet: bool) -> bool {
        match self.nature {
            Nature::Error => true,
            Nature::Answer => !quiet,
            Nature::Closed => false,
        }
    }

    /// The lines for people, unescaped.
    pub(crate) fn lines(&self) -> Vec<String> {
        if let Some(text) = &self.text {
            return text.lines().map(str::to_owned).collect();
        }
        let mut lines = vec![format!("leasehold: {}", self.what)];
        let width = self.details.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        lines.extend(self.details.iter().map(|(name, value)| format!("  {name:width$}  {value}")));
        if self.details.is_empty()
            && let Some(advice) = &self.advice
        {
            lines[0] = format!("leasehold: {}; {advice}", self.what);
        }
        lines
    }
}

impl Deref for Failure {
    type Target = Fields;

    fn deref(&self) -> &Fields {
        &self.0
    }
}

impl DerefMut for Failure {
    fn deref_mut(&mut self) -> &mut Fields {
        &mut self.0
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let mut failure = Self::new(error.kind().into(), error.kind().word(), error.what());
        failure.resource = error.resource().map(|resource| resource.as_str().to_owned());
        failure.advice = error.advice().map(str::to_owned);
        // What, where, what it means and what to do, in one sentence.
        failure.text = Some(format!("leasehold: {error}"));
        failure
    }
}

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Self {
        Self::usage(invalid.to_string())
    }
}
