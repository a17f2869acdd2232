//! `outbox`: the events of operations: publish them, look at them, settle what is stuck.

use std::{
    fs::File,
    io,
    path::Path,
    sync::{Arc, OnceLock},
};

use leasehold::{
    Leases,
    address::Secret,
    blocking::block_on,
    effects::{
        Event, Events, Fate, Ledger, Queue,
        relay::{Lines, RedisStream, Relay, Sink, Until, Webhook},
    },
    settings::Follower,
};
use serde::Serialize;
use serde_json::Value;

use super::effects::open;
use crate::{
    args::{self, OutboxVerb},
    client, config,
    exit::Exit,
    failure::Failure,
    interrupt::Interrupts,
    output::{json_line, raw},
    people,
    run::retune::EVERY,
    settings::{Settings, read_short},
    table::table,
    telemetry,
};

const HEAD: [&str; 7] = ["ID", "QUEUE", "TOPIC", "RESOURCE", "TOKEN", "SINCE", "TRIED"];
const QUEUES: [Queue; 3] = [Queue::Waiting, Queue::SetAside, Queue::Published];

pub(crate) fn run(args: &args::Outbox, settings: &Settings) -> Result<Exit, Failure> {
    match &args.verb {
        OutboxVerb::Relay(args) => relay(args, settings),
        OutboxVerb::Ls(args) => ls(args, settings),
        OutboxVerb::Show(args) => show(args, settings),
        OutboxVerb::Resolve(args) => resolve(args, settings),
    }
}

fn relay(args: &args::OutboxRelay, settings: &Settings) -> Result<Exit, Failure> {
    // The settings are followed once there is a client; until then they are about to be read anyway.
    let follower: Arc<OnceLock<Vec<Follower>>> = Arc::default();
    let interrupts = Interrupts::watch_and(on_hangup(&follower))
        .map_err(|error| Failure::usage(format!("signals cannot be watched: {error}")))?;
    let listen = args.metrics_listen.as_deref().map(telemetry::Plan::address).transpose()?;
    let _telemetry = telemetry::Plan { listen, textfile: None }.start()?;
    let sink = sink(args)?;
    let ledger = open(&args.place, settings)?;
    let leases = client::connect(settings, client::caller)?;
    let _ = follower.set(follow(&leases, settings)?);
    let mut relay = Relay::new(ledger, &args.name, sink)?;
    if let Some(source) = &args.source {
        relay = relay.source(source);
    }
    let until = if args.once { Until::Empty } else { Until::Forever };
    let ended = interrupts.run(relay.run(&leases, until));
    block_on(leases.close(std::time::Duration::from_secs(2)));
    match ended {
        Ok(ended) => ended.map(|()| Exit::Done).map_err(Failure::from),
        Err(signal) => Ok(Exit::Interrupted(signal)),
    }
}

/// Follows the configuration file and the coordinator's settings. Those can be read later where they cannot now.
fn follow(leases: &Leases, settings: &Settings) -> Result<Vec<Follower>, Failure> {
    let file = settings.file.as_deref().filter(|file| file.exists());
    let file = file.map(|file| block_on(leases.follow(file, config::OWN))).transpose()?;
    let common = block_on(leases.follow_coordinator(EVERY)).ok();
    Ok(file.into_iter().chain(common).collect())
}

/// Where the events go. What an option of another destination would be ignored for is refused.
fn sink(args: &args::OutboxRelay) -> Result<Box<dyn Sink>, Failure> {
    let begins = |schemes: [&str; 2]| schemes.iter().any(|scheme| args.to.starts_with(scheme));
    let (is_http, is_redis) = (begins(["http://", "https://"]), begins(["redis://", "rediss://"]));
    if args.to != "stdout" && !is_http && !is_redis {
        return Err(Failure::usage(
            "--to: must be stdout, or a URL that begins with http://, https://, redis:// or rediss://",
        ));
    }
    if args.authorization_file.is_some() && !is_http {
        return Err(Failure::usage("--authorization-file: is for a destination http://… or https://…"));
    }
    match &args.stream {
        Some(stream) if is_redis => Ok(Box::new(redis(args, stream)?)),
        None if is_redis => Err(Failure::usage("--stream: must name the stream when --to is a Redis server")),
        Some(_) => Err(Failure::usage("--stream: is for a destination redis://… or rediss://…")),
        None if is_http => Ok(Box::new(webhook(&args.to, args.authorization_file.as_deref())?)),
        None => Ok(Box::new(Lines::new(io::stdout()))),
    }
}

/// What SIGHUP does to a relay: it looks at its settings at once. One that was started from a terminal ends, as
/// everything does when the terminal goes.
fn on_hangup(follower: &Arc<OnceLock<Vec<Follower>>>) -> Option<Box<dyn Fn() + Send>> {
    if File::open("/dev/tty").is_ok() {
        return None;
    }
    let follower = Arc::clone(follower);
    Some(Box::new(move || follower.get().into_iter().flatten().for_each(Follower::look)))
}

fn webhook(url: &str, authorization: Option<&Path>) -> Result<Webhook, Failure> {
    let hook = Webhook::new(url)?;
    match authorization {
        None => Ok(hook),
        Some(path) => Ok(hook.authorization(&secret("--authorization-file", path)?)?),
    }
}

