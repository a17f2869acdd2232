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
    /// Log every change of a lease as `json` or `text` [environment: LEASEHOLD_LOG]
    #[arg(long, global = true, value_name = "FORMAT")]
    pub(crate) log: Option<String>,
    /// Append the log to this file; default: the standard error [environment: LEASEHOLD_LOG_FILE]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,
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
    /// Tell what changes, one line a change, until interrupted
    Watch(Watch),
    /// Show everything about one resource
    Show(Show),
    /// Show who held a resource, from when to when, and how that ended
    History(History),
    /// Ask a holder to drain and hand over, as an operator
    Preempt(Preempt),
    /// End another's grant, as an operator
    Revoke(Revoke),
    /// Let writes in by their fencing tokens, and shut older holders out
    Fence(Fence),
    /// Look at operations that happen once, and settle what is stuck
    Effects(Effects),
    /// Publish the events of operations, and settle what is stuck
    Outbox(Outbox),
    /// Let the coordinator keep settings of leases for everybody in the namespace
    Settings(SettingsOfAll),
    /// Prepare a namespace on a coordinator
    Init(Init),
    /// Forget resources that nobody has used for a week
    Purge(Purge),
    /// Is this coordinator fit to be trusted? Exit code 0: yes, 1: no
    Doctor(Doctor),
    /// Measure rates, latencies, hand-overs and renewals on this coordinator
    Bench(Bench),
    /// Kill, pause and cut off workers on this coordinator, and judge what they saw. Exit code 0: pass, 1: violation, 2:
    /// inconclusive, 3: could not run
    Verify(Verify),
    /// Derive a TTL from measured latencies
    Ttl(Ttl),
    /// Draw who held what, from the JSON logs of several machines
    Timeline(Timeline),
    /// Print a completion script for a shell
    Completions(Completions),
    /// Print a manual page
    Man(Man),
}

/// The command line of the one verb that is started thousands of times a day, and stands between a job and its start.
#[derive(Debug, Parser)]
#[command(name = "leasehold")]
struct OnlyRun {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    verb: RunVerb,
}

#[derive(Debug, Subcommand)]
enum RunVerb {
    Run(Run),
}

/// What the words of a command line ask for.
///
/// The parser of all verbs takes a tenth of the time of a whole `run` to build. So `run` is read by a parser of its own;
/// whatever that does not understand, or answers with help, is read again by the parser that knows everything.
pub(crate) fn parse(words: &[OsString]) -> Result<Cli, clap::Error> {
    if words.get(1).is_some_and(|verb| verb == "run")
        && let Ok(OnlyRun { global, verb: RunVerb::Run(run) }) = OnlyRun::try_parse_from(words)
    {
        return Ok(Cli { global, verb: Verb::Run(run) });
    }
    Cli::try_parse_from(words)
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
    /// After SIGTERM the command may take this long to end, or `forever`; default: twice the TTL
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    pub(crate) drain_timeout: Option<String>,
    /// When somebody asks for the lease: `drain` (the default), or `refuse`
    #[arg(long, value_name = "WHAT")]
    pub(crate) on_preempt: Option<String>,
    /// Leave $NOTIFY_SOCKET to the command, instead of telling systemd when the lease is held
    #[arg(long)]
    pub(crate) no_sd_notify: bool,
    /// Stand by again when the lease was lost (`on-loss`), or also when the command has ended (`always`)
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "on-loss")]
    pub(crate) restart: Option<String>,
    /// Write how it ended, and whose exit code it is, to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Also end what the command leaves behind in the background
    #[arg(long)]
    pub(crate) kill_leftovers: bool,
    /// Show metrics to Prometheus at http://ADDR/metrics; a port alone is on this machine only
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics_listen: Option<String>,
    /// Add metrics up in a file for the node exporter's textfile collector
    #[arg(long, value_name = "FILE")]
    pub(crate) metrics_textfile: Option<PathBuf>,
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

/// `watch`.
#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// Only resources whose name starts with this
    pub(crate) prefix: Option<String>,
    /// Look again this often, 100ms to 1m; default: 1s
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    pub(crate) every: Option<String>,
}

