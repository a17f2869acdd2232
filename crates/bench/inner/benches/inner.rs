//! The inner pieces, one by one: what a caller, a renewal and a request cost before anything leaves the process.

use std::{hint::black_box, time::Duration};

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use leasehold::blocking;
use leasehold_core::{
    HolderId, Label, LeaseId, Resource, Token, Ttl,
    holder::{Holder, Identity},
    line::MemoryLine,
    policy::Policy,
    record::{Grant, Renewed},
    request::{Claim, Release},
    slot::{Now, Slot},
    window::{ClockRule, Reading},
};

/// How the arguments of a request to Redis are packed: the library's own file, which nothing outside it can call.
#[allow(dead_code, unused_imports)]
#[path = "../../../leasehold/src/coordinator/redis/pack.rs"]
mod pack;

const NAME: &str = "orders/2026-11-30/customer-4711";
/// Signs that must be encoded.
const ODD: &str = "käufe/{42}/50 % off:\u{1F512}";

fn at(ns: u64) -> Reading {
    Reading { boot_ns: ns, raw_ns: ns, real_ns: ns }
}

fn check(criterion: &mut Criterion) {
    let leases = blocking::Leases::connect("memory:inner").expect("memory is always there");
    let lease = leases.lease("r", |lease| lease).acquire().expect("nobody else wants it");
    criterion.bench_function("Lease::check", |bencher| bencher.iter(|| black_box(&lease).check()));
    criterion.bench_function("Lease::require", |bencher| {
        bencher.iter(|| black_box(&lease).require(black_box(Duration::from_secs(2))));
    });
    let _ended = lease.release();
}

fn holder(criterion: &mut Criterion) {
    let ttl = Ttl::DEFAULT;
    let identity = Identity {
        resource: Resource::new(NAME).expect("a name"),
        lease_id: LeaseId::from_bytes([7; 16]),
        token: Token::new(42).expect("a token"),
    };
    let grant = Grant { token: identity.token, ttl, granted_us: 1, adopted: false, after_lapse: false };
    let policy = Policy::builder(ttl).build().expect("the defaults agree");
    let rule = ClockRule::LargestOfThree;
    let begun = Holder::granted(identity, &grant, policy, rule, None, at(1_000), at(2_000), 7)
        .expect("a window that has just opened");
    criterion.bench_function("Holder: a tick that changes nothing", |bencher| {
        let mut holder = begun.clone();
        bencher.iter(|| black_box(&mut holder).tick(at(black_box(3_000))));
    });
    criterion.bench_function("Holder: a renewal sent and answered", |bencher| {
        let mut holder = begun.clone();
        let mut now = 2_000;
        bencher.iter(|| {
            now += 1_000;
            let renewal = holder.begin_renewal(at(now));
            let changed = holder.renewal_answered(at(now), Renewed::Extended { ttl }, at(now + 500), 7);
            (renewal, changed)
        });
    });
}

fn slot(criterion: &mut Criterion) {
    let claim = Claim {
        resource: Resource::new(NAME).expect("a name"),
        lease_id: LeaseId::from_bytes([7; 16]),
        holder_id: HolderId::from_bytes([8; 16]),
        label: Label::from_lossy("inner"),
        ttl: Ttl::DEFAULT,
        lock_delay: Duration::ZERO,
        floor: None,
        queue: false,
        once_per: None,
    };
    let release = Release {
        resource: claim.resource.clone(),
        lease_id: claim.lease_id,
        token: None,
        succeeded: false,
    };
    let now = Now { clock_us: 1_000_000, unix_us: 1_796_000_000_000_000 };
    criterion.bench_function("Slot: a grant and its release", |bencher| {
        bencher.iter_batched_ref(
            || (Slot::default(), MemoryLine::default()),
            |(slot, line)| {
                let granted = slot.acquire(line, black_box(&claim), None, now);
                let released = slot.release(line, black_box(&release), now);
                (granted, released)
            },
            BatchSize::SmallInput,
        );
    });
}

fn names(criterion: &mut Criterion) {
    for (what, name) in [("plain", NAME), ("odd", ODD)] {
        let resource = Resource::new(name).expect("a name");
        let encoded = resource.encode();
        criterion.bench_function(&format!("Resource: encode, {what}"), |bencher| {
            bencher.iter(|| black_box(&resource).encode());
        });
        criterion.bench_function(&format!("Resource: decode, {what}"), |bencher| {
            bencher.iter(|| Resource::decode(black_box(&encoded)));
        });
    }
    criterion.bench_function("Redis: pack a claim", |bencher| {
        let id = [7_u8; 16];
        bencher.iter(|| {
            pack::Packed::new()
                .text(black_box(NAME))
                .bytes(&id)
                .bytes(&id)
                .text("inner")
                .number(30_000)
                .number(0)
                .number(42)
                .flag(true)
        });
    });
}

criterion_group!(inner, check, holder, slot, names);
criterion_main!(inner);
