//! What the coordinator says of itself, and what the parent measures beside the run.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use leasehold::{
    Leases, Ttl, Vitals,
    blocking::block_on,
    clock,
    core::profile::Profile,
    doctor::{self, Verdict},
};
use serde::Serialize;

use crate::settings::Settings;

/// How often round trips are measured.
const MEASURED: Duration = Duration::from_millis(50);
/// And rests in between, so that it is no load.
const UNMEASURED: Duration = Duration::from_millis(200);

/// What is known before anything is done.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Facts {
    pub(crate) place: String,
    pub(crate) engine: &'static str,
    /// What `doctor` found, in one line, and its verdict.
    pub(crate) store: String,
    pub(crate) doctor: &'static str,
    pub(crate) windows: String,
    pub(crate) tokens: String,
    pub(crate) after_failover: &'static str,
    pub(crate) caveat: &'static str,
}

impl Facts {
    /// Asks the coordinator, and `doctor`.
    pub(super) fn gather(profile: &Profile, settings: &Settings) -> Self {
        let (store, doctor) = match block_on(doctor::examine(&settings.url, &settings.namespace)) {
            Ok(report) => {
                let worst = report.worst();
                let told = report.findings.iter().filter(|finding| finding.verdict > Verdict::Fine);
                let told: Vec<String> =
                    told.map(|finding| format!("{}: {}", finding.subject, finding.fact)).collect();
                (told.join("; "), worst.word())
            }
            Err(error) => (format!("not examined: {}", error.what()), "unknown"),
        };
        let guarantee = &profile.guarantee;
        Self {
            place: profile.place.clone(),
            engine: profile.engine,
            store,
            doctor,
            windows: guarantee.windows.to_string(),
            tokens: guarantee.tokens.to_string(),
            after_failover: guarantee.after_failover,
            caveat: guarantee.caveat,
        }
    }
}

/// How far the engine's clock is from this machine's.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) struct ClockOffset {
    /// Engine less client, in milliseconds, and how far that may be off.
    pub(crate) offset_ms: f64,
    pub(crate) error_ms: f64,
}

/// Compares the clocks by one grant; `None` where the engine has no clock of its own, or does not answer.
pub(super) fn clock_offset(leases: &Leases, ttl: Ttl) -> Option<ClockOffset> {
    if !matches!(leases.profile().engine, "redis" | "postgres") {
        return None;
    }
    let request = leases.lease("clock").ttl(ttl.as_duration()).wait(ttl.as_duration());
    let before_us = clock::unix_us();
    let lease = block_on(request.acquire()).ok()?;
    let after_us = clock::unix_us();
    let granted_us = lease.granted_us();
    let _ = block_on(lease.release());
    #[allow(clippy::cast_precision_loss, reason = "microseconds since 1970 are exact in a double")]
    let [before, after, granted] = [before_us, after_us, granted_us].map(|us| us as f64 / 1e3);
    Some(ClockOffset { offset_ms: granted - f64::midpoint(before, after), error_ms: (after - before) / 2.0 })
}

/// Measures round trips and this machine's pauses, in a thread of its own, until it is dropped.
pub(super) struct Meter {
    leases: Leases,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Meter {
    pub(super) fn start(leases: &Leases) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (told, measured) = (Arc::clone(&stop), leases.clone());
        let measure = move || {
            while !told.load(Ordering::Relaxed) {
                // One that fails has taken its time, and is counted with it.
                let _ = block_on(measured.measure(MEASURED));
                thread::park_timeout(UNMEASURED);
            }
        };
        let thread = thread::Builder::new().name("leasehold-verify".to_owned()).spawn(measure)?;
        Ok(Self { leases: leases.clone(), stop, thread: Some(thread) })
    }

    pub(super) fn vitals(&self) -> Vitals {
        self.leases.vitals()
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It panics nowhere; and if it did, there would be nothing to be done about it here.
            let _ = thread.join();
        }
    }
}
