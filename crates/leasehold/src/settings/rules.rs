//! Which settings a resource has: general ones, those of names that begin alike, and its own.

use std::{cmp::Reverse, time::Duration};

use leasehold_core::{Invalid, Resource, Ttl, policy::DEFAULT_JITTER_PERCENT, waiter::Wait};

/// So many patterns (ours: each claim looks at all of them).
const MAX_PATTERNS: usize = 1_000;

/// A limit, or the word that there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// No limit, where another rule or a default would set one.
    None,
    /// This long; more than zero.
    After(Duration),
}

/// Settings of a lease. What is `None` is left to the next rule, and in the end to the default.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tuning {
    /// How long a grant lasts without renewal.
    pub ttl: Option<Ttl>,
    /// How far the time between renewals strays from its mean, in percent each way; at most
    /// [`leasehold_core::policy::MAX_JITTER_PERCENT`].
    pub jitter: Option<u8>,
    /// How long to wait for a grant.
    pub wait: Option<Wait>,
    /// How long a lease may be held, renewals and all.
    pub max_hold: Option<Limit>,
    /// How long a drain may take.
    pub drain_timeout: Option<Limit>,
}

impl Tuning {
    /// These settings, and where they say nothing, those.
    #[must_use]
    pub fn over(self, other: Self) -> Self {
        Self {
            ttl: self.ttl.or(other.ttl),
            jitter: self.jitter.or(other.jitter),
            wait: self.wait.or(other.wait),
            max_hold: self.max_hold.or(other.max_hold),
            drain_timeout: self.drain_timeout.or(other.drain_timeout),
        }
    }

    pub(crate) fn jitter_percent(self) -> u32 {
        self.jitter.map_or(DEFAULT_JITTER_PERCENT, u32::from)
    }
}

/// Names that a rule is about.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Pattern {
    text: String,
    /// True: names that begin so. False: the one name.
    begins: bool,
}

impl Pattern {
    fn matches(&self, name: &str) -> bool {
        if self.begins { name.starts_with(&self.text) } else { name == self.text }
    }

    /// What comes first is more specific: a name before what it begins with, the longer before the shorter.
    fn rank(&self) -> (bool, Reverse<usize>) {
        (self.begins, Reverse(self.text.len()))
    }
}

/// The settings of a program's leases, by resource. For each setting the most specific rule that says something counts: the
/// resource's own, then those of its beginnings from the longest to the shortest, then the general one.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Rules {
    general: Tuning,
    /// The most specific first.
    special: Vec<(Pattern, Tuning)>,
}

impl Rules {
    /// The same settings for every resource.
    pub fn general(tuning: Tuning) -> Self {
        Self { general: tuning, special: Vec::new() }
    }

    /// And these for the resources that `pattern` names: one resource, or with a `*` at its end all whose names begin so.
    ///
    /// # Errors
    /// [`Invalid`] for a pattern with a `*` elsewhere, one that is there already, and more than a thousand of them.
    pub fn with(mut self, pattern: &str, tuning: Tuning) -> Result<Self, Invalid> {
        let (text, begins) = pattern.strip_suffix('*').map_or((pattern, false), |start| (start, true));
        if text.contains('*') {
            return Err(Invalid::new("pattern", "may have a * at its end only"));
        }
        if !(begins && text.is_empty()) {
            Resource::new(text)?;
        }
        if self.special.len() >= MAX_PATTERNS {
            return Err(Invalid::new("pattern", "must be one of at most 1000"));
        }
        let pattern = Pattern { text: text.to_owned(), begins };
        if self.special.iter().any(|(known, _)| *known == pattern) {
            return Err(Invalid::new("pattern", "must be given once"));
        }
        let place = self.special.partition_point(|(known, _)| known.rank() <= pattern.rank());
        self.special.insert(place, (pattern, tuning));
        Ok(self)
    }

    /// The settings of one resource.
    pub fn of(&self, resource: &Resource) -> Tuning {
        let special = self.special.iter().filter(|(pattern, _)| pattern.matches(resource.as_str()));
        special.fold(Tuning::default(), |so_far, (_, more)| so_far.over(*more)).over(self.general)
    }

    /// Every word of them, whichever resource it is about.
    pub(crate) fn all(&self) -> impl Iterator<Item = Tuning> {
        self.special.iter().map(|(_, tuning)| *tuning).chain([self.general])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ttl(seconds: u64) -> Tuning {
        Tuning { ttl: Some(Ttl::from_millis(seconds * 1_000).unwrap()), ..Tuning::default() }
    }

    fn of(rules: &Rules, name: &str) -> Option<u64> {
        rules.of(&Resource::new(name).unwrap()).ttl.map(|ttl| ttl.as_millis() / 1_000)
    }

    #[test]
    fn the_most_specific_rule_that_says_something_counts() {
        let rules = Rules::general(Tuning { wait: Some(Wait::Forever), ..ttl(1) })
            .with("a/*", ttl(2))
            .and_then(|rules| rules.with("a/b/*", Tuning { wait: Some(Wait::No), ..Tuning::default() }))
            .and_then(|rules| rules.with("a/b/c", ttl(3)))
            .unwrap();
        let found = |name| (of(&rules, name).unwrap(), rules.of(&Resource::new(name).unwrap()).wait.unwrap());
        assert_eq!(found("b"), (1, Wait::Forever));
        assert_eq!(found("a/x"), (2, Wait::Forever));
        assert_eq!(found("a/b/x"), (2, Wait::No), "what a rule does not say is left to the next");
        assert_eq!(found("a/b/c"), (3, Wait::No));
        assert_eq!(found("a/b/c/d"), (2, Wait::No), "a name is not its beginning");
        assert_eq!(of(&Rules::default(), "a"), None);
    }

    #[test]
    fn patterns_that_cannot_be_meant_are_refused() {
        let rules = || Rules::default().with("a/*", ttl(2)).unwrap();
        for bad in ["a/*", "a*b", "**", "", "a\0*"] {
            assert!(rules().with(bad, ttl(3)).is_err(), "{bad:?}");
        }
        assert_eq!(of(&rules().with("*", ttl(4)).unwrap(), "b"), Some(4));
        let many =
            (0..1_000).try_fold(Rules::default(), |rules, n| rules.with(&format!("r{n}"), ttl(2))).unwrap();
        assert!(many.with("r", ttl(2)).is_err());
    }

    proptest! {
        /// The order in which rules are given means nothing.
        #[test]
        fn what_counts_depends_on_no_order(names in prop::collection::btree_set("[ab]{1,3}\\*?", 1..8), name in "[ab]{1,4}") {
            let names: Vec<String> = names.into_iter().collect();
            let built = |order: &mut dyn Iterator<Item = (usize, &String)>| {
                order.fold(Rules::default(), |rules, (n, name)| rules.with(name, ttl(n as u64 + 1)).unwrap())
            };
            let forward = built(&mut names.iter().enumerate());
            let back = built(&mut names.iter().enumerate().rev());
            prop_assert_eq!(of(&forward, &name), of(&back, &name));
            // By the definition: the name itself, else the longest beginning.
            let exact = names.iter().position(|known| *known == name);
            let beginning = names.iter().enumerate().filter_map(|(n, known)| {
                known.strip_suffix('*').filter(|start| name.starts_with(start)).map(|start| (start.len(), n))
            }).max().map(|(_, n)| n);
            prop_assert_eq!(of(&forward, &name), exact.or(beginning).map(|n| n as u64 + 1));
        }
    }
}
