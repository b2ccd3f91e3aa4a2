//! Moves this process into its own namespaces.

use crate::autogroup::Favoured;
use crate::cpu::{self, CpuPlan};
use crate::environment;
use crate::input_queue::InputQueue;
use crate::links::{Loop, VethLinks, tester_interface};
use crate::neighbours::Limits;
use crate::netns::{Netns, kernel_has_ipv6, on_a_thread, own_namespace};
use crate::{LabError, kinds, mounts, process, sweep};
use drophammer_model::environment::Environment;
use drophammer_model::registry::KindSpec;
use drophammer_model::suite::{DEFAULT_INPUT_QUEUE, PortConfig};
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{getegid, geteuid};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Folders where daemons leave files; the lab covers them with empty ones.
const HIDDEN: [&str; 2] = ["/run", "/var/tmp"];

/// Options for entering the lab.
#[derive(Clone, Debug)]
pub struct LabOptions {
    /// Existing folders that must stay visible even below `/run` or `/var/tmp`, which the lab covers: the folder of
    /// results. The current folder always stays visible.
    pub keep: Vec<PathBuf>,
    /// Queues per direction of the links between tester and router; 0 means one.
    pub queues: u32,
    /// Frames per queue that can wait in front of a router while the ring of its link is full; 0 means only the ring.
    pub input_queue: u32,
}

impl Default for LabOptions {
    /// The defaults of suites, so that selftest and tests measure under the same conditions as runs.
    fn default() -> LabOptions {
        LabOptions { keep: Vec::new(), queues: 1, input_queue: DEFAULT_INPUT_QUEUE }
    }
}

/// State shared by all parts of the lab.
#[derive(Debug)]
pub(crate) struct Shared {
    /// True if the process is root on the host, not in our user namespace.
    pub(crate) root: bool,
    /// Network namespace of the host, where the process was started.
    host: File,
    /// Mount namespace of the host, where the process was started.
    host_mounts: File,
    /// Network namespace of the tester: the namespace of this process.
    pub(crate) tester: File,
    /// PID namespace of the DUTs' daemons.
    pub(crate) pids: File,
    /// Folder of the host that labs lock while they look for new kernel threads.
    pub(crate) lock: Option<File>,
    pub(crate) cpus: CpuPlan,
    queues: u32,
    /// Number of the tester's ports taken by DUTs that are already up; see [`Lab::begin_at_port`].
    first_port: AtomicUsize,
    pub(crate) input_queue: InputQueue,
    neighbours: Limits,
    pub(crate) mark: String,
    /// Folder for sockets and mount points of daemons, visible only in the lab and removed with it.
    pub(crate) state: PathBuf,
}

impl Shared {
    /// Processors for the tester's receive work; empty if that work stays on the router's processor. The packet loop's
    /// processor is not suitable: while the loop runs, the 256-frame ring of a link overflows.
    pub(crate) fn receivers(&self) -> &[usize] {
        if self.root { self.cpus.testers.get(1..).unwrap_or_default() } else { &[] }
    }

    /// Puts the input queue of the DUT in front of the link of the tester's `interface`.
    pub(crate) fn add_input_queue(&self, tester: &Netns, interface: &str) -> Result<(), LabError> {
        self.input_queue.add(tester, interface, self.queues)
    }

    /// Name of the tester's interface that faces port `i` of the DUT that is being brought up.
    pub(crate) fn tester_interface(&self, i: usize) -> String {
        tester_interface(self.first_port.load(Ordering::Relaxed) + i)
    }

    /// Options of ip(8) for the queues of a link, even for a single queue: by default veth makes one queue for each
    /// processor and uses only the first. The kernel then treats the link as multiqueue, and its queueing discipline
    /// hands over up to nine frames together. If the ring is full, it puts all of them back; if it is full a second
    /// time, the first one moves to the end of the nine. Frames would arrive up to eight places late, and the router
    /// would get the blame.
    pub(crate) fn queues(&self) -> String {
        format!(" numtxqueues {0} numrxqueues {0}", self.queues)
    }

