//! The demonstration that users run does what its page says.

use std::{net::TcpListener, path::Path, process::Command};

/// The first of two ports that are free.
fn port() -> u16 {
    (0..1_000)
        .filter_map(|_| TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok())
        .map(|address| address.port())
        .find(|port| port.checked_add(1).is_some_and(|next| TcpListener::bind(("127.0.0.1", next)).is_ok()))
        .unwrap()
}

#[test]
fn the_demonstration_shows_an_expiry_a_handing_over_a_loss_and_an_alert() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("sh")
        .arg(root.join("docs/demo/demo.sh"))
        .arg(folder.path())
        .env("LEASEHOLD", env!("CARGO_BIN_EXE_leasehold"))
        .env("PORT", port().to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    for part in [
        "lease_expiry_forced_total{engine=\"sqlite\",namespace=\"default\"} 1",
        "LeaseExpiryForced",
        "preempted has handed over token",
        "exited with 79",
        "demo@ops (maintenance)",
        "window_closed",
    ] {
        assert!(said.contains(part), "{part} is missing in\n{said}");
    }
    assert!(!said.contains("overlap"), "{said}");
    let picture = std::fs::read_to_string(folder.path().join("timeline.svg")).unwrap();
    assert_eq!(picture.matches("class=\"held\"").count(), 3, "{picture}");
}
