//! The schema: which version is there, and how it is made.
//!
//! Functions carry the version of their meaning in their names and stay when a later version comes, so that clients of
//! different ages can live together. Two clients that make the schema at once take turns; the second finds it made.
//!
//! A later format is reached by steps, each of which leads from one format to the next and only adds. Whoever needs it and may takes
//! them when it connects; clients of the format before go on. Only a step that takes something away raises `oldest`, and shuts them
//! out.

use leasehold_core::{Error, Kind};

use super::{
    failure::{Advice, is_missing},
    ident::literal,
    link::Link,
};

/// The format that a build needs, and the way to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Format<'a> {
    pub(super) version: i32,
    /// The first leads from format 1 to format 2.
    pub(super) steps: &'a [&'a str],
}

/// What this build needs.
pub(super) const OURS: Format<'static> = Format { version: 1, steps: &[] };
/// Files that make the first format, in order.
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

/// Makes sure that the schema is there in a format that serves `ours`: made, or brought up to it, where that is allowed.
///
/// # Errors
/// [`Kind::Denied`] with what to run where this role may not; [`Kind::Unsupported`] when the schema is too new, or of no format from
/// which a step leads.
pub(super) async fn ensure(link: &Link, advice: &Advice, ours: Format<'_>) -> Result<(), Error> {
    if found(link, advice, ours).await?.is_some_and(|version| version >= ours.version) {
        return Ok(());
    }
    let result = make(link, advice, ours).await;
    if result.is_err() {
        // Whatever was begun is given up; a failure to say so ends with the connection.
        let _ = link.client.batch_execute("ROLLBACK").await;
    }
    result
}

/// The format that is there, if one is.
async fn found(link: &Link, advice: &Advice, ours: Format<'_>) -> Result<Option<i32>, Error> {
    let sql = format!("SELECT version, oldest FROM {}.format", advice.schema);
    match link.client.query_typed(&sql, &[]).await {
        Ok(rows) => {
            let row = rows.first().ok_or_else(super::answer::unexpected)?;
            let (version, oldest): (i32, i32) = (row.get(0), row.get(1));
            let needed = ours.version;
            if oldest > needed {
                return Err(Error::new(
                    Kind::Unsupported,
                    format!("the schema has format {version}, and serves no client older than {oldest}; this one is {needed}"),
                )
                .advise("use a newer version of Leasehold"));
            }
            Ok(Some(version))
        }
        Err(error) if error.as_db_error().is_some_and(|db| is_missing(db.code())) => Ok(None),
        Err(error) => Err(advice.of_statement(&error).without_effect()),
    }
}

async fn make(link: &Link, advice: &Advice, ours: Format<'_>) -> Result<(), Error> {
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
    let look = format!(
        "SELECT EXISTS (SELECT FROM pg_namespace n WHERE quote_ident(n.nspname) = {0} OR '\"' || replace(n.nspname, '\"', '\"\"') \
         || '\"' = {0}), EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relname = 'format' \
         AND '\"' || replace(n.nspname, '\"', '\"\"') || '\"' = {0}), getdatabaseencoding()::text",
        literal(&advice.schema)
    );
    let rows = link.client.query_typed(&look, &[]).await.map_err(refused)?;
    let row = rows.first().ok_or_else(super::answer::unexpected)?;
    let (schema, made, encoding): (bool, bool, &str) = (row.get(0), row.get(1), row.get(2));
    if encoding != "UTF8" {
        return Err(Error::new(
            Kind::Unsupported,
            format!("the database is encoded in {encoding}, and names are UTF-8"),
        )
        .advise("use a database with the encoding UTF8"));
    }
    if !made {
        link.client.batch_execute(&script(&advice.schema, !schema)).await.map_err(refused)?;
    }
    // Another may have taken the steps while this one waited for the lock.
    if let Some(version) = found(link, advice, ours).await? {
        climb(link, advice, version, ours).await?;
    }
    link.client.batch_execute("COMMIT").await.map_err(refused)
}

/// Takes the steps from one format to another.
async fn climb(link: &Link, advice: &Advice, version: i32, ours: Format<'_>) -> Result<(), Error> {
    let (schema, needed) = (&advice.schema, ours.version);
    for from in version..needed {
        let step = usize::try_from(from).ok().and_then(|from| ours.steps.get(from.checked_sub(1)?));
        let Some(step) = step else {
            return Err(Error::new(
                Kind::Unsupported,
                format!("the schema {schema} has format {version}, which cannot be brought up to {needed}"),
            )
            .advise(
                "use the version of Leasehold that made it, or name another schema in the URL (schema=NAME)",
            ));
        };
        let script = format!("{step};\nUPDATE {PLACEHOLDER}.format SET version = {};", from + 1);
        link.client.batch_execute(&script.replace(PLACEHOLDER, schema)).await.map_err(|error| {
            let told = advice.of_statement(&error);
            if told.kind() != Kind::Denied {
                return told.without_effect();
            }
            let what = format!(
                "the schema {schema} has format {version}, and this role may not bring it up to {needed}"
            );
            Error::new(Kind::Denied, what).advise("let the schema's owner run `leasehold init` once")
        })?;
    }
    Ok(())
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