    /// Makes an empty folder for the sockets of a DUT's daemons: a socket left by an earlier daemon would make the DUT
    /// look ready.
    pub(crate) fn fresh_state(&self, dut: &str) -> Result<PathBuf, LabError> {
        let folder = self.state.join(format!("dut-{dut}"));
        match fs::remove_dir_all(&folder) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(LabError::file("empty", &folder)(e)),
            _ => fs::create_dir_all(&folder).map_err(LabError::file("create", &folder)),
        }?;
        Ok(folder)
    }

    /// A handle to the host's network namespace, for threads with root rights.
    pub(crate) fn host_netns(&self) -> Result<OwnedFd, LabError> {
        self.host.as_fd().try_clone_to_owned().map_err(LabError::io("cannot duplicate a descriptor"))
    }

    /// See [`Lab::in_host_netns`].
    pub(crate) fn on_host<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        if !self.root {
            return Err(LabError::forbidden(
                "only root can use the interfaces of this machine in a run",
                "run as root (routers on real interfaces need it), or use a kind that runs in a namespace",
            ));
        }
        let here = std::env::current_dir().ok();
        let before = || {
            // The kernel lets a thread change its mount namespace only if it has its own working folder.
            setns(&self.host, CloneFlags::CLONE_NEWNET)
                .and_then(|()| unshare(CloneFlags::CLONE_FS))
                .and_then(|()| setns(&self.host_mounts, CloneFlags::CLONE_NEWNS))
                .map_err(LabError::io("cannot return to the host's namespaces"))?;
            here.as_deref().map_or(Ok(()), |h| std::env::set_current_dir(h).map_err(LabError::file("return to", h)))
        };
        on_a_thread(before, work)
    }
}

/// The lab: this process, moved into its own namespaces.
///
/// The process stays in the host's PID namespace, so that it sees the kernel threads of the DUT's interfaces. Daemons
/// run in a PID namespace whose first process reads a pipe from us: however we end, the pipe closes, that process ends,
/// and the kernel kills all others in the namespace.
pub struct Lab {
    shared: Arc<Shared>,
    holder: Child,
    /// Namespaces of the routers of a system that have not started yet, by router name.
    sites: BTreeMap<String, VethLinks>,
    /// Raised priority of this session; restored when the lab ends.
    _favoured: Option<Favoured>,
}

impl Lab {
    /// Enters the lab. Call it once, before the process starts any other thread.
    ///
    /// # Errors
    /// [`LabError::Forbidden`] with the responsible setting if the system forbids namespaces;
    /// [`LabError::MissingProgram`].
    pub fn enter(options: &LabOptions) -> Result<Lab, LabError> {
        process::find("ip", "iproute2")?;
        process::find("ethtool", "ethtool")?;
        let cpus = CpuPlan::make()?;
        let open = |path: &str| File::open(path).map_err(LabError::file("open", Path::new(path)));
        let host = own_namespace()?;
        let host_mounts = open("/proc/self/ns/mnt")?;
        let neighbours = Limits::read();
        let lock = open("/run/lock").or_else(|_| open("/tmp")).ok();
        let mark = sweep::mark();
        let (keep, here) = kept(options)?;
        let queues = options.queues.max(1);
        let input_queue = InputQueue::new(options.input_queue);

        process::allow_open_files();
        let root = leave_host()?;
        mounts::make_private()?;
        mounts::sysfs(Path::new("/sys"))?;
        mounts::hide(&HIDDEN, &keep)?;
        if let Some(here) = here {
            std::env::set_current_dir(&here).map_err(LabError::file("return to", &here))?;
        }
        let state = PathBuf::from("/run/drophammer");
        fs::create_dir_all(&state).map_err(LabError::file("create", &state))?;

        let favoured = Favoured::new();
        let (holder, pids) = start_holder(&mark, favoured.as_ref())?;
        let tester = own_namespace()?;
        let shared = Arc::new(Shared {
            root,
            host,
            host_mounts,
            tester,
            pids,
            lock,
            cpus,
            queues,
            first_port: AtomicUsize::new(0),
            input_queue,
            neighbours,
            mark,
            state,
        });
        let lab = Lab { shared, holder, sites: BTreeMap::new(), _favoured: favoured };
        // The tester's ends have no addresses and send nothing on their own.
        let quiet = [("net/ipv6/conf/default/disable_ipv6".to_owned(), "1")];
        let tester = Netns::tester(&lab.shared)?;
        tester.sysctl(if kernel_has_ipv6() { &quiet } else { &[] })?;
        tester.ip(&["link set lo up".into()])?;
        Ok(lab)
    }

