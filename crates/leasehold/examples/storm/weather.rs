//! The director: starts the processes, kills and stops them at random moments, and waits until every payment is answered.

use std::{path::Path, sync::Arc, time::Duration};

use leasehold_testkit::{
    clock::{Stopwatch, boot_ns},
    process::{Child, Fleet, Signal, Spawn, wait_until},
    random::Choices,
    server::folder_in_memory,
};
use tempfile::TempDir;

use crate::{
    Failure, Setting,
    bank::Bank,
    client::{self, LAST, PARTS, SENDERS, TTL},
    report::Report,
};

/// Beyond any storm, on a machine that does much else beside it.
const LONG: Duration = Duration::from_secs(600);
/// Between two blows the clients get this far, in bytes of what they write: some fifty requests. So a slow machine has its storm by the
/// same measure, and gets through.
const PROGRESS: u64 = 1_000;
/// After so many blows the weather is fine.
const BLOWS: u32 = 120;
/// So many stand still at once, at most.
const STOPPED: usize = 3;

/// One process of the storm, and its successors.
struct Post {
    role: String,
    spawn: Spawn,
    lives: u32,
    child: Arc<Child>,
    /// When it may go on, while it is stopped.
    goes_on_ns: Option<u64>,
    is_done: bool,
}

impl Post {
    fn begin(fleet: &mut Fleet, role: &str, spawn: Spawn) -> Result<Self, Failure> {
        let child = fleet.start(&format!("{role}.0"), spawn.clone())?;
        Ok(Self { role: role.to_owned(), spawn, lives: 0, child, goes_on_ns: None, is_done: false })
    }

    /// Notes that it has ended by itself.
    fn look(&mut self) -> Result<(), Failure> {
        let Some(status) = self.child.ended()? else { return Ok(()) };
        if status.success() {
            self.is_done = true;
            return Ok(());
        }
        Err(format!("{} has failed ({status}): {}", self.role, self.child.stderr()?).into())
    }

    /// `kill -9`. True when it was at work.
    fn kill(&mut self) -> Result<bool, Failure> {
        self.child.signal(Signal::SIGKILL)?;
        self.goes_on_ns = None;
        self.is_done = self.child.wait(LONG)?.success();
        Ok(!self.is_done)
    }

    fn again(&mut self, fleet: &mut Fleet) -> Result<(), Failure> {
        self.lives += 1;
        self.child = fleet.start(&format!("{}.{}", self.role, self.lives), self.spawn.clone())?;
        Ok(())
    }
}

struct Storm {
    // Ended before the folder goes.
    fleet: Fleet,
    folder: TempDir,
    choices: Choices,
    posts: Vec<Post>,
    /// What the clients had written at the last blow.
    written: u64,
    report: Report,
}

