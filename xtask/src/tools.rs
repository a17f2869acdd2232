//! Programs that the tests start, and where they come from.
//!
//! To let a test use another program, add it to [`GROUPS`]. Building needs none of them.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{Failure, run};

/// Tests that need the same programs.
struct Group {
    /// What these tests are about.
    tests: &'static str,
    /// What they start.
    programs: &'static [Program],
}

/// A program and the Debian package that brings it.
struct Program {
    name: &'static str,
    package: &'static str,
}

const GROUPS: &[Group] = &[
    Group {
        tests: "running a command under a lease",
        programs: &[
            Program { name: "bash", package: "bash" },
            Program { name: "less", package: "less" },
            Program { name: "vi", package: "vim-tiny" },
            Program { name: "perl", package: "perl-base" },
            Program { name: "kill", package: "procps" },
            Program { name: "setsid", package: "util-linux" },
        ],
    },
    Group {
        tests: "processes, mounts and users of the tests' own",
        programs: &[
            Program { name: "setpriv", package: "util-linux" },
            Program { name: "unshare", package: "util-linux" },
            Program { name: "mount", package: "mount" },
            Program { name: "nsenter", package: "util-linux" },
            Program { name: "ip", package: "iproute2" },
        ],
    },
    Group {
        tests: "the engines on real servers",
        programs: &[
            Program { name: "redis-server", package: "redis-server" },
            Program { name: "redis-sentinel", package: "redis-sentinel" },
            Program { name: "redis-cli", package: "redis-tools" },
            Program { name: "etcd", package: "etcd-server" },
            Program { name: "etcdctl", package: "etcd-client" },
            Program { name: "postgres", package: "postgresql" },
            Program { name: "psql", package: "postgresql" },
            Program { name: "pgbouncer", package: "pgbouncer" },
            Program { name: "openssl", package: "openssl" },
        ],
    },
    Group {
        tests: "metrics, rules and alerts",
        programs: &[
            Program { name: "promtool", package: "prometheus" },
            Program { name: "prometheus", package: "prometheus" },
        ],
    },
    Group {
        tests: "the benchmark's yardstick",
        programs: &[Program { name: "flock", package: "util-linux" }],
    },
];

/// Folders that may be missing from an ordinary user's search path.
const ALSO: &[&str] = &["/usr/local/sbin", "/usr/sbin", "/sbin"];
/// Debian keeps each version of PostgreSQL in a folder of its own.
const VERSIONED: &str = "/usr/lib/postgresql";

/// Makes sure that every program is there. Installs the missing ones when `install`, else names them and fails.
pub(crate) fn ensure(install: bool) -> Result<(), Failure> {
    let missing = missing(&search_path());
    if missing.is_empty() {
        return Ok(());
    }
    if !install {
        return Err(Failure::new(complaint(&missing)));
    }
    let mut packages: Vec<&str> = missing.iter().map(|(_, program)| program.package).collect();
    packages.sort_unstable();
    packages.dedup();
    apt_get(&["update"])?;
    apt_get(&[&["install", "--yes", "--no-install-recommends"], &packages[..]].concat())?;
    let still = self::missing(&search_path());
    if still.is_empty() { Ok(()) } else { Err(Failure::new(complaint(&still))) }
}

type Missing = (&'static Group, &'static Program);

fn missing(path: &[PathBuf]) -> Vec<Missing> {
    let all = GROUPS.iter().flat_map(|group| group.programs.iter().map(move |program| (group, program)));
    all.filter(|(_, program)| !path.iter().any(|folder| is_program(&folder.join(program.name)))).collect()
}

fn search_path() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let versioned = Path::new(VERSIONED).read_dir().into_iter().flatten().flatten();
    let versioned = versioned.map(|version| version.path().join("bin"));
    env::split_paths(&path).chain(ALSO.iter().map(PathBuf::from)).chain(versioned).collect()
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

fn complaint(missing: &[Missing]) -> String {
    let lines: Vec<String> = missing
        .iter()
        .map(|(group, Program { name, package })| {
            format!("  {name} (package {package}), for tests of {}", group.tests)
        })
        .collect();
    format!(
        "programs that the tests need are missing:\n{}\ninstall them, or let me do it: cargo xtask test --install",
        lines.join("\n")
    )
}

/// Runs apt-get, as root or through sudo, never asking.
fn apt_get(args: &[&str]) -> Result<(), Failure> {
    let id = Command::new("id").arg("-u").output();
    let is_root = id.is_ok_and(|output| output.stdout.trim_ascii() == b"0");
    let mut command = Command::new(if is_root { "env" } else { "sudo" });
    if !is_root {
        command.args(["--non-interactive", "env"]);
    }
    command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get"]).args(args);
    run::run(command.stdin(std::process::Stdio::null()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_its_package_and_its_tests() {
        let missing = missing(&[PathBuf::from("/nonexistent")]);
        assert_eq!(missing.len(), GROUPS.iter().map(|group| group.programs.len()).sum::<usize>());
        let text = complaint(&missing);
        assert!(text.contains("setsid (package util-linux), for tests of running"), "{text}");
        assert!(text.contains("--install"), "{text}");
    }

    #[test]
    fn a_folder_is_no_program() {
        assert!(!is_program(Path::new("/")));
        assert!(is_program(&env::current_exe().unwrap()));
    }
}
