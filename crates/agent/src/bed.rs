//! A NATS server for tests and small labs, in a folder of its own.

use crate::Problem;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Name of the program, from Debian's package `nats-server`.
const PROGRAM: &str = "nats-server";
/// How long the server may take to start or stop.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where the server listens, and how clients authenticate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bed {
    /// Folder with configuration, log and storage.
    pub folder: PathBuf,
    /// Address.
    pub listen: SocketAddr,
    /// Certificate and key of the server; required unless it listens on loopback only.
    pub tls: Option<(PathBuf, PathBuf)>,
}

impl Bed {
    /// Returns the address for clients.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.tls.is_some() { "tls" } else { "nats" }, self.listen)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Returns the file with the password of a user, `controller` or `agent`, if the server asks for one.
    pub fn password_file(&self, user: &str) -> PathBuf {
        self.file(&format!("{user}.password"))
    }

    /// Starts the server, and waits until it accepts connections.
    ///
    /// # Errors
    /// The cause and the remedy: no such program, a server is already there, the port is in use.
    pub fn up(&self) -> Result<(), Problem> {
        if !self.listen.ip().is_loopback() && self.tls.is_none() {
            return Err(Problem(format!(
                "{} can be reached by other machines, so connections must be encrypted; give --cert and --key",
                self.listen.ip()
            )));
        }
        if let Some(pid) = running(&self.folder) {
            return Err(Problem(format!(
                "a server (process {pid}) already runs in {}; `drophammer bed down` ends it",
                self.folder.display()
            )));
        }
        let failed = |what: &str| {
            let what = format!("{what} in {}", self.folder.display());
            move |e| Problem::of(&what, e)
        };
        fs::create_dir_all(&self.folder).map_err(failed("cannot write"))?;
        let mut passwords = Vec::new();
        if self.tls.is_some() {
            for user in ["controller", "agent"] {
                let password = password();
                write_private(&self.password_file(user), &password).map_err(failed("cannot write a password"))?;
                passwords.push(password);
            }
        }
        let configuration = self.configuration(&passwords);
        write_private(&self.file("server.conf"), &configuration).map_err(failed("cannot write the configuration"))?;
        let log = fs::File::create(self.file("server.log")).map_err(failed("cannot write the log"))?;
        let mut command = Command::new(PROGRAM);
        command.arg("-c").arg(self.file("server.conf")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        // The server outlives this program and its terminal.
        let mut server = command.process_group(0).spawn().map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                Problem(format!("the program {PROGRAM} is missing; install it (Debian: apt install {PROGRAM})"))
            }
            _ => Problem::of(&format!("{PROGRAM} cannot be started"), e),
        })?;
        write_private(&self.file("server.pid"), &server.id().to_string()).map_err(failed("cannot write"))?;
        let begun = Instant::now();
        loop {
            if let Ok(Some(status)) = server.try_wait() {
                let log = fs::read_to_string(self.file("server.log")).unwrap_or_default();
                let last: Vec<&str> = log.lines().rev().take(3).collect();
                return Err(Problem(format!("{PROGRAM} ended immediately ({status}): {}", last.join("; "))));
            }
            // If another program were listening there, the server would have exited.
            if begun.elapsed() > Duration::from_millis(50)
                && TcpStream::connect_timeout(&self.listen, Duration::from_millis(200)).is_ok()
            {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                let _ = server.kill();
                return Err(Problem(format!("{PROGRAM} does not listen on {} within {PATIENCE:?}", self.listen)));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn configuration(&self, passwords: &[String]) -> String {
        let quoted = |path: &Path| format!("{:?}", path.display().to_string());
        let mut text = format!(
            "listen: \"{}\"\nmax_payload: {}\njetstream {{\n  store_dir: {}\n}}\n",
            self.listen,
            crate::message::LARGEST,
            quoted(&self.file("store")),
        );
        if let Some((certificate, key)) = &self.tls {
            text += &format!("tls {{\n  cert_file: {}\n  key_file: {}\n}}\n", quoted(certificate), quoted(key));
        }
        if let [controller, agent] = passwords {
            let list = |subjects: &[&str]| subjects.iter().map(|s| format!("\"{s}\"")).collect::<Vec<_>>().join(", ");
            text += &format!(
                "authorization {{\n  users = [\n    {{ user: controller, password: \"{controller}\" }}\n    {{ user: agent, \
                 password: \"{agent}\", permissions: {{\n      publish: [{}]\n      subscribe: [{}]\n    }} }}\n  ]\n}}\n",
                list(AGENT_PUBLISHES),
                list(AGENT_SUBSCRIBES),
            );
        }
        text
    }
}

/// What an agent may send: its announcement, its state, frames, reports, captures and replies. It cannot lease ports, command other
/// agents, or read the reports and captures of others, not even in the answers to a controller (`link::inbox`).
const AGENT_PUBLISHES: &[&str] = &[
    "_INBOX.controller.>",
    "drophammer.up.*",
    "drophammer.state.*",
    "drophammer.record.>",
    "$O.drophammer-captures.>",
    "$JS.API.STREAM.INFO.OBJ_drophammer-captures",
    "$JS.API.DIRECT.GET.OBJ_drophammer-captures.$O.drophammer-captures.M.>",
    "$KV.drophammer-agents.>",
    "$JS.API.STREAM.INFO.KV_drophammer-agents",
    "$JS.API.STREAM.MSG.GET.KV_drophammer-agents",
    "$JS.API.DIRECT.GET.KV_drophammer-agents.>",
    "$JS.API.STREAM.INFO.KV_drophammer-leases",
    "$JS.API.STREAM.MSG.GET.KV_drophammer-leases",
    "$JS.API.DIRECT.GET.KV_drophammer-leases.>",
];
/// Subjects that an agent may subscribe to.
const AGENT_SUBSCRIBES: &[&str] = &["_INBOX.agent.>", "drophammer.agent.*", "drophammer.beat.*", "drophammer.down.>"];

/// Ends the server in `folder`, and waits until it has ended. One that hangs is killed: what it has acknowledged is on its
/// disk. Returns false if none was running.
///
/// # Errors
/// It does not end.
pub fn down(folder: &Path) -> Result<bool, Problem> {
    let Some(pid) = running(folder) else { return Ok(false) };
    let mut signals = ["-TERM", "-KILL"].into_iter();
    let mut begun = None::<Instant>;
    while is_server(pid, folder) {
        if begun.is_none_or(|begun| begun.elapsed() > PATIENCE) {
            let signal = signals.next();
            let signal = signal.ok_or_else(|| Problem(format!("the server (process {pid}) cannot be killed")))?;
            let sent = Command::new("kill").args([signal, &pid.to_string()]).status();
            sent.map_err(|e| Problem::of("the server cannot be ended", e))?;
            begun = Some(Instant::now());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = fs::remove_file(folder.join("server.pid"));
    Ok(true)
}

/// Returns the process of the server in `folder`, if it runs.
pub fn running(folder: &Path) -> Option<u32> {
    let pid = fs::read_to_string(folder.join("server.pid")).ok()?.trim().parse().ok()?;
    is_server(pid, folder).then_some(pid)
}

/// True if this process is the server of the folder. The check is needed because process IDs are reused.
fn is_server(pid: u32, folder: &Path) -> bool {
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let configuration = folder.join("server.conf").display().to_string();
    command.split(|byte| *byte == 0).any(|word| word == configuration.as_bytes())
}

/// Returns a random word.
fn password() -> String {
    (0u8..4).map(|n| format!("{:016x}", RandomState::new().hash_one(n))).collect()
}

fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let _ = fs::remove_file(path);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

/// Parses `listen`: an address with or without a port.
///
/// # Errors
/// The text is not an address.
pub fn address(listen: &str) -> Result<SocketAddr, Problem> {
    let only = || listen.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 4222));
    let known = listen.parse::<SocketAddr>().or_else(|_| only());
    known.map_err(|_| Problem(format!("`{listen}` is not an address; write 127.0.0.1, or 192.0.2.1:4222")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_has_the_least_rights() {
        let tls = Some(("c.pem".into(), "k.pem".into()));
        let bed = Bed { folder: "/tmp/bed".into(), listen: address("192.0.2.1").unwrap(), tls };
        let text = bed.configuration(&["one".into(), "two".into()]);
        assert!(
            text.contains("user: controller, password: \"one\" }") && text.contains("cert_file: \"c.pem\""),
            "{text}"
        );
        let agent = text.split("user: agent").nth(1).unwrap();
        assert!(agent.contains("drophammer.record.>") && !agent.contains("$KV.drophammer-leases"), "{agent}");
        for user in ["controller", "agent"] {
            assert_eq!(agent.matches(&format!("\"{}.>\"", crate::link::inbox(user))).count(), 1, "{agent}");
        }
        // It tells where it stands, and hears of no other agent.
        assert_eq!(agent.matches("drophammer.state.").count(), 1, "{agent}");
        assert_eq!(bed.url(), "tls://192.0.2.1:4222");
        let open = Bed { tls: None, ..bed };
        assert!(open.up().unwrap_err().0.contains("give --cert and --key"));
        assert!(address("host").is_err());
    }
}
