//! A wire between two machines, and what happens when it is cut: nothing arrives, and nobody is told.
//!
//! The machines are two network namespaces with a pair of virtual interfaces between them. Where the kernel allows none, a
//! proxy that passes nothing on does instead; the story is the same, and the test says which it was.

use std::{
    fs::{self, File},
    io,
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    process::Command,
    thread,
    time::Duration,
};

use leasehold_testkit::{
    process::{Child, Spawn, wait_until},
    proxy::{Passage, Proxy},
};
use nix::sched::{CloneFlags, setns};
use tempfile::TempDir;

/// Far beyond anything but a hang.
const LONG: Duration = Duration::from_secs(60);
/// Seen by nobody but the two namespaces.
const SERVERS: Ipv4Addr = Ipv4Addr::new(10, 213, 0, 1);
const CLIENTS: Ipv4Addr = Ipv4Addr::new(10, 213, 0, 2);

/// How the client is kept from the servers.
pub enum Wire {
    Kernel(Box<Spaces>),
    Proxies(Vec<Proxy>),
}

impl Wire {
    /// A wire to these servers, of the best kind that this machine allows.
    pub fn to(servers: &[SocketAddr]) -> Self {
        match Spaces::joined().and_then(|spaces| spaces.serve(servers).map(|()| spaces)) {
            Ok(spaces) => Self::Kernel(Box::new(spaces)),
            Err(why) => {
                eprintln!("no network namespaces on this machine ({why}): the proxy is the wire");
                Self::Proxies(servers.iter().map(|server| Proxy::start(*server).unwrap()).collect())
            }
        }
    }

    /// Where the client finds the server that is the n-th of them.
    pub fn address(&self, n: usize, server: SocketAddr) -> SocketAddr {
        match self {
            Self::Kernel(_) => SocketAddr::from((SERVERS, server.port())),
            Self::Proxies(proxies) => proxies[n].address(),
        }
    }

    /// A program on the client's machine.
    pub fn spawn(&self, program: &str) -> Spawn {
        match self {
            Self::Kernel(spaces) => {
                Spawn::new("nsenter").arg(format!("--net={}", space(&spaces.clients))).arg(program)
            }
            Self::Proxies(_) => Spawn::new(program),
        }
    }

    pub fn cut(&self) {
        match self {
            Self::Kernel(spaces) => ip(&spaces.servers, "link set wire down").unwrap(),
            Self::Proxies(proxies) => proxies.iter().for_each(|proxy| proxy.set_both(Passage::Stalled)),
        }
    }

    pub fn mend(&self) {
        match self {
            Self::Kernel(spaces) => ip(&spaces.servers, "link set wire up").unwrap(),
            Self::Proxies(proxies) => proxies.iter().for_each(|proxy| proxy.set_both(Passage::Open)),
        }
    }
}

/// Two network namespaces, each kept by a process that sleeps in it.
pub struct Spaces {
    servers: Child,
    clients: Child,
    _folder: TempDir,
}

impl Spaces {
    fn joined() -> Result<Self, String> {
        let folder = TempDir::with_prefix("wire-").unwrap();
        let keeper = |name: &str| {
            let spawn = Spawn::new("unshare").args(["--net", "sleep", "infinity"]).bound_to_starter();
            let child = spawn.start(name, folder.path()).unwrap();
            wait_until("a namespace", LONG, || {
                let refused = || child.stderr().unwrap().trim().to_owned();
                let ended = child.ended().unwrap().map(|_| Err(refused()));
                ended.or_else(|| (link(&space(&child)) != link("/proc/self/ns/net")).then_some(Ok(())))
            })
            .unwrap()
            .map(|()| child)
        };
        let spaces = Self { servers: keeper("servers")?, clients: keeper("clients")?, _folder: folder };
        let other = spaces.clients.pid();
        ip(&spaces.servers, &format!("link add wire type veth peer name wire netns {other}"))?;
        for (keeper, address) in [(&spaces.servers, SERVERS), (&spaces.clients, CLIENTS)] {
            ip(keeper, &format!("address add {address}/30 dev wire"))?;
            ip(keeper, "link set wire up")?;
        }
        Ok(spaces)
    }

    /// Each server of this machine's loopback answers at the end of the wire, too, on its own port.
    fn serve(&self, servers: &[SocketAddr]) -> Result<(), String> {
        for server in servers.iter().copied() {
            let listener = self.listen(server.port()).map_err(|error| error.to_string())?;
            thread::spawn(move || {
                while let Ok((client, _)) = listener.accept() {
                    thread::spawn(move || pass_on(&client, server));
                }
            });
        }
        Ok(())
    }

    /// A socket belongs to the namespace in which its thread was when it made it.
    fn listen(&self, port: u16) -> io::Result<TcpListener> {
        let space = File::open(space(&self.servers))?;
        let listen = move || {
            setns(space, CloneFlags::CLONE_NEWNET)?;
            TcpListener::bind((SERVERS, port))
        };
        thread::spawn(listen).join().unwrap()
    }
}

/// `ip` in the namespace that this one keeps.
fn ip(keeper: &Child, words: &str) -> Result<(), String> {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", space(keeper))).arg("ip").args(words.split(' '));
    let output = command.output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

fn space(keeper: &Child) -> String {
    format!("/proc/{}/ns/net", keeper.pid())
}

fn link(path: &str) -> Option<std::path::PathBuf> {
    fs::read_link(path).ok()
}

/// Both ways, until one side has had enough. A connection whose wire was cut stays as it is, as it does elsewhere.
fn pass_on(client: &TcpStream, server: SocketAddr) {
    let Ok(server) = TcpStream::connect(server) else { return };
    let one_way = |mut from: &TcpStream, mut to: &TcpStream| {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    };
    thread::scope(|scope| {
        scope.spawn(|| one_way(client, &server));
        one_way(&server, client);
    });
}
