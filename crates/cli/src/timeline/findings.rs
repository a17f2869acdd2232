//! What is worth pointing at: two holders at once, tokens out of order, bounced writes, resources that stood blocked.

use std::time::Duration;

use super::{Grant, Story, Tale};
use crate::people;

/// Clocks of two machines are put on one scale to about one round trip; nearer than this two moments are one (ours).
const BLUR_US: i64 = 50_000;

/// Something to look at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Finding {
    /// One stable word.
    pub(crate) word: &'static str,
    pub(crate) namespace: String,
    pub(crate) resource: String,
    /// The grant it is about.
    pub(crate) token: u64,
    pub(crate) text: String,
}

/// Looks at every resource.
pub(crate) fn judge(story: &Story) -> Vec<Finding> {
    let mut found = Vec::new();
    for ((namespace, resource), tale) in &story.tales {
        let mut add = |word, token, text| {
            let (namespace, resource) = (namespace.clone(), resource.clone());
            found.push(Finding { word, namespace, resource, token, text });
        };
        judge_neighbours(story, tale, &mut add);
        for (_, token, stored) in &tale.bounced {
            let than = stored.map_or_else(String::new, |stored| format!("; the fence had seen {stored}"));
            add("write_refused", *token, format!("a write under token {token} was refused{than}"));
        }
    }
    found
}

fn judge_neighbours(story: &Story, tale: &Tale, add: &mut impl FnMut(&'static str, u64, String)) {
    let grants: Vec<(&u64, &Grant)> = tale.grants.iter().collect();
    for pair in grants.windows(2) {
        let [(first, before), (second, after)] = pair else { continue };
        let (one, two) = (story.name(&before.holder_id), story.name(&after.holder_id));
        if after.from_us.saturating_add(BLUR_US) < before.from_us {
            add(
                "token_went_back",
                **second,
                format!("token {second} of {two} is higher than {first} of {one}, which was granted later"),
            );
            continue;
        }
        let over = before.last_us().saturating_sub(after.from_us);
        if over > BLUR_US {
            add(
                "overlap",
                **second,
                format!(
                    "{two} was granted token {second} while {one} held under {first}, for {}",
                    span(over)
                ),
            );
            continue;
        }
        let free = after.from_us.saturating_sub(before.last_us());
        match &before.finish {
            None => add(
                "blocked",
                **second,
                format!("{one} fell silent under token {first}; the next grant came {} later", span(free)),
            ),
            Some(_) if free > BLUR_US => {
                add("gap", **second, format!("nobody held it for {} after token {first}", span(free)));
            }
            Some(_) => {}
        }
    }
}

/// A time in µs, for people.
pub(crate) fn span(us: i64) -> String {
    people::duration(Duration::from_micros(us.max(0).unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::timeline::read::Entries;

    const START_US: i64 = 1_767_323_045_000_000;

    /// Lines of one machine whose clock is ahead by so many seconds.
    struct Log(String, i64);

    impl Log {
        fn say(&mut self, at_ms: i64, rest: &str) {
            let at = u64::try_from(START_US + at_ms * 1_000 + self.1 * 1_000_000).unwrap();
            let at = people::exact_instant(at).unwrap();
            writeln!(self.0, "{{\"timestamp\":\"{at}\",\"resource\":\"r\",{rest}}}").unwrap();
        }

        fn granted(&mut self, at_ms: i64, holder: &str, token: u64) {
            let us = START_US + at_ms * 1_000;
            self.say(at_ms + 1, &format!(
                "\"message\":\"the lease is granted\",\"holder_id\":\"{holder}\",\"fencing_token\":{token},\"ttl_ms\":1000,\
                 \"from\":\"acquiring\",\"to\":\"held\",\"reason\":\"free\",\"granted_us\":{us}"
            ));
        }

        fn to(&mut self, at_ms: i64, holder: &str, token: u64, to: &str, reason: &str) {
            self.say(at_ms, &format!(
                "\"message\":\"x\",\"holder_id\":\"{holder}\",\"fencing_token\":{token},\"ttl_ms\":1000,\"from\":\"held\",\
                 \"to\":\"{to}\",\"reason\":\"{reason}\""
            ));
        }
    }

    fn words(logs: &[Log]) -> Vec<(&'static str, u64)> {
        let mut read = Entries::default();
        for log in logs {
            read.add(log.0.as_bytes()).unwrap();
        }
        assert_eq!(read.strange, 0);
        judge(&Story::of(&read)).iter().map(|finding| (finding.word, finding.token)).collect()
    }

    #[test]
    fn a_clean_hand_over_between_machines_whose_clocks_disagree_is_clean() {
        let (mut fast, mut slow) = (Log(String::new(), 3_600), Log(String::new(), -90));
        fast.granted(0, "a", 1);
        fast.to(900, "a", 1, "released", "");
        slow.granted(901, "b", 2);
        slow.to(1_500, "b", 2, "released", "");
        fast.granted(1_502, "a", 3);
        assert_eq!(words(&[slow, fast]), []);
    }

    #[test]
    fn overlaps_gaps_silence_bounced_writes_and_tokens_that_go_back_are_pointed_out() {
        let mut log = Log(String::new(), 0);
        log.granted(0, "a", 1);
        log.granted(500, "b", 2);
        log.to(800, "a", 1, "lost", "window_closed");
        log.to(900, "b", 2, "released", "");
        log.granted(2_000, "c", 3);
        log.granted(4_000, "d", 4);
        log.to(4_100, "d", 4, "released", "");
        log.granted(3_000, "e", 5);
        log.say(
            4_200,
            "\"message\":\"a write was refused at the fence\",\"fencing_token\":1,\"stored_token\":4",
        );
        let expected =
            [("overlap", 2), ("gap", 3), ("blocked", 4), ("token_went_back", 5), ("write_refused", 1)];
        assert_eq!(words(&[log]), expected);
    }

    #[test]
    fn whoever_ends_a_grant_by_its_name_ends_the_bar_of_its_holder() {
        let mut log = Log(String::new(), 0);
        log.granted(0, "killed", 1);
        log.say(
            300,
            "\"message\":\"a grant was ended by its name\",\"holder_id\":\"guard\",\"fencing_token\":1,\
                      \"from\":\"held\",\"to\":\"released\",\"reason\":\"named\"",
        );
        log.granted(310, "next", 2);
        assert_eq!(words(&[log]), []);
    }
}
