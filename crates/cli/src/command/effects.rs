//! `effects`: operations that happen once, as their database remembers them. People look, and settle what is stuck.

use leasehold::{
    Url,
    blocking::block_on,
    effects::{Durability, Found, Key, Keys, Ledger, Record, State},
};
use serde::Serialize;
use serde_json::Value;

use crate::{
    args::{self, EffectsPlace, EffectsVerb},
    client,
    exit::Exit,
    failure::Failure,
    output::{json_line, raw},
    people,
    settings::{Settings, text, variable},
    table::table,
};

const HEAD: [&str; 6] = ["SCOPE", "KEY", "STATE", "RESOURCE", "TOKEN", "SINCE"];
const STATES: [State; 3] = [State::Started, State::Done, State::NeedsReconciliation];

pub(crate) fn run(args: &args::Effects, settings: &Settings) -> Result<Exit, Failure> {
    match &args.verb {
        EffectsVerb::Install(args) => install(args, settings),
        EffectsVerb::Ls(args) => ls(args, settings),
        EffectsVerb::Show(args) => show(args, settings),
        EffectsVerb::Resolve(args) => resolve(args, settings),
        EffectsVerb::Purge(args) => purge(args, settings),
    }
}

/// Opens the database of the data.
pub(super) fn open(place: &EffectsPlace, settings: &Settings) -> Result<Ledger, Failure> {
    let ledger = block_on(Ledger::connect(&url(place, settings)?))?;
    settings.output.detail(|| format!("looking at the effects on {}", ledger.place()));
    Ok(ledger)
}

/// The database of the data: what was typed, else `$LEASEHOLD_EFFECTS`, else the coordinator's where that is one.
fn url(place: &EffectsPlace, settings: &Settings) -> Result<String, Failure> {
    let url = match &place.store {
        Some(url) => Some(url.clone()),
        None => text("LEASEHOLD_EFFECTS", &variable)?,
    };
    match (url, Url::parse(&settings.url)?) {
        (Some(url), _) => Ok(url),
        (None, Url::Network(address)) if matches!(address.scheme.as_str(), "postgres" | "postgresql") => {
            Ok(settings.url.clone())
        }
        _ => Err(Failure::usage("it is not said in which database the effects are").advise(
            "give --store URL or LEASEHOLD_EFFECTS: sqlite:PATH, postgres://… or redis://…, where the data are",
        )),
    }
}

#[derive(Debug, Serialize)]
struct PlaceLine<'a> {
    place: &'a str,
    durability: &'static str,
}

fn install(args: &args::EffectsInstall, settings: &Settings) -> Result<Exit, Failure> {
    if args.print {
        let roles: Vec<&str> = args.grant.iter().map(String::as_str).collect();
        raw(Ledger::script(&url(&args.place, settings)?, &roles)?.as_bytes())?;
        return Ok(Exit::Done);
    }
    let ledger = open(&args.place, settings)?;
    block_on(ledger.install(args.grant.clone()))?;
    let (place, durability) = (ledger.place(), ledger.durability());
    settings.output.confirm(&PlaceLine { place, durability: durability.word() }, || match durability {
        Durability::Committed => format!("the tables of the effects are on {place}"),
        // No tables: so this is where people are told what they get.
        Durability::Forgettable => format!("effects may begin on {place}: {durability}"),
    })?;
    Ok(Exit::Done)
}

/// An operation, as JSON.
#[derive(Debug, Serialize)]
struct RecordLine<'a> {
    scope: &'a str,
    key: &'a str,
    state: &'static str,
    resource: &'a str,
    namespace: &'a str,
    fencing_token: u64,
    lease_id: String,
    label: &'a str,
    request_hash: String,
    response: Option<&'a Value>,
    note: Option<&'a str>,
    created_at: Option<String>,
    done_at: Option<String>,
    expires_at: Option<String>,
}

impl<'a> From<&'a Record> for RecordLine<'a> {
    fn from(record: &'a Record) -> Self {
        Self {
            scope: record.key.scope(),
            key: record.key.as_str(),
            state: record.state.word(),
            resource: record.resource.as_str(),
            namespace: record.namespace.as_str(),
            fencing_token: record.token.get(),
            lease_id: record.lease_id.to_string(),
            label: record.holder.as_str(),
            request_hash: record.fingerprint.to_string(),
            response: record.response.as_ref(),
            note: record.note.as_deref(),
            created_at: people::exact_instant(record.created_us),
            done_at: record.done_us.and_then(people::exact_instant),
            expires_at: record.expires_us.and_then(people::exact_instant),
        }
    }
}