/// `show`.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The resource
    pub(crate) resource: String,
}

/// `preempt`.
#[derive(Debug, Args)]
pub(crate) struct Preempt {
    /// The held resource
    pub(crate) resource: String,
    /// How long the holder has to hand over, at most 1d; default: 1m
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    pub(crate) within: Option<String>,
    /// Why: shown to the holder and kept in the history
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) reason: String,
    /// Who asks; default: --holder, else user@host
    #[arg(long, value_name = "WHO")]
    pub(crate) by: Option<String>,
    /// The grant that is meant; default: whichever stands
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) token: Option<String>,
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

/// `purge`.
#[derive(Debug, Args)]
pub(crate) struct Purge {
    /// Change nothing, and tell what would be forgotten
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// `fence`.
#[derive(Debug, Args)]
pub(crate) struct Fence {
    #[command(subcommand)]
    pub(crate) verb: FenceVerb,
}

/// What to ask of a fence.
#[derive(Debug, Subcommand)]
pub(crate) enum FenceVerb {
    /// Shut every older holder out: before reading anything that the work will write by
    Seal(FencePass),
    /// Does a write under this token count? Exit code 0: yes, 79: no
    Check(FencePass),
    /// Run a command whose output replaces a file, unless the token is stale by then
    File(FenceFile),
    /// Show the highest token that a fence has seen
    Show(FenceShow),
    /// Raise the highest token by hand; never lowers it
    Raise(FenceRaise),
    /// Make the fence in a PostgreSQL database, or bring it up to date
    Install(FenceInstall),
}

/// `fence seal`, `fence check`.
#[derive(Debug, Args)]
pub(crate) struct FencePass {
    /// The resource that is written to [environment: LEASEHOLD_RESOURCE]
    pub(crate) resource: Option<String>,
    #[command(flatten)]
    pub(crate) grant: FenceGrant,
    #[command(flatten)]
    pub(crate) place: FencePlace,
}

/// The grant under which is written.
#[derive(Debug, Args)]
pub(crate) struct FenceGrant {
    /// The grant's fencing token [environment: LEASEHOLD_TOKEN]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) token: Option<String>,
    /// The grant's lease id; default: the coordinator is asked [environment: LEASEHOLD_LEASE_ID]
    #[arg(long, value_name = "ID")]
    pub(crate) lease_id: Option<String>,
    /// The number of this write within the grant, where several are under way at once
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) op_seq: Option<String>,
}

/// Where the fence is.
#[derive(Debug, Args)]
pub(crate) struct FencePlace {
    /// The fence; default: beside the coordinator's leases [environment: LEASEHOLD_FENCE]
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
}

/// `fence file`.
#[derive(Debug, Args)]
pub(crate) struct FenceFile {
    /// The file to replace
    pub(crate) path: PathBuf,
    /// The resource that stands for the file [environment: LEASEHOLD_RESOURCE]
    #[arg(long, value_name = "NAME")]
    pub(crate) resource: Option<String>,
    #[command(flatten)]
    pub(crate) grant: FenceGrant,
    #[command(flatten)]
    pub(crate) place: FencePlace,
    /// The command and its arguments; its standard output becomes the file
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// `fence show`.
#[derive(Debug, Args)]
pub(crate) struct FenceShow {
    /// The resource [environment: LEASEHOLD_RESOURCE]
    pub(crate) resource: Option<String>,
    #[command(flatten)]
    pub(crate) place: FencePlace,
}

/// `fence raise`.
#[derive(Debug, Args)]
pub(crate) struct FenceRaise {
    /// The resource
    pub(crate) resource: String,
    /// The highest token from now on: lower ones are refused
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) token: String,
    #[command(flatten)]
    pub(crate) place: FencePlace,
}

