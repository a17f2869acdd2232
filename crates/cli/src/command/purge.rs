//! `purge`: the engine's housekeeping for a namespace, now and to its end. Clients do the same by themselves, a little at a time.

use leasehold::{Error, Kind, Leases, Resource, blocking::block_on, core::request::Purge as Step};
use serde::Serialize;

use crate::{args::Purge, client, exit::Exit, failure::Failure, people, settings::Settings};

/// So many names are told in JSON (ours: a page of a list).
const NAMED: usize = 1_000;

/// The answer.
#[derive(Debug, Serialize)]
struct PurgeLine {
    namespace: String,
    place: String,
    dry_run: bool,
    looked_at: u64,
    forgotten: u64,
    resources: Vec<String>,
}

pub(crate) fn run(args: &Purge, settings: &Settings) -> Result<Exit, Failure> {
    let leases = client::connect(settings, client::operator)?;
    let mut line = PurgeLine {
        namespace: leases.namespace().as_str().to_owned(),
        place: leases.profile().place.clone(),
        dry_run: args.dry_run,
        looked_at: 0,
        forgotten: 0,
        resources: Vec::new(),
    };
    let mut after = None;
    loop {
        after = step(&leases, after.as_ref(), settings, &mut line)?;
        if after.is_none() {
            break;
        }
    }
    settings.output.confirm(&line, || describe(&line))?;
    Ok(Exit::Done)
}

/// One step. Where to go on.
fn step(
    leases: &Leases,
    after: Option<&Resource>,
    settings: &Settings,
    line: &mut PurgeLine,
) -> Result<Option<Resource>, Failure> {
    let purged = block_on(leases.purge(Step { after: after.cloned(), dry_run: line.dry_run }))?;
    line.looked_at += purged.looked_at;
    line.forgotten += purged.idle.len() as u64;
    for resource in purged.idle {
        // Resources show themselves harmlessly.
        settings.output.detail(|| resource.to_string());
        if line.resources.len() < NAMED {
            line.resources.push(resource.as_str().to_owned());
        }
    }
    if purged.next.is_some() && purged.next.as_ref() == after {
        let what = "the coordinator's housekeeping does not get on";
        return Err(Error::new(Kind::Corrupt, what).at(&line.place).into());
    }
    Ok(purged.next)
}

fn describe(line: &PurgeLine) -> String {
    let PurgeLine { namespace, place, dry_run, looked_at, forgotten, .. } = line;
    let (of, would) =
        (if *looked_at == 1 { "resource" } else { "resources" }, if *dry_run { "would be" } else { "are" });
    format!(
        "{forgotten} of {looked_at} {of} {would} forgotten: unused for {} (namespace {namespace} on {place})",
        people::duration(Step::IDLE)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_how_many_of_how_many_and_where() {
        let line = PurgeLine {
            namespace: "app".to_owned(),
            place: "sqlite:/x".to_owned(),
            dry_run: true,
            looked_at: 12,
            forgotten: 3,
            resources: Vec::new(),
        };
        let text = "3 of 12 resources would be forgotten: unused for 7d (namespace app on sqlite:/x)";
        assert_eq!(describe(&line), text);
        let line = PurgeLine { dry_run: false, looked_at: 1, forgotten: 1, ..line };
        assert!(describe(&line).starts_with("1 of 1 resource are forgotten"));
    }
}
