//! The low arguments: what was typed, as text. Nothing is judged here but the shape of the command line; `settings` and
//! the commands check the values, so that every refusal has our words and our exit code.
#![allow(clippy::doc_markdown, reason = "these comments are the help texts, which know no Markdown")]

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Parser, Subcommand};

/// Time-bounded, renewable, fenced leases.
///
/// Exit codes: 0 done, 64 usage, 69 coordinator unreachable, 70 coordinator broken, 74 result not written, 75 held by
/// another, 77 denied, 79 not yours (any more), 80 outcome unknown. `run` passes its command's own code on.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, propagate_version = false, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// Options of every verb.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Options of every verb")]
pub(crate) struct Global {
    /// The coordinator, as in sqlite:/var/lib/app/leases.db [environment: LEASEHOLD_URL]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// The group of resources; default `default` [environment: LEASEHOLD_NAMESPACE]
    #[arg(long, global = true, value_name = "NS")]
    pub(crate) namespace: Option<String>,
    /// The configuration file [environment: LEASEHOLD_CONFIG]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// What others see as the holder's name
    #[arg(long, global = true, value_name = "LABEL")]
    pub(crate) holder: Option<String>,
    /// One JSON object a line, with stable field names
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Say nothing but errors: answers such as "held by another" are left to the exit code
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Say which coordinator is asked, and as whom
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Hold a lease while a command runs
    Run(Run),
    /// Acquire a lease that nobody renews, and print its fencing token
    Acquire(Acquire),
    /// Is it still mine? Exit code 0: yes, 79: no
    Check(Grant),
    /// Make a grant last for its TTL from now
    Renew(Renew),
    /// End a grant
    Release(Grant),
    /// List who holds what
    Ls(Ls),
    /// Show everything about one resource
    Show(Show),
    /// End another's grant, as an operator
    Revoke(Revoke),
    /// Prepare a namespace on a coordinator
    Init(Init),
    /// Derive a TTL from measured latencies
    Ttl(Ttl),
    /// Print a completion script for a shell
    Completions(Completions),
    /// Print a manual page
    Man(Man),
}

/// `run`.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The resource to hold
    pub(crate) resource: String,
    /// How long the grant lasts without renewal
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    pub(crate) ttl: Option<String>,
    /// Wait up to this long for the grant, or `forever`; default: try once
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    pub(crate) wait: Option<String>,
    /// Time between TERM and KILL when the command must stop
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    pub(crate) grace: Option<String>,
    /// Give the lease up after this long, renewals and all
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    pub(crate) max_hold: Option<String>,
    /// Do nothing if the last successful run started less than this ago
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    pub(crate) once_per: Option<String>,
    /// Write how it ended, and whose exit code it is, to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Also end what the command leaves behind in the background
    #[arg(long)]
    pub(crate) kill_leftovers: bool,
    /// Exit with N instead of an exit code of our own (64 … 80)
    #[arg(short = 'E', long, value_name = "N")]
    pub(crate) own_exit: Option<u8>,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// `acquire`.
#[derive(Debug, Args)]
pub(crate) struct Acquire {
    /// The resource to hold
    pub(crate) resource: String,
    /// How long the grant lasts: it must cover the work, because nobody renews it
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    pub(crate) ttl: String,
    /// Wait up to this long for the grant, or `forever`; default: try once
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    pub(crate) wait: Option<String>,
}

/// `check`, `release`: which grant.
#[derive(Debug, Args)]
pub(crate) struct Grant {
    /// The held resource
    pub(crate) resource: String,
    /// The grant's fencing token, as `acquire` printed it
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) token: String,
    /// The grant's lease id, to be certain twice [environment: LEASEHOLD_LEASE_ID]
    #[arg(long, value_name = "ID")]
    pub(crate) lease_id: Option<String>,
}

/// `renew`.
#[derive(Debug, Args)]
pub(crate) struct Renew {
    #[command(flatten)]
    pub(crate) grant: Grant,
    /// How long it shall last from now; default: its TTL. Never shortens it
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    pub(crate) ttl: Option<String>,
}