fn redis(args: &args::OutboxRelay, name: &str) -> Result<RedisStream, Failure> {
    let stream = match &args.password_file {
        None => RedisStream::new(&args.to, name)?,
        Some(path) => RedisStream::with_password(&args.to, name, &secret("--password-file", path)?)?,
    };
    Ok(match args.stream_at_most {
        None => stream,
        Some(entries) => stream.at_most(entries),
    })
}

fn secret(option: &str, path: &Path) -> Result<Secret, Failure> {
    let text = read_short(path)
        .map_err(|error| Failure::usage(format!("{option}: cannot read {}: {error}", path.display())))?;
    Ok(Secret::new(text.trim()))
}

/// An event, as JSON.
#[derive(Debug, Serialize)]
struct EventLine<'a> {
    id: u64,
    queue: &'static str,
    topic: &'a str,
    payload: &'a Value,
    scope: &'a str,
    key: &'a str,
    resource: &'a str,
    namespace: &'a str,
    fencing_token: u64,
    created_at: Option<String>,
    published_at: Option<String>,
    set_aside_at: Option<String>,
    attempts: u32,
    last_error: Option<&'a str>,
}

impl<'a> From<&'a Event> for EventLine<'a> {
    fn from(event: &'a Event) -> Self {
        Self {
            id: event.id,
            queue: event.queue().word(),
            topic: &event.topic,
            payload: &event.payload,
            scope: event.key.scope(),
            key: event.key.as_str(),
            resource: event.resource.as_str(),
            namespace: event.namespace.as_str(),
            fencing_token: event.token.get(),
            created_at: people::exact_instant(event.created_us),
            published_at: event.published_us.and_then(people::exact_instant),
            set_aside_at: event.set_aside_us.and_then(people::exact_instant),
            attempts: event.attempts,
            last_error: event.error.as_deref(),
        }
    }
}

fn ls(args: &args::OutboxLs, settings: &Settings) -> Result<Exit, Failure> {
    let queue = args.queue.as_deref().map(|word| {
        QUEUES.into_iter().find(|queue| queue.word() == word).ok_or_else(|| {
            Failure::usage(format!("--queue: {word}: must be waiting, set_aside or published"))
        })
    });
    let queue = queue.transpose()?;
    let ledger = open(&args.place, settings)?;
    let mut after = 0;
    loop {
        let page = block_on(ledger.events(Events { queue, after, limit: Ledger::PAGE }))?;
        let text = if settings.output.is_json() {
            page.iter().map(|event| json_line(&EventLine::from(event))).collect::<Result<String, _>>()?
        } else if page.is_empty() {
            String::new()
        } else {
            let rows: Vec<[String; 7]> = page.iter().map(row).collect();
            table((after == 0).then_some(HEAD), &rows)
        };
        raw(text.as_bytes())?;
        if page.len() < Ledger::PAGE as usize {
            return Ok(Exit::Done);
        }
        after = page.last().map_or(after, |event| event.id);
    }
}

fn row(event: &Event) -> [String; 7] {
    [
        event.id.to_string(),
        event.queue().word().to_owned(),
        people::visible(&event.topic),
        event.resource.to_string(),
        event.token.to_string(),
        people::instant(event.created_us),
        event.attempts.to_string(),
    ]
}

fn none(id: u64) -> Failure {
    Failure::answer(Exit::NotHeld, "no_such_event", format!("there is no event {id}"))
}

fn show(args: &args::OutboxShow, settings: &Settings) -> Result<Exit, Failure> {
    let ledger = open(&args.place, settings)?;
    let event = block_on(ledger.event(args.id))?.ok_or_else(|| none(args.id))?;
    settings.output.result(&EventLine::from(&event), || {
        let mut rows = vec![
            ("event", event.id.to_string()),
            ("queue", event.queue().word().to_owned()),
            ("topic", event.topic.clone()),
            ("operation", event.key.to_string()),
            ("resource", event.resource.to_string()),
            ("token", event.token.to_string()),
            ("written", people::instant(event.created_us)),
        ];
        rows.extend(event.published_us.map(|at| ("published", people::instant(at))));
        rows.extend(event.set_aside_us.map(|at| ("set aside", people::instant(at))));
        rows.extend(
            event.error.clone().map(|error| ("error", format!("{error} (refused {} times)", event.attempts))),
        );
        rows.push(("payload", event.payload.to_string()));
        rows.into_iter().map(|(name, value)| format!("{name:9}  {value}")).collect()
    })?;
    Ok(Exit::Done)
}

#[derive(Debug, Serialize)]
struct DecidedLine {
    id: u64,
    queue: &'static str,
}

fn resolve(args: &args::OutboxResolve, settings: &Settings) -> Result<Exit, Failure> {
    let ledger = open(&args.place, settings)?;
    let by = settings.holder.clone().unwrap_or_else(client::operator);
    let (fate, queue) =
        if args.retry { (Fate::Retry, Queue::Waiting) } else { (Fate::SetAside, Queue::SetAside) };
    if !block_on(ledger.decide(args.id, fate, &by))? {
        return Err(match block_on(ledger.event(args.id))? {
            None => none(args.id),
            Some(_) => {
                Failure::answer(Exit::NotHeld, "already_published", format!("event {} is published", args.id))
            }
        });
    }
    settings.output.confirm(&DecidedLine { id: args.id, queue: queue.word() }, || match fate {
        Fate::Retry => format!("event {} waits to be published", args.id),
        Fate::SetAside => format!("event {} is set aside", args.id),
    })?;
    Ok(Exit::Done)
}
