//! A real run, scraped by a real Prometheus; and the file that short runs share.

use std::{fs, process::Command, process::Stdio};

use leasehold_testkit::{
    process::{Spawn, wait_until},
    server::{find_program, free_port},
};

use crate::{
    bench::{Bench, LONG, code, stderr},
    http::{exchange, get},
};

/// A command that lives until the test says otherwise.
const UNTIL_TOLD: &str = "echo up >$D/up; until [ -e $D/finish ]; do sleep 0.05; done";

fn value(page: &str, series: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
}

#[test]
fn a_run_is_scraped_by_prometheus_with_its_rules() {
    let mut bench = Bench::new();
    let (port, web) = (free_port(0).unwrap(), free_port(0).unwrap());
    let listen = port.to_string();
    let words = ["run", "r", "--ttl", "3s", "--metrics-listen", &listen, "--", "sh", "-c", UNTIL_TOLD];
    let run = bench.start("run", &words);
    bench.line("up");
    let ops = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ops/prometheus");
    let config = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
         rule_files: ['{ops}/rules.yml', '{ops}/alerts.yml']\n\
         scrape_configs: [{{job_name: leasehold, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}]\n"
    );
    fs::write(bench.path("prometheus.yml"), config).unwrap();
    let prometheus = Spawn::new(find_program("prometheus").unwrap())
        .args([
            format!("--config.file={}", bench.path("prometheus.yml").display()),
            format!("--storage.tsdb.path={}", bench.path("tsdb").display()),
            format!("--web.listen-address=127.0.0.1:{web}"),
        ])
        .bound_to_starter()
        .start("prometheus", &bench.path(""))
        .unwrap();
    let asked = |query: &str| {
        let answer = get(web, &format!("/api/v1/query?query={query}"))?;
        let answer: serde_json::Value = serde_json::from_str(&answer).ok()?;
        let sample = answer["data"]["result"].get(0)?;
        assert_eq!(sample["metric"]["engine"], "sqlite");
        assert_eq!(sample["metric"]["namespace"], "default");
        sample["value"][1].as_str()?.parse::<f64>().ok()
    };
    let see = |query: &str, is: &dyn Fn(f64) -> bool| {
        let seen = wait_until(query, LONG, || asked(query).filter(|value| is(*value)));
        seen.unwrap_or_else(|late| {
            panic!("{late}: {:?}", fs::read_to_string(bench.path("prometheus.stderr")))
        })
    };
    see("lease_grants_total", &|value| value >= 1.0);
    see("leases_held", &|value| value >= 1.0);
    see("lease_renewal_failure_rate", &|value| value <= 0.0);
    see("lease_renewals_total%7Boutcome%3D%22extended%22%7D", &|value| value >= 2.0);
    drop(prometheus);
    fs::write(bench.path("finish"), "").unwrap();
    assert!(run.wait(LONG).unwrap().success(), "{}", run.stderr().unwrap());
}

#[test]
fn the_endpoint_shows_one_page_in_the_format_of_prometheus() {
    let mut bench = Bench::new();
    let port = free_port(0).unwrap();
    let listen = format!("127.0.0.1:{port}");
    let words = ["run", "r", "--ttl", "3s", "--metrics-listen", &listen, "--", "sh", "-c", UNTIL_TOLD];
    let _run = bench.start("run", &words);
    bench.line("up");
    let page = wait_until("a renewal", LONG, || {
        get(port, "/metrics").filter(|page| {
            value(page, "lease_renewal_late_seconds_count{engine=\"sqlite\",namespace=\"default\"}")
                >= Some(1.0)
        })
    })
    .unwrap();
    assert!(
        value(&page, "stale_write_rejected_total{reason=\"stale\"}").is_some_and(|value| value.abs() < 0.5),
        "{page}"
    );
    let mut check = Command::new(find_program("promtool").unwrap())
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut check.stdin.take().unwrap(), page.as_bytes()).unwrap();
    let said = check.wait_with_output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    assert!(get(port, "/").is_none());
    let refused = exchange(port, "POST /metrics HTTP/1.0\r\n\r\n").unwrap();
    assert!(refused.starts_with("HTTP/1.1 405 "), "{refused}");
    // The address is taken: that is said, and the command does not run.
    let taken = bench.leasehold(&["run", "other", "--metrics-listen", &listen, "--", "touch", "ran"]);
    assert_eq!(code(&taken), 64);
    assert!(stderr(&taken).contains("--metrics-listen") && !bench.path("ran").exists(), "{}", stderr(&taken));
}

#[test]
fn runs_add_up_in_a_textfile_and_a_forced_expiry_is_counted_once() {
    let mut bench = Bench::new();
    let file = bench.path("leasehold.prom");
    let path = file.to_str().unwrap().to_owned();
    let run = |wait: &'static str| {
        bench.leasehold(&["run", "r", "--wait", wait, "--metrics-textfile", &path, "--", "true"])
    };
    assert_eq!((code(&run("0s")), code(&run("0s"))), (0, 0));
    let counted = |name: &str| {
        let page = fs::read_to_string(&file).unwrap();
        value(&page, &format!("{name}{{engine=\"sqlite\",namespace=\"default\"}}")).unwrap()
    };
    let same = |name: &str, expected: f64| {
        let found = counted(name);
        assert!((found - expected).abs() < 0.5, "{name} is {found} and not {expected}");
    };
    same("lease_grants_total", 2.0);
    same("lease_work_seconds_count", 2.0);
    same("lease_expiry_forced_total", 0.0);
    // A grant that nobody renews or releases.
    assert_eq!(code(&bench.leasehold(&["acquire", "r", "--ttl", "200ms"])), 0);
    assert_eq!((code(&run("1m")), code(&run("1m"))), (0, 0));
    same("lease_expiry_forced_total", 1.0);
    same("lease_grants_total", 4.0);
    let held = bench.start("held", &["run", "r", "--", "sh", "-c", UNTIL_TOLD]);
    bench.line("up");
    let refused = bench.leasehold(&["run", "r", "--metrics-textfile", &path, "--", "true"]);
    assert_eq!(code(&refused), 75);
    same("lease_grants_total", 4.0);
    fs::write(bench.path("finish"), "").unwrap();
    assert!(held.wait(LONG).unwrap().success());
}

#[test]
fn wishes_for_a_lease_and_the_answers_are_counted_by_its_holder() {
    let mut bench = Bench::new();
    let port = free_port(0).unwrap();
    let listen = port.to_string();
    let words =
        ["run", "r", "--on-preempt", "refuse", "--metrics-listen", &listen, "--", "sh", "-c", UNTIL_TOLD];
    let run = bench.start("run", &words);
    bench.line("up");
    let counted = |answer: &str| {
        let page = get(port, "/metrics").unwrap();
        let line = page
            .lines()
            .find(|line| {
                line.starts_with("lease_preemptions_total{") && line.contains(&format!("answer=\"{answer}\""))
            })
            .unwrap_or_else(|| panic!("{page}"));
        line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()
    };
    let all = || ["asked", "accepted", "refused"].map(counted);
    assert_eq!(all(), [0, 0, 0]);
    let asked = bench.leasehold(&["preempt", "r", "--within", "1m"]);
    assert_eq!(code(&asked), 75, "{}", stderr(&asked));
    assert_eq!(all(), [1, 0, 1]);
    fs::write(bench.path("finish"), "").unwrap();
    assert!(run.wait(LONG).unwrap().success(), "{}", run.outcome());
}