/// `ls`.
#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// Only resources whose name starts with this
    pub(crate) prefix: Option<String>,
    /// Also resources that are free now but remembered
    #[arg(short, long)]
    pub(crate) all: bool,
}

/// `show`.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The resource
    pub(crate) resource: String,
}

/// `revoke`.
#[derive(Debug, Args)]
pub(crate) struct Revoke {
    /// The held resource
    pub(crate) resource: String,
    /// The grant to end, so that its successor cannot be hit; without it nothing is changed and the command to give is shown
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) token: Option<String>,
    /// Why: shown to the holder and kept in the record
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) reason: String,
    /// Free the resource at once, without waiting for the holder to stop: only fences protect it then
    #[arg(long)]
    pub(crate) now: bool,
}

/// `init`.
#[derive(Debug, Args)]
pub(crate) struct Init {
    /// Vouch that nobody can hold a lease here, and skip the first quarantine. Refused where the namespace exists
    #[arg(long)]
    pub(crate) fresh: bool,
    /// The longest TTL that the namespace allows
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    pub(crate) max_ttl: Option<String>,
}

/// `ttl`.
#[derive(Debug, Args)]
pub(crate) struct Ttl {
    /// 99th percentile of one piece of protected work
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    pub(crate) work_p99: Option<String>,
    /// 99th percentile of one call to the coordinator
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    pub(crate) rtt_p99: Option<String>,
    /// Added for what no percentile covers
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    pub(crate) margin: Option<String>,
    /// Added for clocks that are far apart: zero, or 50ms to 200ms
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    pub(crate) drift: Option<String>,
    /// Round up to a multiple of this; default 500ms
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    pub(crate) step: Option<String>,
    /// 99th percentile of the pauses of the holder's process
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    pub(crate) pause_p99: Option<String>,
    /// The engine counts TTLs in multiples of this; default 1ms, 1s on etcd
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    pub(crate) granularity: Option<String>,
}

/// `completions`.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Which shell
    pub(crate) shell: clap_complete::Shell,
}

/// `man`.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The page of one verb; default: of the program
    pub(crate) verb: Option<String>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_verb_and_option_is_documented() {
        let page = include_str!("../../../docs/cli.md");
        for verb in Cli::command().get_subcommands() {
            let name = verb.get_name();
            assert!(page.contains(&format!("\n### `{name}")), "docs/cli.md has no section on {name}");
            for long in verb.get_arguments().filter_map(clap::Arg::get_long).filter(|long| *long != "help") {
                assert!(
                    page.contains(&format!("`--{long}")),
                    "docs/cli.md does not mention --{long} of {name}"
                );
            }
        }
        for long in Cli::command().get_arguments().filter_map(clap::Arg::get_long) {
            assert!(page.contains(&format!("`--{long}")), "docs/cli.md does not mention --{long}");
        }
    }

    fn run(words: &str) -> Run {
        match Cli::try_parse_from(words.split(' ')).unwrap().verb {
            Verb::Run(run) => run,
            verb => panic!("{verb:?}"),
        }
    }

    #[test]
    fn the_options_of_the_command_that_runs_are_its_own() {
        let command = |words| run(words).command;
        assert_eq!(command("leasehold run a b --flag -q"), ["b", "--flag", "-q"]);
        assert_eq!(command("leasehold run a --ttl 5s b --ttl 6s"), ["b", "--ttl", "6s"]);
        assert_eq!(command("leasehold run a -- --odd -- x"), ["--odd", "--", "x"]);
        assert_eq!(run("leasehold run a --ttl 5s -E 9 -- b").own_exit, Some(9));
        let cli = Cli::try_parse_from(["leasehold", "run", "a", "b", "--json", "--url", "x"]).unwrap();
        assert!(!cli.global.json && cli.global.url.is_none());
    }

    #[test]
    fn options_of_every_verb_stand_before_or_after_it() {
        for words in [["leasehold", "--json", "ls"], ["leasehold", "ls", "--json"]] {
            assert!(Cli::try_parse_from(words).unwrap().global.json);
        }
        assert!(Cli::try_parse_from(["leasehold", "ls", "-q", "-v"]).is_err());
    }
}
