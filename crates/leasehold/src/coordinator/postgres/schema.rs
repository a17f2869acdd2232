//! The schema: which version is there, and how it is made.
//!
//! Functions carry the version of their meaning in their names and stay when a later version comes, so that clients of
//! different ages can live together. Two clients that make the schema at once take turns; the second finds it made.

use leasehold_core::{Error, Kind};

use super::{
    failure::{Advice, is_missing},
    ident::literal,
    link::Link,
};

/// What this build makes.
pub(super) const VERSION: i32 = 1;
/// Files that make it, in order.
const PARTS: [&str; 8] = [
    include_str!("sql/tables.sql"),
    include_str!("sql/space.sql"),
    include_str!("sql/slot.sql"),
    include_str!("sql/acquire.sql"),
    include_str!("sql/renew.sql"),
    include_str!("sql/release.sql"),
    include_str!("sql/history.sql"),
    include_str!("sql/read.sql"),
];
/// Stands for the schema's quoted name in the files.
const PLACEHOLDER: &str = "%schema%";

/// Makes sure that the schema is there, making it where that is allowed.
///
/// # Errors
/// [`Kind::Denied`] with what to run where this role may not; [`Kind::Unsupported`] when the schema is too new.
pub(super) async fn ensure(link: &Link, advice: &Advice) -> Result<(), Error> {
    if is_there(link, advice).await? {
        return Ok(());
    }
    let result = make(link, advice).await;
    if result.is_err() {
        // Whatever was begun is given up; a failure to say so ends with the connection.
        let _ = link.client.batch_execute("ROLLBACK").await;
    }
    result
}

async fn is_there(link: &Link, advice: &Advice) -> Result<bool, Error> {
    let sql = format!("SELECT version, oldest FROM {}.format", advice.schema);
    match link.client.query_typed(&sql, &[]).await {
        Ok(rows) => {
            let row = rows.first().ok_or_else(super::answer::unexpected)?;
            let (version, oldest): (i32, i32) = (row.get(0), row.get(1));
            if oldest > VERSION {
                return Err(Error::new(
                    Kind::Unsupported,
                    format!("the schema has format {version}, and serves no client older than {oldest}; this one is {VERSION}"),
                )
                .advise("use a newer version of Leasehold"));
            }
            Ok(version >= VERSION)
        }
        Err(error) if error.as_db_error().is_some_and(|db| is_missing(db.code())) => Ok(false),
        Err(error) => Err(advice.of_statement(&error).without_effect()),
    }
}

async fn make(link: &Link, advice: &Advice) -> Result<(), Error> {
    let refused = |error: tokio_postgres::Error| {
        let told = advice.of_statement(&error);
        match told.kind() {
            Kind::Denied => Error::new(
                Kind::Denied,
                format!("the schema {} is not there, and this role may not make it", advice.schema),
            )
            .advise(advice.creation()),
            _ => told.without_effect(),
        }
    };
    // The lock ends with the transaction: two who come at once take turns.
    let begin = format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '10s'; SET LOCAL synchronous_commit = 'on'; \
         SELECT pg_advisory_xact_lock(hashtext({}))",
        literal(&format!("leasehold {}", advice.schema))
    );
    link.client.batch_execute(&begin).await.map_err(refused)?;
    let found = format!(
        "SELECT EXISTS (SELECT FROM pg_namespace n WHERE quote_ident(n.nspname) = {0} OR '\"' || replace(n.nspname, '\"', '\"\"') \
         || '\"' = {0}), EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relname = 'format' \
         AND '\"' || replace(n.nspname, '\"', '\"\"') || '\"' = {0}), getdatabaseencoding()::text",
        literal(&advice.schema)
    );
    let rows = link.client.query_typed(&found, &[]).await.map_err(refused)?;
    let row = rows.first().ok_or_else(super::answer::unexpected)?;
    let (schema, made, encoding): (bool, bool, &str) = (row.get(0), row.get(1), row.get(2));
    if encoding != "UTF8" {
        return Err(Error::new(
            Kind::Unsupported,
            format!("the database is encoded in {encoding}, and names are UTF-8"),
        )
        .advise("use a database with the encoding UTF8"));
    }
    if made {
        return link.client.batch_execute("COMMIT").await.map_err(refused);
    }
    link.client.batch_execute(&script(&advice.schema, !schema)).await.map_err(refused)?;
    link.client.batch_execute("COMMIT").await.map_err(refused)
}

/// The statements that make the schema.
fn script(schema: &str, create: bool) -> String {
    let mut script = String::new();
    if create {
        script.push_str("CREATE SCHEMA %schema%;\n");
    }
    // Bodies are checked when they are made.
    script.push_str("SET LOCAL search_path = %schema%, pg_temp;\n");
    script.extend(PARTS);
    script.push_str("\nINSERT INTO %schema%.format (version, oldest) VALUES (1, 1);\n");
    script.replace(PLACEHOLDER, schema)
}