fn ls(args: &args::EffectsLs, settings: &Settings) -> Result<Exit, Failure> {
    let state = args.state.as_deref().map(|word| {
        STATES.into_iter().find(|state| state.word() == word).ok_or_else(|| {
            Failure::usage(format!("--state: {word}: must be started, done or needs_reconciliation"))
        })
    });
    let state = state.transpose()?;
    let ledger = open(&args.place, settings)?;
    let mut after: Option<Key> = None;
    loop {
        let first = after.is_none();
        let which = Keys { scope: args.scope.clone(), state, after, limit: Ledger::PAGE };
        let page = block_on(ledger.records(which))?;
        let text = if settings.output.is_json() {
            page.iter().map(|record| json_line(&RecordLine::from(record))).collect::<Result<String, _>>()?
        } else if page.is_empty() {
            String::new()
        } else {
            let rows: Vec<[String; 6]> = page.iter().map(row).collect();
            table(first.then_some(HEAD), &rows)
        };
        raw(text.as_bytes())?;
        if page.len() < Ledger::PAGE as usize {
            return Ok(Exit::Done);
        }
        after = page.last().map(|record| record.key.clone());
    }
}

fn row(record: &Record) -> [String; 6] {
    [
        people::visible(record.key.scope()),
        people::visible(record.key.as_str()),
        record.state.word().to_owned(),
        record.resource.to_string(),
        record.token.to_string(),
        people::instant(record.created_us),
    ]
}

fn key(args: &args::EffectsKey) -> Result<Key, Failure> {
    Ok(Key::new(&args.scope, &args.key)?)
}

fn none(key: &Key) -> Failure {
    Failure::answer(Exit::NotHeld, "no_such_key", format!("there is no operation {key}"))
}

fn show(args: &args::EffectsShow, settings: &Settings) -> Result<Exit, Failure> {
    let (key, ledger) = (key(&args.key)?, open(&args.key.place, settings)?);
    let record = block_on(ledger.record(&key))?.ok_or_else(|| none(&key))?;
    settings.output.result(&RecordLine::from(&record), || {
        let mut rows = vec![
            ("operation", record.key.to_string()),
            ("state", record.state.word().to_owned()),
            ("resource", record.resource.to_string()),
            ("token", record.token.to_string()),
            ("lease id", record.lease_id.to_string()),
            ("by", record.holder.to_string()),
            ("begun", people::instant(record.created_us)),
        ];
        rows.extend(record.done_us.map(|at| ("done", people::instant(at))));
        rows.push((
            "kept",
            record.expires_us.map_or("for ever".to_owned(), |at| format!("until {}", people::instant(at))),
        ));
        rows.extend(record.response.as_ref().map(|response| ("response", response.to_string())));
        rows.extend(record.note.clone().map(|note| ("note", note)));
        rows.into_iter().map(|(name, value)| format!("{name:9}  {value}")).collect()
    })?;
    Ok(Exit::Done)
}

#[derive(Debug, Serialize)]
struct ResolvedLine<'a> {
    scope: &'a str,
    key: &'a str,
    resolved: &'static str,
}

fn resolve(args: &args::EffectsResolve, settings: &Settings) -> Result<Exit, Failure> {
    let key = key(&args.key)?;
    let (found, resolved) = match &args.done {
        Some(json) => {
            let response = serde_json::from_str(json)
                .map_err(|error| Failure::usage(format!("--done: it is no JSON: {error}")))?;
            (Found::Done(response), "done")
        }
        None => (Found::NotDone, "not_done"),
    };
    let ledger = open(&args.key.place, settings)?;
    let by = settings.holder.clone().unwrap_or_else(client::operator);
    if !block_on(ledger.resolve(&key, found, &by))? {
        return Err(match block_on(ledger.record(&key))? {
            None => none(&key),
            Some(_) => {
                Failure::answer(Exit::NotHeld, "already_done", format!("the operation {key} is done already"))
                    .advise("what is done stays done; undo it with an operation of its own")
            }
        });
    }
    let line = ResolvedLine { scope: key.scope(), key: key.as_str(), resolved };
    settings.output.confirm(&line, || match resolved {
        "done" => format!("{key} is done from now on"),
        _ => format!("{key} is forgotten: the next request carries it out"),
    })?;
    Ok(Exit::Done)
}

#[derive(Debug, Serialize)]
struct PurgedLine {
    purged: u64,
}

fn purge(args: &args::EffectsPurge, settings: &Settings) -> Result<Exit, Failure> {
    let purged = block_on(open(&args.place, settings)?.purge())?;
    settings.output.confirm(&PurgedLine { purged }, || format!("{purged} keys were forgotten"))?;
    Ok(Exit::Done)
}
