//! Clients and schemas of different ages.

use leasehold::{
    address::Address,
    coordinator::postgres::{self, Options},
};
use leasehold_core::{Error, Kind};

use super::scene::{again, claim, connect, granted, ready, renewed, shared, try_connect};

/// What the next version might add.
const STEP: &str = "ALTER TABLE %schema%.slot ADD COLUMN news text";

async fn climb(url: &str, version: i32, steps: &[&str]) -> Result<(), Error> {
    let (scheme, rest) = url.split_once(':').unwrap();
    postgres::climb(Options::read(&Address::parse(scheme, rest)?)?, version, steps).await
}

const FORMAT: &str = "SELECT version || ' ' || oldest FROM leasehold.format";

/// Whoever is newer brings the schema up to what it needs, several at once in turns; who is older goes on, and others of its age come.
#[tokio::test]
async fn a_newer_client_brings_the_schema_up_and_older_ones_go_on() {
    let server = shared();
    let database = server.database().unwrap();
    let url = server.url(&database);
    let old = ready(&url).await;
    let held = claim("r");
    let token = granted(&old, &held).await.token;
    let newer = || climb(&url, 2, &[STEP]);
    let (one, two, three) = tokio::join!(newer(), newer(), newer());
    for outcome in [one, two, three] {
        outcome.unwrap();
    }
    assert_eq!(server.psql(&database, FORMAT).unwrap(), "2 1");
    assert!(renewed(&old, &held, token).await.is_ok());
    granted(&connect(&url).await, &claim("other")).await;
    // Where there is no schema at all, it is made and brought up in one go.
    let empty = server.database().unwrap();
    climb(&server.url(&empty), 2, &[STEP]).await.unwrap();
    assert_eq!(server.psql(&empty, FORMAT).unwrap(), "2 1");
}

/// Who may not change the schema is told what to run, and nothing has changed.
#[tokio::test]
async fn a_newer_client_without_rights_is_told_what_to_run() {
    let server = shared();
    let database = server.database().unwrap();
    drop(ready(&server.url(&database)).await);
    let role = format!("app_{database}");
    let rights = format!(
        "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA leasehold TO {role}; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA leasehold TO {role}; \
         GRANT USAGE ON ALL SEQUENCES IN SCHEMA leasehold TO {role}"
    );
    server.psql(&database, &rights).unwrap();
    let url = format!("postgres://{role}@{}/{database}", server.address());
    let error = climb(&url, 2, &[STEP]).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Denied, "{error}");
    let told = error.to_string();
    assert!(told.contains("has format 1") && told.contains("`leasehold init`"), "{told}");
    assert_eq!(server.psql(&database, FORMAT).unwrap(), "1 1");
    granted(&connect(&url).await, &claim("r")).await;
}

/// A schema that serves only newer clients, or that none of our steps leads from: said in a sentence, and left as it is.
#[tokio::test]
async fn a_schema_of_another_age_is_refused_in_a_sentence() {
    let server = shared();
    let database = server.database().unwrap();
    let url = server.url(&database);
    let client = ready(&url).await;
    let held = claim("r");
    let token = granted(&client, &held).await.token;
    for (version, oldest, told, advice) in [
        (3, 2, "serves no client older than 2; this one is 1", "use a newer version of Leasehold"),
        (0, 0, "has format 0, which cannot be brought up to 1", "name another schema in the URL"),
    ] {
        let set = format!("UPDATE leasehold.format SET version = {version}, oldest = {oldest}");
        server.psql(&database, &set).unwrap();
        let error = try_connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported, "{error}");
        let said = error.to_string();
        assert!(said.contains(told) && said.contains(advice), "{said}");
        assert_eq!(server.psql(&database, FORMAT).unwrap(), format!("{version} {oldest}"));
    }
    // Newer, but it serves us.
    server.psql(&database, "UPDATE leasehold.format SET version = 3, oldest = 1").unwrap();
    let other = connect(&url).await;
    assert!(renewed(&other, &held, token).await.is_ok());
    granted(&other, &again(&claim("other"))).await;
}
