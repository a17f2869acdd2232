//! The stores that are asked on their own, behind a network: each keeps the table, and one that cannot hold a step open says so.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use leasehold::{
    Kind, Label, Resource,
    blocking::block_on,
    fence::{Fence, NotAdmitted, Pass, postgres},
};
use leasehold_testkit::server::{Postgres, RedisSetup};

use crate::table::{Answer, Door, keeps, pass, word};

/// Data in this process, behind a fence elsewhere.
struct Far {
    fence: Fence,
    data: Arc<Mutex<HashMap<(String, String), String>>>,
    /// True where check and write are one step.
    whole: bool,
}

fn key(pass: &Pass) -> (String, String) {
    (pass.namespace.as_str().to_owned(), pass.resource.as_str().to_owned())
}

impl Door for Far {
    fn seal(&mut self, pass: &Pass) -> Answer {
        word(block_on(self.fence.seal(pass)))
    }

    fn write(&mut self, pass: &Pass, value: &str) -> Answer {
        let (data, key, value) = (self.data.clone(), key(pass), value.to_owned());
        let work = move || {
            data.lock().unwrap().insert(key, value);
            Ok(())
        };
        if self.whole {
            return word(block_on(self.fence.admit_and(pass, work)));
        }
        word(block_on(self.fence.check(pass)).and_then(|()| Ok(work()?)))
    }

    fn write_without_token(&mut self, _: &Resource, _: &str) -> Option<Answer> {
        None
    }

    fn read(&mut self, pass: &Pass) -> Option<String> {
        self.data.lock().unwrap().get(&key(pass)).cloned()
    }

    fn raise(&mut self, pass: &Pass) -> Answer {
        let raised =
            block_on(self.fence.raise(&pass.namespace, &pass.resource, pass.token, &Label::default()));
        raised.unwrap().token.to_string()
    }
}

fn looks(fence: &Fence) {
    let named = pass("looked at", 20, 2).held_by(Label::new("bob").unwrap());
    let look = || block_on(fence.look(&named.namespace, &named.resource)).unwrap();
    assert_eq!(look(), None);
    block_on(fence.seal(&named)).unwrap();
    let mark = look().unwrap();
    assert_eq!((mark.token, mark.lease_id, mark.op_seq), (named.token, Some(named.lease_id), None));
    assert_eq!(mark.holder.as_str(), "bob");
    let before = block_on(fence.refused()).unwrap();
    block_on(fence.seal(&pass("looked at", 10, 1))).unwrap_err();
    assert_eq!(block_on(fence.refused()).unwrap(), before + 1);
}

#[test]
fn a_postgres_store_keeps_the_table() {
    let server = Postgres::start().unwrap();
    let url = server.url(&server.database().unwrap());
    let uninstalled = block_on(Fence::connect(&url)).unwrap();
    let NotAdmitted::Failed(error) = block_on(uninstalled.seal(&pass("r", 1, 1))).unwrap_err() else {
        panic!()
    };
    assert_eq!(error.kind(), Kind::Invalid, "{error}");
    assert!(error.to_string().contains("leasehold fence install"), "{error}");
    for _ in 0..2 {
        block_on(postgres::install(&url, false, Vec::new())).unwrap();
    }
    let fence = block_on(Fence::connect(&url)).unwrap();
    keeps("postgres store", &mut Far { fence: fence.clone(), data: Arc::default(), whole: true });
    looks(&fence);
    server.crash().unwrap();
    // The connection that broke is found out once.
    let _ = block_on(fence.check(&pass("looked at", 20, 2)));
    block_on(fence.check(&pass("looked at", 20, 2))).expect("what was sealed survives a crash");
    let strict = block_on(postgres::install(&url, true, Vec::new())).unwrap_err();
    assert!(strict.to_string().contains("leasehold init"), "{strict}");
}

#[test]
fn a_redis_store_keeps_the_table_and_can_hold_no_step_open() {
    let server = RedisSetup::new().start().unwrap();
    let fence = block_on(Fence::connect(&server.url())).unwrap();
    keeps("redis store", &mut Far { fence: fence.clone(), data: Arc::default(), whole: false });
    looks(&fence);
    let NotAdmitted::Failed(error) =
        block_on(fence.admit_and(&pass("looked at", 20, 2), || Ok(()))).unwrap_err()
    else {
        panic!("it is no step")
    };
    assert_eq!(error.kind(), Kind::Unsupported);
}

#[test]
fn a_store_that_cannot_be_reached_or_is_none_is_told() {
    for (url, kind) in [
        ("redis://127.0.0.1:1", Kind::Unavailable),
        ("postgres://postgres@127.0.0.1:1/x", Kind::Unavailable),
        ("etcd://127.0.0.1:1", Kind::Unsupported),
        ("redis://127.0.0.1:1?cluster=true", Kind::Unsupported),
        ("mysql://x", Kind::Invalid),
    ] {
        let error = block_on(Fence::connect(url)).unwrap_err();
        assert_eq!(error.kind(), kind, "{url}: {error}");
    }
}