    /// Connects the next DUTs to the tester's interfaces `t<first>`, `t<first + 1>` and so on, so that several DUTs can
    /// be up at the same time.
    pub fn begin_at_port(&mut self, first: usize) {
        self.shared.first_port.store(first, Ordering::Relaxed);
    }

    /// Sets the namespaces and links that the routers with these names use instead of making their own.
    pub(crate) fn set_sites(&mut self, sites: BTreeMap<String, VethLinks>) {
        self.sites = sites;
    }

    /// Takes the links that were made for the router with this name.
    pub(crate) fn take_site(&mut self, name: &str) -> Option<VethLinks> {
        self.sites.remove(name)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// True if the lab has root rights on the host; false in a user namespace.
    pub fn is_root(&self) -> bool {
        self.shared.root
    }

    /// The assignment of processors. The lab pins daemons and forwarding of the DUT; pin the tester's packet loop with
    /// [`Lab::pin_current_thread`].
    pub fn cpus(&self) -> &CpuPlan {
        &self.shared.cpus
    }

    /// A message with a remedy if the kernel's neighbour tables are too small for the emulated routers on `ports` of
    /// `duts` DUTs: some sessions would never come up. `None` if all fit, or the limit is not known.
    pub fn too_many_neighbours(&self, ports: &[PortConfig], duts: usize) -> Option<String> {
        self.shared.neighbours.exceeded(ports, duts)
    }

    /// Refuses a router of this kind if this machine's kernel cannot make VLAN sub-interfaces with one or two tags.
    pub(crate) fn refuse_without_vlans(&self, kind: &KindSpec) -> Result<(), LabError> {
        let lines = ["link add a type veth peer name b", "link add a link a name c type vlan protocol 802.1ad id 1"];
        self.refuse_unless_made(&lines, kind, "VLAN sub-interfaces", "8021q", kinds::with_own_vlans)
    }

    /// Refuses a router of this kind if this machine's kernel cannot make GRE tunnels or policy routing.
    pub(crate) fn refuse_without_tunnels(&self, kind: &KindSpec) -> Result<(), LabError> {
        let lines = [
            "link add name gre1 type gre local 192.0.2.1 remote 192.0.2.2 ttl 64",
            "rule add pref 1001 iif gre1 lookup 1001",
        ];
        self.refuse_unless_made(&lines, kind, "tunnels and policies", "ip_gre", kinds::with_own_tunnels)
    }

    /// Runs lines of ip(8) in a temporary namespace, and refuses the router if one of them fails.
    fn refuse_unless_made(
        &self,
        lines: &[&str],
        kind: &KindSpec,
        what: &str,
        module: &str,
        others: fn() -> String,
    ) -> Result<(), LabError> {
        let probe = Netns::create(&self.shared, &format!("{module}-probe"))?;
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        probe.ip(&lines).map_err(|e| {
            LabError::unusable(
                format!("kind `{}` has no {what} here, because this kernel does not support them: {e}", kind.name),
                format!("load the module (`modprobe {module}`), or use a kind that has its own: {}", others()),
            )
        })
    }

    /// Pins the calling thread to one processor.
    pub fn pin_current_thread(&self, cpu: usize) -> Result<(), LabError> {
        cpu::pin(0, cpu)
    }

    /// The current conditions on this machine for a run whose tester has `threads` threads.
    pub fn environment(&self, threads: usize) -> Environment {
        environment::read(self.shared.root, &self.shared.cpus, threads)
    }

    /// Runs `work` on a thread in the host's namespaces (network and mounts), for interfaces of the host: sockets that
    /// it opens stay there.
    ///
    /// # Errors
    /// [`LabError::Forbidden`] for ordinary users: the kernel does not let them back into the host's namespaces.
    pub fn in_host_netns<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        self.shared.on_host(work)
    }

    /// Makes an empty network namespace with its own view of /sys. `name` must be unique.
    pub fn namespace(&self, name: &str) -> Result<Netns, LabError> {
        Netns::create(&self.shared, name)
    }

    /// The tester's own namespace.
    pub fn tester(&self) -> Result<Netns, LabError> {
        Netns::tester(&self.shared)
    }

