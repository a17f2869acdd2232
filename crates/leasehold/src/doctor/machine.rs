//! Facts about the machine that asks: they bear on what a holder's window is worth.

use std::{convert::Infallible, fs, path::Path, time::Duration};

use leasehold_core::window::{ClockRule, Margin};

use super::{Finding, Verdict, rate};
use crate::clock;

/// Over this its clock is measured (ours: to a few ppm, as nothing is asked over a wire).
const SPAN: Duration = Duration::from_millis(100);

/// What can be seen without asking anybody.
pub(super) async fn examine() -> Vec<Finding> {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let power = fs::read_to_string("/sys/power/state").unwrap_or_default();
    let offsets = fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    vec![
        pauses(&cpu),
        suspend(&power),
        time_namespace(&offsets),
        slewing().await,
        time_daemon(chrony().as_deref()),
    ]
}

/// What chronyd was told, if it runs here.
fn chrony() -> Option<String> {
    let runs = ["/run/chrony/chronyd.pid", "/run/chronyd.pid"].iter().any(|path| Path::new(path).exists());
    let texts = ["/etc/chrony/chrony.conf", "/etc/chrony.conf"].map(fs::read_to_string);
    runs.then(|| texts.into_iter().flatten().next().unwrap_or_default())
}

/// How fast a clock may be put right. ntpd and systemd-timesyncd leave that to the kernel, which takes 500 ppm; chronyd takes what
/// its file says, and else a twelfth (chrony.conf(5), `maxslewrate`).
fn time_daemon(chrony: Option<&str>) -> Finding {
    const SUBJECT: &str = "time daemon";
    const USUAL_PPM: f64 = 1_000_000.0 / 12.0;
    let Some(text) = chrony else {
        return Finding::fine(
            SUBJECT,
            "windows",
            "none that is known to slew by more than 500 ppm runs here",
        );
    };
    let mut told = text.lines().filter_map(|line| {
        let (word, rest) = line.trim().split_once(char::is_whitespace)?;
        word.eq_ignore_ascii_case("maxslewrate").then(|| rest.trim().parse().ok())?
    });
    let ppm: f64 = told.next_back().unwrap_or(USUAL_PPM);
    let fact = format!("chronyd may slew this machine's clock by {ppm:.0} ppm");
    if ppm <= f64::from(Margin::DEFAULT.drift_ppm()) {
        return Finding::fine(SUBJECT, "windows", fact);
    }
    Finding::new(
        Verdict::Note,
        SUBJECT,
        "windows",
        format!(
            "{fact}: holders here look at the oscillator as well, but a coordinator here would end leases early"
        ),
        "where a coordinator runs that ends leases by the wall clock, set `maxslewrate 5000` in chrony.conf",
    )
}

/// A time daemon may make the clock go faster or slower for a while.
async fn slewing() -> Finding {
    let boot = async || Ok::<_, Infallible>(clock::read(ClockRule::Boot).boot_ns);
    match rate::measure(SPAN, boot).await {
        Ok(rate) => rate.judged_here(),
        Err(never) => match never {},
    }
}

/// A paused guest sees no gap on any of its clocks.
fn pauses(cpu: &str) -> Finding {
    let is_guest = cpu
        .lines()
        .any(|line| line.starts_with("flags") && line.split_whitespace().any(|flag| flag == "hypervisor"));
    if !is_guest {
        return Finding::fine("pauses", "windows", "not a virtual machine, as far as the processor says");
    }
    Finding::new(
        Verdict::Note,
        "pauses",
        "windows",
        "a virtual machine: a pause or a snapshot by its host may not show on any clock in it",
        "let the resource check the fencing token; no lease alone protects from a pause that cannot be seen",
    )
}

fn suspend(states: &str) -> Finding {
    if !states.split_whitespace().any(|state| state == "mem") {
        return Finding::fine("suspend", "windows", "this machine does not suspend to memory");
    }
    Finding::fine(
        "suspend",
        "windows",
        "this machine can suspend; time asleep is counted, so holders are lost when it wakes after their window",
    )
}

fn time_namespace(offsets: &str) -> Finding {
    let shifted = offsets.lines().any(|line| line.split_whitespace().skip(1).any(|number| number != "0"));
    if !shifted {
        return Finding::fine("time namespace", "waiting", "the boot clock is not shifted");
    }
    Finding::new(
        Verdict::Note,
        "time namespace",
        "waiting",
        "the boot clock of this process is shifted against its host",
        "on sqlite: let all processes of one file share one time namespace, or expiries of the others are waited for in full",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_as_the_kernel_writes_them() {
        assert_eq!(pauses("flags\t\t: fpu hypervisor lm").verdict, Verdict::Note);
        assert_eq!(pauses("flags\t\t: fpu lm").verdict, Verdict::Fine);
        assert!(suspend("freeze mem disk").fact.contains("can suspend"));
        assert!(!suspend("freeze").fact.contains("can suspend"));
        assert_eq!(time_namespace("monotonic  0  0\nboottime  0  0").verdict, Verdict::Fine);
        assert_eq!(time_namespace("monotonic  0  0\nboottime  86400  0").verdict, Verdict::Note);
        assert_eq!(time_namespace("").verdict, Verdict::Fine);
    }

    #[test]
    fn a_daemon_that_may_slew_beyond_the_margin_is_told_of() {
        let told = |text| time_daemon(Some(text));
        assert_eq!(time_daemon(None).verdict, Verdict::Fine);
        assert_eq!(told("pool x\n  MaxSlewRate 500\n").verdict, Verdict::Fine);
        assert_eq!(told("maxslewrate 5000").verdict, Verdict::Fine);
        assert_eq!(told("maxslewrate 5000.1").verdict, Verdict::Note);
        for unsaid in ["", "# maxslewrate 500", "maxslewrate", "maxslewrate much"] {
            assert!(told(unsaid).fact.contains("83333 ppm"), "{unsaid}");
        }
    }
}
