//! The page on logs says what the library and `run` tell, and a real run tells it.

use std::{collections::BTreeSet, fs};

use crate::bench::{Bench, code};

const OBSERVE: &str = include_str!("../../../leasehold/src/observe.rs");
const TELL: &str = include_str!("../../src/run/tell.rs");
const PAGE: &str = include_str!("../../../../docs/logs.md");

/// The messages in the source: the texts that stand alone or as the last argument.
fn messages() -> BTreeSet<&'static str> {
    let lines = OBSERVE.lines().chain(TELL.lines());
    let code = lines.filter(|line| !line.trim_start().starts_with("//"));
    let texts = code.flat_map(|line| line.split('"').skip(1).step_by(2));
    texts.filter(|text| text.contains(' ') || *text == "connected").collect()
}

#[test]
fn every_event_is_documented_and_every_documented_event_is_told() {
    let rows = PAGE.split("## Events").nth(1).unwrap().lines().filter_map(|line| line.strip_prefix("| `"));
    let documented: BTreeSet<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    assert_eq!(documented, messages());
}

#[test]
fn every_field_is_documented() {
    let inside = |line: &str| -> Option<String> {
        let line = line.trim().trim_end_matches(',').trim_start_matches('%');
        let name = line.split(" = ").next()?;
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        is_name.then(|| name.to_owned())
    };
    let blocks = OBSERVE.split("tracing::").skip(1).chain(TELL.split("tracing::").skip(1));
    let blocks = blocks.map(|block| block.split(");").next().unwrap());
    let fields: BTreeSet<String> =
        blocks.flat_map(|block| block.lines().skip(1).filter_map(inside)).collect();
    assert!(fields.contains("fencing_token") && fields.contains("held_by"), "{fields:?}");
    for field in fields {
        assert!(PAGE.contains(&format!("`{field}`")), "docs/logs.md does not mention {field}");
    }
}

#[test]
fn a_run_logs_its_lease_from_the_grant_to_the_release() {
    let mut bench = Bench::new();
    let log = bench.path("log");
    let words = ["--log-file", log.to_str().unwrap(), "run", "r", "--ttl", "2s", "--", "sh", "-c"];
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let mut command = bench.command(&words);
    command.arg("echo $LEASEHOLD_TOKEN; sleep 1").env("TRACEPARENT", trace);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let token: u64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    let lines: Vec<serde_json::Value> =
        fs::read_to_string(&log).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["message"], "connected");
    let steps: Vec<&str> = lines.iter().filter_map(|line| line["to"].as_str()).collect();
    // On a busy machine it may be uncertain for a moment.
    assert_eq!((steps.first(), &steps[steps.len() - 2..]), (Some(&"held"), &["releasing", "released"][..]));
    assert!(lines.iter().any(|line| line["message"] == "the lease is renewed"), "{lines:#?}");
    for line in &lines[1..] {
        assert_eq!((line["resource"].as_str(), line["fencing_token"].as_u64()), (Some("r"), Some(token)));
        assert_eq!((&line["holder_id"], &line["ttl_ms"]), (&lines[0]["holder_id"], &2000.into()));
    }
    for line in &lines {
        assert_eq!(line["trace_id"], "0af7651916cd43dd8448eb211c80319c");
        assert!(line["timestamp"].as_str().unwrap().ends_with('Z'));
    }
    // A refusal is logged too; on the standard error, for people, when told so.
    let _holder =
        bench.start("holder", &["run", "busy", "--", "sh", "-c", "echo up >$D/up; exec sleep 1000"]);
    bench.line("up");
    let refused = bench.leasehold(&["--log", "text", "run", "busy", "-q", "--", "true"]);
    let said = String::from_utf8(refused.stderr.clone()).unwrap();
    assert!(code(&refused) == 75 && said.contains("reason=busy held_under="), "{said}");
    assert_eq!(code(&bench.leasehold(&["--log", "xml", "ls"])), 64);
    assert_eq!(code(&bench.leasehold(&["--log-file", "/nonexistent/x", "ls"])), 64);
}
