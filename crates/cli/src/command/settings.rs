//! `settings`: what the coordinator keeps for everybody in a namespace who leaves something open.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use leasehold::{
    Leases,
    blocking::block_on,
    settings::{
        Rules,
        stored::{Change, MAX_BYTES},
    },
};

use crate::{
    args::{SettingsOfAll, SettingsVerb},
    client,
    exit::Exit,
    failure::Failure,
    output::{json_line, raw},
    people,
    settings::Settings,
    table::table,
    view::{ChangeLine, SettingsLine},
};

const HEAD: [&str; 4] = ["VERSION", "BY", "AT", "BYTES"];

pub(crate) fn run(args: &SettingsOfAll, settings: &Settings) -> Result<Exit, Failure> {
    // Read before anything is asked: a wrong file is that wherever the coordinator is.
    let text = match &args.verb {
        SettingsVerb::Set(set) => Some(read(&set.file)?),
        _ => None,
    };
    let leases = client::connect(settings, client::operator)?;
    match &args.verb {
        SettingsVerb::Show => show(&leases, settings),
        SettingsVerb::History => history(&leases, settings),
        SettingsVerb::Set(_) | SettingsVerb::Clear => set(&text.unwrap_or_default(), &leases, settings),
    }
}

/// Settings from a file, whole or not at all.
fn read(file: &Path) -> Result<String, Failure> {
    let name =
        || if file == Path::new("-") { "standard input".to_owned() } else { file.display().to_string() };
    let text = text(file).map_err(|error| Failure::usage(format!("cannot read {}: {error}", name())))?;
    Rules::parse(&text, &[]).map_err(|problem| Failure::usage(format!("{}: {problem}", name())))?;
    Ok(text)
}

fn text(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    // One more than is taken, so that the library can say how many are.
    let limit = MAX_BYTES as u64 + 1;
    if file == Path::new("-") {
        io::stdin().take(limit).read_to_string(&mut text)?;
    } else {
        File::open(file)?.take(limit).read_to_string(&mut text)?;
    }
    if text.len() > MAX_BYTES {
        return Err(io::Error::other(format!("the coordinator keeps {MAX_BYTES} bytes, and these are more")));
    }
    Ok(text)
}

fn show(leases: &Leases, settings: &Settings) -> Result<Exit, Failure> {
    let stored = block_on(leases.stored_settings())?;
    if settings.output.is_json() {
        raw(json_line(&SettingsLine::new(leases, stored.as_ref()))?.as_bytes())?;
        return Ok(Exit::Done);
    }
    match &stored {
        None => settings.output.detail(|| "the coordinator keeps no settings".to_owned()),
        Some(stored) => {
            settings.output.detail(|| describe(&stored.change));
            // As it was given, so that it can be changed and set again; but harmless. Only tabs are kept as they are.
            let lines = stored.text.lines().map(|line| {
                let parts: Vec<String> = line.split('\t').map(people::visible).collect();
                parts.join("\t") + "\n"
            });
            raw(lines.collect::<String>().as_bytes())?;
        }
    }
    Ok(Exit::Done)
}

fn describe(change: &Change) -> String {
    let done = if change.bytes == 0 { "taken away" } else { "set" };
    format!("version {}, {done} by {} at {}", change.version, change.by, people::instant(change.at_us))
}

fn set(text: &str, leases: &Leases, settings: &Settings) -> Result<Exit, Failure> {
    let stored = block_on(leases.store_settings(text, leases.label()))?;
    let line = ChangeLine::new(leases, Some(&stored.change));
    settings.output.confirm(&line, || {
        let (namespace, version) = (leases.namespace(), stored.change.version);
        if text.is_empty() {
            return format!("no settings are kept for namespace {namespace} any more, version {version}");
        }
        format!("the settings of namespace {namespace} are kept, version {version}")
    })?;
    Ok(Exit::Done)
}

fn history(leases: &Leases, settings: &Settings) -> Result<Exit, Failure> {
    let changes = block_on(leases.settings_history())?;
    if settings.output.is_json() {
        let lines = changes.iter().map(|change| json_line(&ChangeLine::new(leases, Some(change))));
        raw(lines.collect::<Result<String, _>>()?.as_bytes())?;
        return Ok(Exit::Done);
    }
    let rows: Vec<[String; 4]> = changes.iter().map(row).collect();
    if rows.is_empty() {
        settings.output.detail(|| "nobody has set any settings".to_owned());
    } else {
        raw(table(Some(HEAD), &rows).as_bytes())?;
    }
    Ok(Exit::Done)
}

fn row(change: &Change) -> [String; 4] {
    [
        change.version.to_string(),
        change.by.to_string(),
        people::instant(change.at_us),
        change.bytes.to_string(),
    ]
}