    /// Connects the tester's ports to each other without a DUT, to find the tester's own ceiling; see [`Loop`]. It
    /// needs at least two ports.
    pub fn loop_without_dut(&self, ports: &[PortConfig]) -> Result<Loop, LabError> {
        Loop::make(self, ports)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // SIGKILL from outside ends even the first process of a PID namespace, and with it all others.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Returns the absolute paths of the folders that stay visible, and the current folder if we need to return to it.
fn kept(options: &LabOptions) -> Result<(Vec<PathBuf>, Option<PathBuf>), LabError> {
    let mut keep = Vec::new();
    for folder in &options.keep {
        keep.push(folder.canonicalize().map_err(LabError::file("find", folder))?);
    }
    let here = std::env::current_dir().ok().filter(|h| HIDDEN.iter().any(|hidden| h.starts_with(hidden)));
    keep.extend(here.clone());
    Ok((keep, here))
}

/// Leaves the host's mount and network namespaces, through a user namespace if we lack the rights. Returns true if we
/// keep root rights on the host.
fn leave_host() -> Result<bool, LabError> {
    let own = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET;
    if geteuid().is_root() && unshare(own).is_ok() {
        return Ok(true);
    }
    let (uid, gid) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER).map_err(|e| user_namespace_refused(e, threads()))?;
    let write = |file: &str, text: String| {
        let path = Path::new("/proc/self").join(file);
        fs::write(&path, text).map_err(|e| {
            LabError::forbidden(
                format!("cannot write {}: {e}", path.display()),
                "run as root, or allow user namespaces for ordinary users",
            )
        })
    };
    write("setgroups", "deny".into())?;
    write("uid_map", format!("0 {uid} 1"))?;
    write("gid_map", format!("0 {gid} 1"))?;
    unshare(own).map_err(|e| user_namespace_refused(e, 1))?;
    Ok(false)
}

/// Number of threads of this process.
fn threads() -> usize {
    fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

/// The error for a user namespace that the kernel refuses. It names the responsible setting.
fn user_namespace_refused(error: nix::Error, threads: usize) -> LabError {
    if threads > 1 {
        return LabError::unusable(
            format!("the lab was entered with {threads} threads running; the kernel allows one"),
            "this is a bug in Drophammer: enter the lab before anything else",
        );
    }
    let is = |file: &str, value: &str| fs::read_to_string(file).is_ok_and(|t| t.trim() == value);
    let switches = [
        ("/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
        ("/proc/sys/user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=10000"),
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ];
    let remedy = match switches.iter().find(|(file, forbids, _)| is(file, forbids)) {
        Some((_, _, command)) => format!("run as root, or allow them: {command}"),
        None => {
            "run as root; in a container, with --privileged or --cap-add=SYS_ADMIN and a seccomp profile that allows \
                 unshare"
                .into()
        }
    };
    LabError::forbidden(format!("this system forbids user namespaces to this user: {error}"), remedy)
}

/// Makes the PID namespace of the daemons and its first process.
fn start_holder(mark: &str, favoured: Option<&Favoured>) -> Result<(Child, File), LabError> {
    let shell = process::find("sh", "dash")?;
    // Use the full path: if the shell did not find cat in PATH, it would end immediately, and the namespace would
    // accept no more processes.
    let cat = process::find("cat", "coreutils")?.display().to_string();
    // Dropping the lab kills it. If this process is killed, the shell sees the end of the pipe and does what the drop
    // would have done.
    let script = [cat].into_iter().chain(favoured.map(Favoured::undo)).collect::<Vec<_>>().join("; ");
    let start = || -> Result<Child, LabError> {
        unshare(CloneFlags::CLONE_NEWPID).map_err(LabError::io("cannot create a PID namespace"))?;
        let mut command = process::command(&shell, mark);
        command.args(["-c", &script]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map_err(LabError::io("cannot start the first process of the PID namespace"))
    };
    let mut holder = on_a_thread(|| Ok(()), start)??;
    let path = PathBuf::from(format!("/proc/{}/ns/pid", holder.id()));
    match File::open(&path) {
        Ok(pids) => Ok((holder, pids)),
        Err(e) => {
            let _ = holder.kill();
            let _ = holder.wait();
            Err(LabError::file("open", &path)(e))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_threads_before_settings() {
        let text = user_namespace_refused(nix::Error::EINVAL, 3).to_string();
        assert!(text.contains("3 threads"), "{text}");
        let text = user_namespace_refused(nix::Error::EPERM, 1).to_string();
        assert!(text.contains("help: run as root"), "{text}");
    }
}
