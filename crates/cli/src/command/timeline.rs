//! `timeline`: who held what, rebuilt from logs, as bars in the terminal and as a picture.

use std::{
    fs::{self, File},
    io::{self, BufReader},
    path::Path,
};

use serde::Serialize;

use crate::{
    args::Timeline,
    exit::Exit,
    failure::Failure,
    output::{Output, json_line, raw},
    people,
    timeline::{
        Grant, Story,
        draw::{self, LEGEND},
        findings::{Finding, judge},
        html,
        read::Entries,
        svg,
    },
};

/// Columns of a terminal that does not say how many it has.
const WIDTH: usize = 100;

pub(crate) fn run(args: &Timeline, output: Output) -> Result<Exit, Failure> {
    let mut read = Entries::default();
    for path in &args.files {
        let added = if path == Path::new("-") {
            read.add(io::stdin().lock())
        } else {
            File::open(path).and_then(|file| read.add(BufReader::new(file)))
        };
        added.map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))?;
    }
    if read.strange > 0 {
        output.detail(|| format!("{} lines are no events of ours and were left out", read.strange));
    }
    let mut story = Story::of(&read);
    if let Some(wanted) = &args.resource {
        story.tales.retain(|(_, resource), _| resource == wanted);
    }
    if story.tales.is_empty() {
        output.note("these logs tell of no lease");
    }
    let findings = judge(&story);
    write(args.svg.as_deref(), || svg(&story))?;
    write(args.html.as_deref(), || html(&story, &findings))?;
    if output.is_json() {
        tell_machines(&story, &findings)?;
    } else {
        tell_people(&story, &findings)?;
    }
    Ok(Exit::Done)
}

fn write(path: Option<&Path>, picture: impl FnOnce() -> String) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    fs::write(path, picture())
        .map_err(|error| Failure::usage(format!("cannot write {}: {error}", path.display())))
}

fn tell_people(story: &Story, findings: &[Finding]) -> Result<(), Failure> {
    let width = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).unwrap_or(WIDTH);
    let mut text = String::new();
    let mut say = |line: &str| {
        text.push_str(&people::visible(line));
        text.push('\n');
    };
    for ((_, resource), tale) in story.tales.iter().filter(|(_, tale)| !tale.grants.is_empty()) {
        for line in draw::lines(story, resource, tale, width) {
            say(&line);
        }
        say("");
        for line in draw::grants(story, tale).lines() {
            say(&format!("  {line}"));
        }
        say("");
    }
    for finding in findings {
        say(&format!("{} {}: {}", finding.word.replace('_', " "), finding.resource, finding.text));
    }
    if !text.is_empty() {
        text.push_str(LEGEND);
        text.push('\n');
    }
    raw(text.as_bytes())
}

fn tell_machines(story: &Story, findings: &[Finding]) -> Result<(), Failure> {
    let mut text = String::new();
    for ((namespace, resource), tale) in &story.tales {
        for (token, grant) in &tale.grants {
            text.push_str(&json_line(&GrantLine::of(story, namespace, resource, *token, grant))?);
        }
    }
    for finding in findings {
        text.push_str(&json_line(&FindingLine {
            finding: finding.word,
            resource: &finding.resource,
            namespace: &finding.namespace,
            fencing_token: finding.token,
            text: &finding.text,
        })?);
    }
    raw(text.as_bytes())
}

#[derive(Debug, Serialize)]
struct GrantLine<'a> {
    resource: &'a str,
    namespace: &'a str,
    fencing_token: u64,
    lease_id: &'a str,
    holder_id: &'a str,
    label: String,
    from: Option<String>,
    /// The last that is known of it.
    to: Option<String>,
    /// When it was over at the latest.
    to_at_latest: Option<String>,
    renewals: usize,
    failed_renewals: usize,
    /// `released`, `silent`, or why it was lost.
    end: &'a str,
}

impl<'a> GrantLine<'a> {
    fn of(story: &Story, namespace: &'a str, resource: &'a str, token: u64, grant: &'a Grant) -> Self {
        let instant = |us: i64| people::exact_instant(us.max(0).unsigned_abs());
        Self {
            resource,
            namespace,
            fencing_token: token,
            lease_id: &grant.lease_id,
            holder_id: &grant.holder_id,
            label: story.name(&grant.holder_id),
            from: instant(grant.from_us),
            to: instant(grant.last_us()),
            to_at_latest: instant(grant.latest_us()),
            renewals: grant.renewed.len(),
            failed_renewals: grant.failed.len(),
            end: grant.end_word(),
        }
    }
}

#[derive(Debug, Serialize)]
struct FindingLine<'a> {
    finding: &'static str,
    resource: &'a str,
    namespace: &'a str,
    fencing_token: u64,
    text: &'a str,
}
