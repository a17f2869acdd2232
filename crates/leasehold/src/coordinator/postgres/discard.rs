//! The end of a throwaway namespace: all its rows.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Error, Kind, Namespace};
use tokio_postgres::types::Type;

use super::{Options, ident, link::Dialler};

/// The tables that have rows of a namespace. Its own row goes last: who is interrupted begins anew.
const TABLES: [&str; 4] = ["queue", "slot", "past", "space"];
/// How long it may take, connecting apart.
const LIMIT: Duration = Duration::from_secs(15);

/// Removes all rows of a namespace. How many there were.
///
/// # Errors
/// As [`super::connect`] when no primary can be reached; what the server says of a statement.
pub(crate) async fn discard(options: Options, namespace: &Namespace) -> Result<u64, Error> {
    let dialler = Dialler::new(&options.target, ident::quote(&options.schema))?;
    let all = async {
        let link = dialler.dial(Arc::new(|_| {})).await?;
        let mut removed = 0;
        for table in TABLES {
            let sql =
                format!("DELETE FROM {}.{table} WHERE namespace = $1 RETURNING 1", dialler.advice.schema);
            let rows = link.client.query_typed(&sql, &[(&namespace.as_str(), Type::TEXT)]).await;
            removed += rows.map_err(|error| dialler.advice.of_statement(&error))?.len() as u64;
        }
        Ok(removed)
    };
    let limit = options.target.connect_timeout.saturating_add(LIMIT);
    let late = |_| Err(Error::new(Kind::Unknown, format!("the database did not answer within {limit:?}")));
    tokio::time::timeout(limit, all).await.unwrap_or_else(late).map_err(|error| error.at(&options.place))
}