/// Blows, and counts.
pub(crate) fn blow(setting: &Setting) -> Result<Report, Failure> {
    let folder = folder_in_memory("storm")?;
    let bank = match &setting.url {
        Some(url) => Bank::parse(url),
        None => Bank::File(folder.path().join("bank.db")),
    };
    let leases_at = match &setting.url {
        Some(url) => url.clone(),
        None => format!("sqlite:{}", folder.path().join("leases.db").display()),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(bank.prepare(&leases_at))?;

    let mut fleet = Fleet::new(folder.path());
    let mut posts = Vec::new();
    let spawn = |role: &str| client::spawn(role, setting, &leases_at, &bank, folder.path());
    for (sender, part) in (0..SENDERS).flat_map(|sender| (0..PARTS).map(move |part| (sender, part))) {
        let role = format!("client-{sender}-{part}");
        posts.push(Post::begin(&mut fleet, &role, spawn(&role)?)?);
    }
    let relay = if setting.naive { None } else { Some(spawn("relay")?) };
    if let Some(relay) = &relay {
        posts.push(Post::begin(&mut fleet, "relay", relay.clone())?);
    }
    let report = Report::of(setting);
    let mut storm = Storm { fleet, folder, choices: Choices::new(setting.seed), posts, written: 0, report };
    storm.rage()?;
    if let Some(relay) = relay {
        storm.carry_the_rest(relay)?;
    }
    storm.count(&leases_at, &bank, &runtime)
}

impl Storm {
    /// Until all clients are done.
    fn rage(&mut self) -> Result<(), Failure> {
        let since = Stopwatch::start();
        loop {
            self.resume()?;
            self.posts.iter_mut().try_for_each(Post::look)?;
            let clients = |post: &&Post| post.role != "relay";
            if self.posts.iter().filter(clients).all(|post| post.is_done) {
                return Ok(());
            }
            if since.elapsed() > LONG {
                return Err(format!("the clients were not done within {LONG:?}").into());
            }
            pass(Duration::from_millis(20 + self.choices.below(100)))?;
            let written = self.written();
            if self.report.kills + self.report.stops < BLOWS && written >= self.written + PROGRESS {
                self.written = written;
                self.blow_once()?;
            }
        }
    }

    /// How much the processes have written so far.
    fn written(&self) -> u64 {
        let journals = self.posts.iter().map(|post| client::journal(self.folder.path(), &post.role));
        // Before a process has begun there is none.
        journals.filter_map(|journal| Some(std::fs::metadata(journal).ok()?.len())).sum()
    }

    fn resume(&mut self) -> Result<(), Failure> {
        let now_ns = boot_ns();
        for post in
            self.posts.iter_mut().filter(|post| post.goes_on_ns.is_some_and(|due_ns| due_ns <= now_ns))
        {
            post.child.resume()?;
            post.goes_on_ns = None;
        }
        Ok(())
    }

    fn blow_once(&mut self) -> Result<(), Failure> {
        let stopped = self.posts.iter().filter(|post| post.goes_on_ns.is_some()).count();
        let victim = usize::try_from(self.choices.below(self.posts.len() as u64))?;
        let kills = self.choices.one_in(2);
        let post = &mut self.posts[victim];
        if post.is_done || post.goes_on_ns.is_some() {
            return Ok(());
        }
        if kills {
            if post.kill()? {
                post.again(&mut self.fleet)?;
                self.report.kills += 1;
            }
        } else if stopped < STOPPED {
            post.child.signal(Signal::SIGSTOP)?;
            let pause = TTL * 5 / 4 + TTL / 100 * u32::try_from(self.choices.below(75))?;
            post.goes_on_ns = Some(boot_ns() + u64::try_from(pause.as_nanos())?);
            self.report.stops += 1;
        }
        Ok(())
    }

    /// Kills the relay once more, and lets its successor carry what is left.
    fn carry_the_rest(&mut self, spawn: Spawn) -> Result<(), Failure> {
        let Some(relay) = self.posts.last_mut() else { return Ok(()) };
        let _ = relay.kill()?;
        self.report.kills += 1;
        let last = self.fleet.start("relay.last", spawn.env(LAST, "1"))?;
        let status = last.wait(LONG)?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("the last relay failed: {}", last.stderr()?).into())
        }
    }

    fn count(
        mut self,
        leases_at: &str,
        bank: &Bank,
        runtime: &tokio::runtime::Runtime,
    ) -> Result<Report, Failure> {
        let folder: &Path = self.folder.path();
        for post in &self.posts {
            self.report.read(&std::fs::read_to_string(client::journal(folder, &post.role))?);
        }
        runtime.block_on(async {
            let leases = crate::bank::connect(leases_at).await?;
            let teller = bank.open(&leases, leasehold::effects::Rules::default()).await?;
            self.report.count(&teller).await?;
            Ok::<_, Failure>(())
        })?;
        Ok(self.report)
    }
}

/// Lets time pass: the length of a pause is what a storm is about.
fn pass(time: Duration) -> Result<(), Failure> {
    let until_ns = boot_ns() + u64::try_from(time.as_nanos())?;
    Ok(wait_until("time", LONG, || (boot_ns() >= until_ns).then_some(()))?)
}
