//! Is this deployment fit to be trusted? Facts, judged, each with what to change.
//!
//! An engine's own folder reads its facts, `machine` those of the machine that asks; this is the shape in which all of them
//! are told. An examination changes nothing: no file is made, no namespace, no setting.

mod machine;
pub(crate) mod rate;

use std::borrow::Cow;

use leasehold_core::{Error, Kind, Namespace};

use crate::{Url, aside};

/// Examines the deployment behind `url`, as far as this client may look.
///
/// # Errors
/// [`Kind::Invalid`] and [`Kind::Unsupported`] for the URL; otherwise when there is nothing to examine: [`Kind::Unavailable`]
/// for an engine that cannot be reached, [`Kind::Denied`] for one that refuses the login. What may not be looked at is a
/// finding, not an error.
///
/// # Cancel safety
/// Dropping it leaves nothing behind.
pub async fn examine(url: &str, namespace: &Namespace) -> Result<Report, Error> {
    let (url, namespace) = (Url::parse(url)?, namespace.clone());
    let place = url.place();
    let work = move || async move {
        let mut findings = url.examine(&namespace).await?;
        findings.extend(machine::examine().await);
        Ok(findings)
    };
    let early = || Error::new(Kind::Unavailable, "the examination ended early");
    let findings = aside::run("leasehold-doctor", work, early).await.map_err(|error| error.at(&place))?;
    Ok(Report { place, findings })
}

/// What an examination found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// Where: the URL without its secrets.
    pub place: String,
    /// The facts, the engine's first.
    pub findings: Vec<Finding>,
}

impl Report {
    /// The worst verdict; [`Verdict::Fine`] when nothing was found.
    pub fn worst(&self) -> Verdict {
        self.findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Fine)
    }
}

/// How a fact is judged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Verdict {
    /// As it should be.
    Fine,
    /// Worth knowing; breaks nothing.
    Note,
    /// A promise holds only under an assumption that this deployment may break.
    Warning,
    /// A promise is broken, or will be.
    Fault,
}

impl Verdict {
    /// One stable lower-case word, for people and JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Fault => "fault",
        }
    }
}

/// One fact about a deployment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What was looked at, in a word or two: `persistence`, `synchronous_commit`.
    pub subject: &'static str,
    /// What was found, as a short sentence without a final stop. Free of secrets.
    pub fact: String,
    /// How it is judged.
    pub verdict: Verdict,
    /// The guarantee that it touches, in words of the guarantee label: `windows`, `tokens`, `durability`, `waiting` …
    pub touches: &'static str,
    /// What to change, as a sentence without a final stop; `None` when nothing need be.
    pub cure: Option<Cow<'static, str>>,
}

impl Finding {
    /// A fact that is as it should be.
    pub fn fine(subject: &'static str, touches: &'static str, fact: impl Into<String>) -> Self {
        Self { subject, fact: fact.into(), verdict: Verdict::Fine, touches, cure: None }
    }

    /// A fact that is judged otherwise, and its cure.
    pub fn new(
        verdict: Verdict,
        subject: &'static str,
        touches: &'static str,
        fact: impl Into<String>,
        cure: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { subject, fact: fact.into(), verdict, touches, cure: Some(cure.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocking::block_on;

    #[test]
    fn an_examination_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sub/leases.db");
        let url = format!("sqlite:{}", path.display());
        let report = block_on(examine(&url, &Namespace::default())).unwrap();
        assert!(report.worst() < Verdict::Warning, "{report:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert_eq!(report.place, url);
    }

    #[test]
    fn what_needs_no_cure_has_none_and_the_rest_has_one() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("leases.db").display());
        for finding in block_on(examine(&url, &Namespace::default())).unwrap().findings {
            let needs = finding.verdict >= Verdict::Warning;
            assert!(!needs || finding.cure.is_some(), "{finding:?}");
        }
    }
}
