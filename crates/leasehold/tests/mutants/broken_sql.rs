//! Engines that are wrong: `PostgreSQL`'s own functions, changed inside the server. The conformance suite notices by a case of the
//! clause, and the comparison with the simulator's engine by an answer that differs.

use std::{sync::Arc, time::Duration};

use leasehold::{
    address::Address,
    clock::{Clock as _, ManualClock},
    coordinator::postgres::{self, Options},
};
use leasehold_core::{
    Coordinator, Error, Kind, Namespace, Ttl, profile::Capabilities, request::Preparation, slot::Now,
    window::Reading,
};
use leasehold_testkit::{
    random,
    server::Postgres,
    sim::{Mutant, engine::Setup},
    suite::{CASES, Case, Cell, Connecting, Engine, Hook, judge},
};
use proptest::prelude::*;

use crate::{
    CAN, Caught,
    replay::first_difference,
    script::Scope,
    strict::{On, Pair, SETUP},
};

/// So many scripts must find a wrong engine.
const SCRIPTS: u32 = 60;
const HIS_OWN: &str = "AND s.lease_id = p_lease_id[1] AND s.token = p_token[1]";

/// A change of the engine's text: in which function, what, to what.
struct Fault {
    mutant: Mutant,
    clause: &'static str,
    function: &'static str,
    from: &'static str,
    to: &'static str,
}

const FAULTS: [Fault; 4] = [
    // All holders of the suite, and of a host, bear one label: whoever bears it is renewed.
    Fault {
        mutant: Mutant::RenewByLabel,
        clause: "clause_03_renewal",
        function: "renew_1",
        from: HIS_OWN,
        to: "",
    },
    Fault {
        mutant: Mutant::ReleaseByName,
        clause: "clause_03_release",
        function: "release_1",
        from: HIS_OWN,
        to: "",
    },
    Fault {
        mutant: Mutant::NoQuarantine,
        clause: "clause_08",
        function: "acquire_1",
        from: "v_left := least(v_left, longest_1(sp, v_now) * 1000);",
        to: "v_left := 0;",
    },
    Fault {
        mutant: Mutant::NoFloor,
        clause: "clause_02",
        function: "acquire_one_1",
        from: "v_last := greatest(v_last + 1, coalesce(c.floor, 0) + 1, least(v_now, 9007199254740991));",
        to: "v_last := v_last + 1;",
    },
];

/// A database with the engine in it, as it is or with a fault.
struct OnPostgres {
    server: Arc<Postgres>,
    database: String,
}

impl OnPostgres {
    fn new(server: &Arc<Postgres>, on: &On, fault: Option<&Fault>) -> Self {
        let database = server.database().unwrap();
        let engine = Self { server: Arc::clone(server), database };
        // The first client makes the schema.
        drop(on.0.block_on(engine.open(&random::namespace(), "")).unwrap());
        if let Some(fault) = fault {
            let look = format!("SELECT pg_get_functiondef('leasehold.{}'::regproc)", fault.function);
            let text = engine.psql(&look);
            assert!(text.contains(fault.from), "{} does not say {:?}:\n{text}", fault.function, fault.from);
            let changed = text.replace(fault.from, fault.to);
            engine.psql(&format!("SET search_path = leasehold, pg_temp; {changed}"));
        }
        engine
    }

    fn psql(&self, sql: &str) -> String {
        self.server.psql(&self.database, sql).unwrap()
    }

    async fn open(&self, namespace: &Namespace, more: &str) -> Result<Arc<dyn Coordinator>, Error> {
        let url = format!("{}{more}", self.server.url(&self.database));
        let (scheme, rest) = url.split_once(':').unwrap();
        postgres::connect(Options::read(&Address::parse(scheme, rest)?)?, namespace.clone()).await
    }

    async fn ready(&self, namespace: &Namespace) -> Result<Arc<dyn Coordinator>, Error> {
        let client = self.open(namespace, "").await?;
        match client.prepare(Preparation { fresh: true, max_ttl: None }).await {
            Err(error) if error.kind() != Kind::Invalid => Err(error),
            _ => Ok(client),
        }
    }
}

impl Engine for OnPostgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn capabilities(&self) -> Capabilities {
        CAN
    }

    fn short_ttl(&self) -> Duration {
        Duration::from_millis(500)
    }

    fn connect<'a>(&'a self, namespace: &'a Namespace) -> Connecting<'a> {
        Box::pin(async move { Ok(self.ready(namespace).await?) })
    }

    /// Another server, as far as the namespace can tell.
    fn forget<'a>(&'a self, namespace: &'a Namespace, max_ttl: Ttl) -> Hook<Connecting<'a>> {
        Hook::Here(Box::pin(async move {
            let client = self.open(namespace, &format!("?max_ttl={}ms", max_ttl.as_millis())).await?;
            client.prepare(Preparation { fresh: false, max_ttl: Some(max_ttl) }).await?;
            self.psql(&format!(
                "UPDATE leasehold.space SET incarnation = 'another', longest_until_us = 0 WHERE namespace = '{namespace}'"
            ));
            Ok(client)
        }))
    }
}

/// The cases of a clause that fail.
fn failed(engine: OnPostgres, clause: &str) -> Vec<String> {
    let engine: Arc<dyn Engine> = Arc::new(engine);
    let cases: Vec<&'static Case> = CASES.iter().filter(|case| case.name.starts_with(clause)).collect();
    let matrix = judge(&engine, &cases).unwrap();
    let failed = |case: &&&Case| matches!(matrix.get(engine.name(), case.name), Some(Cell::Failed(_)));
    cases.iter().filter(failed).map(|case| case.name.to_owned()).collect()
}

/// Whether random requests are answered otherwise than by the simulator's engine.
fn differs(engine: &OnPostgres, on: &On) -> bool {
    let clock = ManualClock::from_system();
    let tell = |reading: Reading| {
        engine.server.clock().stand(reading.real_ns).unwrap();
        Now { clock_us: reading.real_ns / 1_000, unix_us: reading.real_ns / 1_000 }
    };
    let max_ttl = Ttl::new(Duration::from_secs(60)).unwrap();
    let refreshes_after = Duration::from_secs(5);
    let setup = Setup { max_ttl, refreshes_after, refused_claims_tell: true, ..SETUP };
    let script = prop::collection::vec(Scope::FULL.step(), 0..40);
    let difference = first_difference(SCRIPTS, 0, &script, |steps| {
        tell(clock.read());
        let coordinator = on.0.block_on(engine.ready(&random::namespace())).unwrap();
        Pair { coordinator, clock: &clock, tell: &tell, setup, runtime: on }.difference(steps)
    });
    engine.server.clock().stand(0).unwrap();
    difference.is_some()
}

pub(crate) fn caught() -> Vec<(Mutant, Caught)> {
    let (server, on) = (Arc::new(Postgres::start_with_clock().unwrap()), On::new());
    let sound = failed(OnPostgres::new(&server, &on, None), "clause_0");
    assert_eq!(sound, Vec::<String>::new(), "without a fault");
    let of = |fault: &Fault| {
        let engine = OnPostgres::new(&server, &on, Some(fault));
        // A quarantine is no part of the scripts.
        let differs = fault.mutant != Mutant::NoQuarantine && differs(&engine, &on);
        let mut by = failed(engine, fault.clause);
        assert!(!by.is_empty(), "the suite finds nothing wrong with {:?}", fault.mutant);
        by.extend(differs.then(|| "comparison".to_owned()));
        (fault.mutant, Caught::on("postgres", by))
    };
    FAULTS.iter().map(of).collect()
}
