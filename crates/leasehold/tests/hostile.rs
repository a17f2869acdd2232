//! URLs: whatever stands there is read or refused with words, and what is shown of it has no password.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use leasehold::{
    Error, Kind, Url,
    address::Address,
    coordinator::{etcd, postgres, redis, redlock},
};
use leasehold_testkit::hostile;
use proptest::prelude::*;

fn explained(error: &Error) {
    assert!(matches!(error.kind(), Kind::Invalid | Kind::Unsupported), "{error}");
    let said = error.to_string();
    assert!(!said.is_empty() && !said.contains("sesame"), "{said}");
    // What was typed is quoted in part at most.
    assert!(said.len() < 2_000, "{} bytes", said.len());
}

fn read(url: &str) {
    match Url::parse(url) {
        Ok(read) => {
            let shown = read.to_string();
            assert!(!shown.contains("sesame") && !format!("{read:?}").contains("sesame"), "{shown}");
            // Written, it is a URL again, and means the same. A password is not written, and etcd takes no user without one.
            if let Url::Network(address) = &read
                && address.password.is_none()
            {
                let again = Url::parse(&address.to_url()).unwrap();
                assert_eq!(again.to_string(), shown);
            }
        }
        Err(error) => explained(&error),
    }
}

fn read_by_every_engine(rest: &str) {
    read(rest);
    for scheme in ["redis", "rediss", "redlock", "etcd", "etcds", "postgres"] {
        read(&format!("{scheme}:{rest}"));
        read(&format!("{scheme}://h?{rest}"));
        let Ok(address) = Address::parse(scheme, rest) else { continue };
        for error in [
            redis::Options::read(&address).err(),
            redlock::Options::read(&address).err(),
            etcd::Options::read(&address).err(),
            postgres::Options::read(&address).err(),
        ] {
            if let Some(error) = &error {
                explained(error);
            }
        }
    }
}

#[test]
fn no_hostile_url_makes_a_reader_panic_or_tell_a_password() {
    for text in hostile::texts().into_iter().filter(|text| text.len() < 2_000) {
        read_by_every_engine(&text);
    }
    for valid in [
        "redis://ann:sesame@h1:7000,h2/3?sentinel=main&max_ttl=2h&wait_replicas=1",
        "redlock://ann:sesame@a,b:7000,c/3?max_ttl=2h&tls=true",
        "etcd://ann:sesame@a:1,b:2?max_ttl=5m&shared_lease=true",
        "postgres://ann:sesame@h:5433/app?schema=s&expiry=observed&max_ttl=1m",
        "sqlite:/var/lib/a.db?max_ttl=24h",
    ] {
        read(valid);
        for near in
            hostile::near(valid.as_bytes()).into_iter().filter_map(|near| String::from_utf8(near).ok())
        {
            // The word itself may be what was torn.
            drop(Url::parse(&near).map(|url| url.to_string()));
        }
    }
}

proptest! {
    #[test]
    fn no_url_makes_a_reader_panic(text in "\\PC{0,60}|//[a-z0-9:@,/%?=&\\[\\]._-]{0,60}") {
        read_by_every_engine(&text);
    }
}