/// `fence install`.
#[derive(Debug, Args)]
pub(crate) struct FenceInstall {
    /// Add strict mode, which looks at the lease itself: the leases must be in the same schema
    #[arg(long)]
    pub(crate) strict: bool,
    /// A role that writes, and needs the functions; may be given several times
    #[arg(long, value_name = "ROLE")]
    pub(crate) grant: Vec<String>,
    /// Print the statements instead of running them
    #[arg(long)]
    pub(crate) print: bool,
    #[command(flatten)]
    pub(crate) place: FencePlace,
}

/// `effects`.
#[derive(Debug, Args)]
pub(crate) struct Effects {
    #[command(subcommand)]
    pub(crate) verb: EffectsVerb,
}

/// What to do with operations.
#[derive(Debug, Subcommand)]
pub(crate) enum EffectsVerb {
    /// Make the tables in the database of the data, or bring them up to date
    Install(EffectsInstall),
    /// List operations by their keys
    Ls(EffectsLs),
    /// Show everything about one operation
    Show(EffectsShow),
    /// Say what was found out about an operation that is not done
    Resolve(EffectsResolve),
    /// Forget keys that are done and whose time is over
    Purge(EffectsPurge),
}

/// Where the effects are.
#[derive(Debug, Args)]
pub(crate) struct EffectsPlace {
    /// The database of the data; default: the coordinator's, on PostgreSQL [environment: LEASEHOLD_EFFECTS]
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
}

/// `effects install`.
#[derive(Debug, Args)]
pub(crate) struct EffectsInstall {
    /// A role that runs operations; may be given several times
    #[arg(long, value_name = "ROLE")]
    pub(crate) grant: Vec<String>,
    /// Print the statements instead of running them: nothing is connected to
    #[arg(long)]
    pub(crate) print: bool,
    #[command(flatten)]
    pub(crate) place: EffectsPlace,
}

/// `effects ls`.
#[derive(Debug, Args)]
pub(crate) struct EffectsLs {
    /// Only of this scope
    #[arg(long, value_name = "SCOPE")]
    pub(crate) scope: Option<String>,
    /// Only in this state: started, done or needs_reconciliation
    #[arg(long, value_name = "STATE")]
    pub(crate) state: Option<String>,
    #[command(flatten)]
    pub(crate) place: EffectsPlace,
}

/// Which operation.
#[derive(Debug, Args)]
pub(crate) struct EffectsKey {
    /// The key
    pub(crate) key: String,
    /// The scope of the key
    #[arg(long, value_name = "SCOPE")]
    pub(crate) scope: String,
    #[command(flatten)]
    pub(crate) place: EffectsPlace,
}

/// `effects show`.
#[derive(Debug, Args)]
pub(crate) struct EffectsShow {
    #[command(flatten)]
    pub(crate) key: EffectsKey,
}

/// `effects resolve`.
#[derive(Debug, Args)]
pub(crate) struct EffectsResolve {
    #[command(flatten)]
    pub(crate) key: EffectsKey,
    /// It has happened: this is its response from now on
    #[arg(long, value_name = "JSON", conflicts_with = "not_done", required_unless_present = "not_done")]
    pub(crate) done: Option<String>,
    /// It has not happened: the next request carries it out
    #[arg(long)]
    pub(crate) not_done: bool,
}

/// `effects purge`.
#[derive(Debug, Args)]
pub(crate) struct EffectsPurge {
    #[command(flatten)]
    pub(crate) place: EffectsPlace,
}

/// `outbox`.
#[derive(Debug, Args)]
pub(crate) struct Outbox {
    #[command(subcommand)]
    pub(crate) verb: OutboxVerb,
}

/// What to do with events.
#[derive(Debug, Subcommand)]
pub(crate) enum OutboxVerb {
    /// Publish events until interrupted, one relay at a time
    Relay(OutboxRelay),
    /// List events
    Ls(OutboxLs),
    /// Show everything about one event
    Show(OutboxShow),
    /// Decide about an event that is not published
    Resolve(OutboxResolve),
}

