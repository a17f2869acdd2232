//! From a URL to a coordinator.

use std::sync::Arc;

use leasehold_core::{Coordinator, Error, Kind, Namespace, Ttl};

use super::{
    Mode, Options, PostgresCoordinator,
    desk::Desk,
    ident,
    link::{Dialler, Link},
    listener,
    options::DEFAULT_MAX_TTL_MS,
    profile, purge,
    read::State,
    schema,
    sight::Sights,
    step::Setting,
    wire::Param,
    worker::{Shop, Worker},
};
use crate::{
    coordinator::{advisory, mailbox::Mailbox},
    fork, random,
};

/// Connects, making the schema where it is missing and this role may.
///
/// # Errors
/// [`Kind::Denied`] for a refused login or missing permission, with what to run; [`Kind::Invalid`] when the namespace has
/// another expiry mode or longest TTL than the URL says; [`Kind::Unavailable`] when no primary can be reached.
pub async fn connect(options: Options, namespace: Namespace) -> Result<Arc<dyn Coordinator>, Error> {
    let place = options.place.clone();
    let opened = async {
        if options.mode == Mode::Advisory {
            return advisory::open(options, namespace).await;
        }
        Ok(Arc::new(PostgresCoordinator::open(options, namespace).await?) as Arc<dyn Coordinator>)
    };
    opened.await.map_err(|error| error.at(&place))
}

/// Brings the schema up to a format that only a test has, as a later version of Leasehold would: the first step leads from format 1
/// to 2.
///
/// # Errors
/// As [`connect`].
#[doc(hidden)]
pub async fn climb(options: Options, version: i32, steps: &[&str]) -> Result<(), Error> {
    let dialler = Dialler::new(&options.target, ident::quote(&options.schema))?;
    let link = dialler.dial(Arc::new(|_| {})).await?;
    schema::ensure(&link, &dialler.advice, schema::Format { version, steps }).await
}

impl PostgresCoordinator {
    pub(in crate::coordinator) async fn open(options: Options, namespace: Namespace) -> Result<Self, Error> {
        let dialler = Dialler::new(&options.target, ident::quote(&options.schema))?;
        let mailbox = Arc::new(Mailbox::default());
        let (elsewhere, link) = tokio::join!(
            listener::reachable(&options.listen, &dialler.advice.schema),
            listener::dial_and_judge(&dialler, &mailbox, &options.listen),
        );
        let (link, hears) = link?;
        let elsewhere = elsewhere?;
        schema::ensure(&link, &dialler.advice, schema::OURS).await?;
        let setting = Setting {
            schema: dialler.advice.schema.clone(),
            namespace,
            expiry: options.expiry,
            told_max_ttl: options.max_ttl,
            wake: if hears || elsewhere.is_some() { Some(channel()?) } else { None },
            place: options.place,
        };
        let standby = listener::standby(&link, &dialler.advice).await?;
        let max_ttl = agree(&link, &dialler, &setting).await?;
        let profile =
            profile::profile(&setting.place, setting.expiry, standby, setting.wake.is_some(), max_ttl);
        let (desk, aside) = (Desk::default(), Desk::default());
        let workers_aside = std::sync::Mutex::default();
        let shop = Arc::new(Shop { desk, aside, dialler, setting, mailbox, hears, workers_aside });
        if let Some(elsewhere) = elsewhere {
            tokio::spawn(listener::listen(Arc::clone(&shop), elsewhere));
        }
        tokio::spawn(Worker::new(Arc::clone(&shop), Some(link), false).serve());
        tokio::spawn(purge::purge(Arc::clone(&shop), options.purge_every));
        Ok(Self { profile, shop, sights: Sights::default(), generation: fork::generation() })
    }
}

/// The longest TTL of the namespace, once client and namespace agree about it and about the expiry mode.
async fn agree(link: &Link, dialler: &Dialler, setting: &Setting) -> Result<Ttl, Error> {
    let statement = State::statement(&setting.schema, setting.space());
    let params: Vec<_> = statement.params.iter().map(Param::parts).collect();
    let rows = link
        .client
        .query_typed(&statement.sql, &params)
        .await
        .map_err(|error| dialler.advice.of_statement(&error).without_effect())?;
    let state = State::read(&rows, setting.made_ms())?;
    if let Some(mode) = state.mode.filter(|mode| mode != setting.expiry.word()) {
        return Err(Error::new(
            Kind::Invalid,
            format!(
                "the namespace {} has the expiry mode {mode}, and this client {}",
                setting.namespace,
                setting.expiry.word()
            ),
        )
        .advise(match mode.as_str() {
            "advisory" => "put mode=advisory into the URL".to_owned(),
            mode => format!("put expiry={mode} into the URL"),
        }));
    }
    let default = Ttl::from_millis(DEFAULT_MAX_TTL_MS)?;
    Ok(setting.told_max_ttl.or(state.max_ttl).unwrap_or(default))
}

/// A name for this client's channel that no other has.
fn channel() -> Result<i64, Error> {
    let id = random::lease_id()?;
    let mut half = [0; 8];
    half.copy_from_slice(&id.as_bytes()[..8]);
    Ok(i64::from_be_bytes(half) & i64::MAX)
}
