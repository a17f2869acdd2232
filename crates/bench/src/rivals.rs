//! Rivals that are programs of other people: installed from public registries into a folder that nobody else uses.
//!
//! What cannot be had is named with its reason in the tables. It never ends a run and is never left out in silence.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use leasehold_testkit::process::Spawn;

use crate::plan::Program;

/// Programs that are there, or why not.
pub(crate) struct Rivals {
    rust: Result<PathBuf, String>,
    python: Result<PathBuf, String>,
    node: Result<PathBuf, String>,
    sources: PathBuf,
}

impl Rivals {
    /// Installs into `folder`, from the sources beside this package.
    pub(crate) fn install(folder: &Path) -> Self {
        let sources = package().join("rivals");
        Self {
            rust: rust(&sources, folder),
            python: python(&sources, folder),
            node: node(&sources, folder),
            sources,
        }
    }

    /// For a run without them.
    pub(crate) fn none() -> Self {
        let why = || Err("left out by --no-rivals".to_owned());
        Self { rust: why(), python: why(), node: why(), sources: PathBuf::new() }
    }

    /// How to start a program; its task follows as the last argument.
    ///
    /// # Errors
    /// Why it is not there.
    pub(crate) fn program(&self, program: Program) -> Result<Spawn, String> {
        match program {
            Program::Own => {
                let own = env::current_exe().map_err(|error| format!("this program is gone: {error}"))?;
                Ok(Spawn::new(own).arg("measure"))
            }
            Program::Rust => self.rust.clone().map(Spawn::new),
            Program::Python => {
                let script = self.sources.join("python/rival.py");
                self.python.clone().map(|python| Spawn::new(python).arg(script))
            }
            Program::Node => self.node.clone().map(|script| Spawn::new("node").arg(script)),
        }
    }
}

/// The folder of this package.
pub(crate) fn package() -> PathBuf {
    // Set by cargo at run time; the value of compile time serves when the built program is called by hand.
    env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into()).into()
}

fn rust(sources: &Path, folder: &Path) -> Result<PathBuf, String> {
    let target = folder.join("rust");
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--release", "--quiet", "--locked", "--manifest-path"]);
    command.arg(sources.join("rust/Cargo.toml")).arg("--target-dir").arg(&target);
    run("cargo", &mut command)?;
    Ok(target.join("release/rival"))
}

fn python(sources: &Path, folder: &Path) -> Result<PathBuf, String> {
    let home = folder.join("python");
    let python = home.join("bin/python");
    if !python.exists() {
        run("python3", Command::new("python3").args(["-m", "venv"]).arg(&home))?;
    }
    let mut command = Command::new(&python);
    command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"]);
    run("pip", command.arg(sources.join("python/requirements.txt")))?;
    Ok(python)
}

fn node(sources: &Path, folder: &Path) -> Result<PathBuf, String> {
    let home = folder.join("node");
    fs::create_dir_all(&home).map_err(|error| format!("no folder for node: {error}"))?;
    for file in ["package.json", "rival.mjs"] {
        let copied = fs::copy(sources.join("node").join(file), home.join(file));
        copied.map_err(|error| format!("{file} cannot be copied: {error}"))?;
    }
    let mut command = Command::new("npm");
    command.args(["install", "--no-audit", "--no-fund", "--loglevel=error"]).current_dir(&home);
    run("npm", &mut command)?;
    Ok(home.join("rival.mjs"))
}

fn run(name: &str, command: &mut Command) -> Result<(), String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{name} cannot be started: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    Err(format!("not installed: {name}: {}", last.trim()))
}