/// `outbox relay`.
#[derive(Debug, Args)]
pub(crate) struct OutboxRelay {
    /// Where to: stdout, a webhook's URL, or redis://… with --stream
    #[arg(long, value_name = "DESTINATION")]
    pub(crate) to: String,
    /// The Redis stream that gets an entry an event
    #[arg(long, value_name = "NAME")]
    pub(crate) stream: Option<String>,
    /// Let Redis forget the oldest entries beyond about N, read or not; default: keep all
    #[arg(long, value_name = "N", requires = "stream", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) stream_at_most: Option<u64>,
    /// A file with the password of the Redis server
    #[arg(long, value_name = "FILE", requires = "stream")]
    pub(crate) password_file: Option<PathBuf>,
    /// The relay's name: one of a name works at a time
    #[arg(long, value_name = "NAME", default_value = "main")]
    pub(crate) name: String,
    /// The source that consumers see; default: /leasehold/outbox/NAME
    #[arg(long, value_name = "URI")]
    pub(crate) source: Option<String>,
    /// A file with the value of the header Authorization
    #[arg(long, value_name = "FILE")]
    pub(crate) authorization_file: Option<PathBuf>,
    /// End when nothing waits
    #[arg(long)]
    pub(crate) once: bool,
    /// Show metrics to Prometheus at http://ADDR/metrics; a port alone is on this machine only
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics_listen: Option<String>,
    #[command(flatten)]
    pub(crate) place: EffectsPlace,
}

/// `outbox ls`.
#[derive(Debug, Args)]
pub(crate) struct OutboxLs {
    /// Only those: waiting, set_aside or published
    #[arg(long, value_name = "QUEUE")]
    pub(crate) queue: Option<String>,
    #[command(flatten)]
    pub(crate) place: EffectsPlace,
}

/// `outbox show`.
#[derive(Debug, Args)]
pub(crate) struct OutboxShow {
    /// The event's number
    pub(crate) id: u64,
    #[command(flatten)]
    pub(crate) place: EffectsPlace,
}

/// `outbox resolve`.
#[derive(Debug, Args)]
pub(crate) struct OutboxResolve {
    /// The event's number
    pub(crate) id: u64,
    /// Publish it, though it was set aside
    #[arg(long, conflicts_with = "set_aside", required_unless_present = "set_aside")]
    pub(crate) retry: bool,
    /// Do not publish it, and let pass what waits behind it
    #[arg(long)]
    pub(crate) set_aside: bool,
    #[command(flatten)]
    pub(crate) place: EffectsPlace,
}

/// `settings`.
#[derive(Debug, Args)]
pub(crate) struct SettingsOfAll {
    #[command(subcommand)]
    pub(crate) verb: SettingsVerb,
}

/// What to do with the settings of all.
#[derive(Debug, Subcommand)]
pub(crate) enum SettingsVerb {
    /// Print the settings that the coordinator keeps
    Show,
    /// Keep the settings in this file, in place of all that were kept
    Set(SettingsSet),
    /// Keep none any more
    Clear,
    /// Show who changed them, and when
    History,
}

/// `settings set`.
#[derive(Debug, Args)]
pub(crate) struct SettingsSet {
    /// TOML, as in the configuration file; `-` for the standard input
    pub(crate) file: PathBuf,
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

/// `history`.
#[derive(Debug, Args)]
pub(crate) struct History {
    /// The resource
    pub(crate) resource: String,
    /// At most this many ended grants; default: as many as are remembered
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u16>,
}

/// `bench`.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// How long each of the four parts takes; default 3s
    #[arg(long = "for", value_name = "D", allow_hyphen_values = true)]
    pub(crate) each: Option<String>,
    /// How many tasks acquire and release together, 1 to 1024
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) tasks: u32,
    /// How many clients wait in line for a hand-over, 1 to 64
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) waiters: u32,
    /// How many leases are held and renewed, 1 to 100000
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    pub(crate) leases: u32,
}

/// `doctor`.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Count warnings as faults
    #[arg(long)]
    pub(crate) strict: bool,
}

