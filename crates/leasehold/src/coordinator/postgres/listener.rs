//! Where this client hears that it is woken, and whether it can be.
//!
//! A direct connection listens beside its other work: no connection more for whoever waits. Behind a pooler that is not
//! possible, because notifications go to a session and the session is lent out; then a second, direct address must be named,
//! or waiting is by re-checks and the profile says so.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Error, record::Wake};
use tokio_postgres::Notification;

use super::{
    failure::Advice,
    link::{Dialler, Link},
    options::Listen,
    profile::Standby,
    worker::Shop,
};
use crate::{clock, coordinator::mailbox::Mailbox};

/// Between two attempts to listen again.
const PAUSE: Duration = Duration::from_secs(1);

/// The dialler of the address to listen at, where there is one.
pub(super) async fn reachable(listen: &Listen, schema: &str) -> Result<Option<Dialler>, Error> {
    let Listen::At(target) = listen else { return Ok(None) };
    let dialler = Dialler::new(target, schema.to_owned())?;
    // A wrong address is told now, and not by waits that take a second longer.
    dialler.dial(Arc::new(|_: &Notification| {})).await?;
    Ok(Some(dialler))
}

/// Makes the first connection. True when notifications will reach it.
///
/// The session of a direct connection is no older than the connection. A pooler lends out one that it had before.
pub(super) async fn dial_and_judge(
    dialler: &Dialler,
    mailbox: &Arc<Mailbox>,
    listen: &Listen,
) -> Result<(Link, bool), Error> {
    let heard = {
        let mailbox = Arc::clone(mailbox);
        move |notification: &Notification| {
            if let Ok(lease_id) = notification.payload().replace('-', "").parse() {
                mailbox.push(Wake::Lease(lease_id));
            }
        }
    };
    let begun_us = clock::boot_us();
    let link = dialler.dial(Arc::new(heard)).await?;
    if *listen != Listen::Auto {
        return Ok((link, false));
    }
    let own = has_own_session(&link, begun_us).await;
    let own = own.map_err(|error| dialler.advice.of_statement(&error).without_effect())?;
    Ok((link, own))
}

/// Is the session no older than the connection, whose making began at `begun_us`? Else it is a pooler's, and is lent out.
pub(crate) async fn has_own_session(link: &Link, begun_us: u64) -> Result<bool, tokio_postgres::Error> {
    let sql = "SELECT (extract(epoch FROM clock_timestamp() - backend_start) * 1000000)::bigint \
               FROM pg_stat_activity WHERE pid = pg_backend_pid()";
    let rows = link.client.query_typed(sql, &[]).await?;
    let asked_us = clock::boot_us();
    let age_us = rows.first().and_then(|row| row.get::<_, Option<i64>>(0)).unwrap_or(i64::MAX).unsigned_abs();
    Ok(age_us <= asked_us.saturating_sub(begun_us))
}

/// What stands behind the server.
pub(super) async fn standby(link: &Link, advice: &Advice) -> Result<Standby, Error> {
    let sql =
        "SELECT current_setting('synchronous_standby_names'), (SELECT count(*) FROM pg_stat_replication)";
    let rows = link.client.query_typed(sql, &[]).await;
    let rows = rows.map_err(|error| advice.of_statement(&error).without_effect())?;
    Ok(match rows.first() {
        Some(row) if !row.get::<_, &str>(0).trim().is_empty() => Standby::Synchronous,
        Some(row) if row.get::<_, i64>(1) > 0 => Standby::Asynchronous,
        _ => Standby::Alone,
    })
}

/// Listens at another address for as long as the coordinator lives, from when that was first asked for.
pub(super) async fn listen(shop: Arc<Shop>, dialler: Dialler) {
    let Some(channel) = shop.channel() else { return };
    while !shop.desk.is_closed() {
        if !shop.desk.wants_to_listen() {
            shop.desk.listening_wanted().await;
            continue;
        }
        if let Ok(link) = dialler.dial(shop.heard()).await
            && link.client.batch_execute(&format!("LISTEN {channel}")).await.is_ok()
        {
            // What was sent meanwhile was not heard.
            shop.mailbox.push(Wake::All);
            tokio::select! {
                () = link.ended() => {}
                () = shop.desk.closing() => return,
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}
