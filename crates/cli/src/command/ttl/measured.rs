//! Measuring what a TTL is derived from: round trips to the coordinator and pauses of this machine.

use std::time::Duration;

use leasehold::{
    Ttl, Vital,
    blocking::block_on,
    core::derive_ttl::{Granularity, Inputs},
};
use serde::Serialize;

use crate::{client, failure::Failure, people, settings::Settings};

/// The longest measurement (ours: whoever wants more looks at the metrics of what runs anyway).
const LONGEST: Duration = Duration::from_secs(3_600);

/// What was found, and where.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    place: String,
    time: Duration,
    round_trip: Vital,
    host_pause: Vital,
    engine: Granularity,
    max_ttl: Ttl,
}

/// Asks the coordinator for `time`.
pub(super) fn measure(time: Duration, settings: &Settings) -> Result<Measured, Failure> {
    if time.is_zero() || time > LONGEST {
        return Err(Failure::usage("--measure: must be more than zero and at most 1h"));
    }
    let leases = client::connect(settings, client::operator)?;
    let vitals = block_on(leases.measure(time))?;
    let profile = leases.profile();
    let step_ms = profile.capabilities.ttl_step_ms;
    Ok(Measured {
        place: profile.place.clone(),
        time,
        round_trip: vitals.round_trip,
        host_pause: vitals.host_pause,
        engine: match profile.engine {
            "etcd" => Granularity::ETCD,
            _ => Granularity { step_ms, min_ms: step_ms },
        },
        max_ttl: profile.max_ttl,
    })
}

impl Measured {
    /// The inputs with what was measured where nothing was given.
    pub(super) fn fill(&self, inputs: Inputs, engine_given: bool) -> Inputs {
        Inputs {
            rtt_p99: inputs.rtt_p99.or(Some(self.round_trip.p99)),
            pause_p99: inputs.pause_p99.or(Some(self.host_pause.p99)),
            engine: if engine_given { inputs.engine } else { self.engine },
            max_ttl: self.max_ttl,
            ..inputs
        }
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let of = |vital: &Vital| {
            format!("p50 {:?}, p99 {:?}, max {:?}, of {}", vital.p50, vital.p99, vital.max, vital.count)
        };
        vec![
            format!("measured on {} for {}", self.place, people::duration(self.time)),
            format!("  round trip  {}", of(&self.round_trip)),
            format!("  pause       {}", of(&self.host_pause)),
            String::new(),
        ]
    }

    pub(super) fn fields(&self) -> MeasuredFields {
        MeasuredFields {
            place: self.place.clone(),
            round_trip: VitalFields::of(&self.round_trip),
            pause: VitalFields::of(&self.host_pause),
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct MeasuredFields {
    place: String,
    round_trip: VitalFields,
    pause: VitalFields,
}

#[derive(Debug, Serialize)]
struct VitalFields {
    count: u64,
    p50_us: u64,
    p99_us: u64,
    max_us: u64,
}

impl VitalFields {
    fn of(vital: &Vital) -> Self {
        let Vital { count, p50, p99, max } = *vital;
        Self { count, p50_us: super::micros(p50), p99_us: super::micros(p99), max_us: super::micros(max) }
    }
}