/// `verify`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Verify {
    #[command(subcommand)]
    pub(crate) verb: Option<VerifyVerb>,
    /// How long to go on, 1s to 7d; default 1m. Longer where there would be too little to judge
    #[arg(long = "for", value_name = "D", allow_hyphen_values = true)]
    pub(crate) time: Option<String>,
    /// How many worker processes, 3 to 64; default 8
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<usize>,
    /// Choose faults and turns as the run with this seed did
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// The TTL of the leases; default: a second, or more where the coordinator is slow
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    pub(crate) ttl: Option<String>,
    /// Exclude one another by the textbook's recipe (`naive`) instead of leases, to see what happens
    #[arg(long, value_name = "RECIPE")]
    pub(crate) baseline: Option<String>,
    /// Write every event to this file; without it a history is kept only when it shows a violation
    #[arg(long, value_name = "FILE")]
    pub(crate) history: Option<PathBuf>,
    /// Also write a page with a timeline and the table into this file
    #[arg(long, value_name = "OUT")]
    pub(crate) html: Option<PathBuf>,
}

/// What else `verify` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum VerifyVerb {
    /// Judge a history again, without a coordinator
    Check(VerifyCheck),
    /// What the workers of a run are
    #[command(hide = true)]
    Worker,
}

/// `verify check`.
#[derive(Debug, Args)]
pub(crate) struct VerifyCheck {
    /// A history as `verify --history` writes it
    pub(crate) file: PathBuf,
    /// Also write a page with a timeline and the table into this file
    #[arg(long, value_name = "OUT")]
    pub(crate) html: Option<PathBuf>,
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
    /// Measure the coordinator's round trips and the pauses of this machine for this long, and use what is found
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    pub(crate) measure: Option<String>,
    /// Is this TTL long enough for a lease that is renewed? Exit code 0: yes, 1: no
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    pub(crate) check: Option<String>,
    /// The engine counts TTLs in multiples of this; default 1ms, 1s on etcd
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    pub(crate) granularity: Option<String>,
}

/// `timeline`.
#[derive(Debug, Args)]
pub(crate) struct Timeline {
    /// Logs as `--log json` writes them; `-` for the standard input
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Only this resource
    #[arg(long, value_name = "RESOURCE")]
    pub(crate) resource: Option<String>,
    /// Also draw a picture into this file
    #[arg(long, value_name = "OUT")]
    pub(crate) svg: Option<PathBuf>,
    /// Also write a page with the picture and the findings into this file
    #[arg(long, value_name = "OUT")]
    pub(crate) html: Option<PathBuf>,
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
        let command = Cli::command();
        let families =
            ["fence", "effects", "outbox", "settings"].map(|name| command.find_subcommand(name).unwrap());
        for (family, verb) in
            families.iter().flat_map(|f| f.get_subcommands().map(move |verb| (f.get_name(), verb)))
        {
            let name = format!("{family} {}", verb.get_name());
            assert!(page.contains(&format!("`{name}`")), "docs/cli.md: {name}");
            for long in verb.get_arguments().filter_map(clap::Arg::get_long).filter(|long| *long != "help") {
                assert!(page.contains(&format!("`--{long}`")), "docs/cli.md does not mention --{long}");
            }
        }
        for verb in command.get_subcommands() {
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
    fn run_is_read_the_same_by_its_own_parser() {
        for line in [
            "leasehold run a b --flag -q",
            "leasehold run --json --url x -q a --ttl 5s -E 9 --restart -- b --ttl 6s",
            "leasehold --json run a b",
            "leasehold run a",
            "leasehold run --help",
            "leasehold run a --no-such-option -- b",
            "leasehold run -q -v a b",
            "leasehold ls",
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let told = |read: Result<Cli, clap::Error>| match read {
                Ok(cli) => format!("{cli:?}"),
                Err(error) => error.render().to_string(),
            };
            assert_eq!(told(parse(&words)), told(Cli::try_parse_from(&words)), "{line}");
        }
    }

    #[test]
    fn options_of_every_verb_stand_before_or_after_it() {
        for words in [["leasehold", "--json", "ls"], ["leasehold", "ls", "--json"]] {
            assert!(Cli::try_parse_from(words).unwrap().global.json);
        }
        assert!(Cli::try_parse_from(["leasehold", "ls", "-q", "-v"]).is_err());
    }
}
