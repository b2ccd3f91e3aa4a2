//! Moving this process into its own namespaces.

use crate::autogroup::Favoured;
use crate::cpu::{self, CpuPlan};
use crate::environment;
use crate::input_queue::InputQueue;
use crate::neighbours::Limits;
use crate::netns::{Netns, on_a_thread, own_namespace};
use crate::topology::{Loop, Topology, tester_interface};
use crate::{LabError, kinds, mounts, process, sweep};
use drophammer_model::environment::Environment;
use drophammer_model::registry::KindSpec;
use drophammer_model::suite::DEFAULT_INPUT_QUEUE;
use drophammer_model::suite::PortConfig;
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{getegid, geteuid};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Folders in which daemons leave files; the lab has its own, empty ones.
const HIDDEN: [&str; 2] = ["/run", "/var/tmp"];

/// Options for entering the lab.
#[derive(Clone, Debug)]
pub struct LabOptions {
    /// Existing folders that must stay visible even where they lie below `/run` or `/var/tmp`, which the lab covers: the
    /// folder of results. The current folder always stays.
    pub keep: Vec<PathBuf>,
    /// Queues of the links between tester and router, in each direction; 0 means one.
    pub queues: u32,
    /// Frames of each queue that may wait in front of a router while the ring of its link is full; 0 for the ring
    /// alone.
    pub input_queue: u32,
}

impl Default for LabOptions {
    /// The defaults of suites: selftest and tests measure under the same conditions as runs.
    fn default() -> LabOptions {
        LabOptions { keep: Vec::new(), queues: 1, input_queue: DEFAULT_INPUT_QUEUE }
    }
}

/// State shared by all parts of the lab.
#[derive(Debug)]
pub(crate) struct Shared {
    /// True if the process is root on the host, not in a user namespace of ours.
    pub(crate) root: bool,
    /// Network namespace of the host, in which the process was started.
    host: File,
    /// Mount namespace of the host, in which the process was started.
    host_mounts: File,
    /// Network namespace of the tester: the one of this process.
    pub(crate) tester: File,
    /// PID namespace of the DUTs' daemons.
    pub(crate) pids: File,
    /// Folder of the host with the lock that labs take while they look for new kernel threads.
    pub(crate) lock: Option<File>,
    pub(crate) cpus: CpuPlan,
    queues: u32,
    /// Ports of the tester that DUTs which are already up have; see [`Lab::begin_at_port`].
    first_port: AtomicUsize,
    pub(crate) input_queue: InputQueue,
    neighbours: Limits,
    pub(crate) mark: String,
    /// Folder for sockets and mount points of daemons, visible only in the lab and removed with it.
    pub(crate) state: PathBuf,
}

impl Shared {
    /// Processors for the tester's receive work: none if it stays on the router's. A processor that also has the packet
    /// loop is no place for it: while the loop has the processor, the ring of a link, 256 frames, overflows.
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

    /// Options of ip(8) for the queues of a link. They are given for a single queue as well: by default veth makes one
    /// queue for each processor and uses only the first. The kernel then treats the link as multiqueue, and its
    /// queueing discipline hands over up to nine frames at once. If the ring is full, all of them are put back; if it
    /// is full a second time, the first one moves to the end of the nine. Frames would arrive up to eight places late,
    /// and a router would be blamed for it.
    pub(crate) fn queues(&self) -> String {
        let count = self.queues;
        format!(" numtxqueues {count} numrxqueues {count}")
    }
}

/// The lab: this process, moved into its own namespaces.
///
/// The process stays in the host's PID namespace, so that it sees the kernel threads of the DUT's interfaces. Daemons
/// run in a PID namespace whose first process reads a pipe from us: however we end, the pipe closes, that process ends,
/// and the kernel kills all others in the namespace.
#[derive(Debug)]
pub struct Lab {
    shared: Arc<Shared>,
    holder: Child,
    /// Namespaces of the routers of a system that have not been started yet, by name.
    sites: BTreeMap<String, Topology>,
    /// Raised priority of this session; restored when the lab ends.
    _favoured: Option<Favoured>,
}

impl Lab {
    /// Enters the lab. Call it once, before the process has started any other thread.
    ///
    /// # Errors
    /// [`LabError::Forbidden`] with the responsible setting if the system does not allow namespaces;
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
        // The tester's ends have no addresses and send nothing by themselves.
        let quiet = [("net/ipv6/conf/default/disable_ipv6".to_owned(), "1")];
        let tester = Netns::tester(&lab.shared)?;
        tester.sysctl(if Path::new("/proc/sys/net/ipv6").exists() { &quiet } else { &[] })?;
        tester.ip(&["link set lo up".into()])?;
        Ok(lab)
    }

    /// DUTs that are brought up from now on face the tester's interfaces `t<first>`, `t<first + 1>` and so on, so several
    /// DUTs can be up at the same time.
    pub fn begin_at_port(&mut self, first: usize) {
        self.shared.first_port.store(first, Ordering::Relaxed);
    }

    /// Namespaces with links for the routers of these names, which then make none themselves.
    pub(crate) fn set_sites(&mut self, sites: BTreeMap<String, Topology>) {
        self.sites = sites;
    }

    /// The namespace that was made for the router of this name.
    pub(crate) fn take_site(&mut self, name: &str) -> Option<Topology> {
        self.sites.remove(name)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// True if the lab has the host's root rights; false in a user namespace.
    pub fn is_root(&self) -> bool {
        self.shared.root
    }

    /// The assignment of processors. The lab pins daemons and forwarding of the DUT; pin the tester's packet loop with
    /// [`Lab::pin_current_thread`].
    pub fn cpus(&self) -> &CpuPlan {
        &self.shared.cpus
    }

    /// A message with a remedy if the neighbour tables of the kernel are too small for the emulated routers on `ports` of `duts` DUTs:
    /// the sessions of the rest would never come up. `None` if all fit, or the limit is not known.
    pub fn too_many_neighbours(&self, ports: &[PortConfig], duts: usize) -> Option<String> {
        self.shared.neighbours.exceeded(ports, duts)
    }

    /// Refuses if the kernel of this machine supports no VLAN sub-interfaces, of one or two tags, for a router of this
    /// kind.
    pub(crate) fn refuse_without_vlans(&self, kind: &KindSpec) -> Result<(), LabError> {
        let probe = Netns::create(&self.shared, "vlan-probe")?;
        let lines = ["add a type veth peer name b", "add link a name c type vlan protocol 802.1ad id 1"];
        probe.ip(&lines.map(|l| format!("link {l}"))).map_err(|e| LabError::Unusable {
            what: format!(
                "a router of kind `{}` has no VLAN sub-interfaces here, for this kernel makes none: {e}",
                kind.name
            ),
            remedy: format!(
                "load the module (`modprobe 8021q`), or take a kind that brings its own: {}",
                kinds::with_own_vlans()
            ),
        })
    }

    /// Refuses if the kernel of this machine supports no GRE tunnels or no policy routing for a router of this kind.
    pub(crate) fn refuse_without_tunnels(&self, kind: &KindSpec) -> Result<(), LabError> {
        let probe = Netns::create(&self.shared, "tunnel-probe")?;
        let lines = [
            "link add name gre1 type gre local 192.0.2.1 remote 192.0.2.2 ttl 64",
            "rule add pref 1001 iif gre1 lookup 1001",
        ];
        probe.ip(&lines.map(str::to_owned)).map_err(|e| LabError::Unusable {
            what: format!(
                "routers of kind `{}` have no tunnels and policies here, for this kernel makes none: {e}",
                kind.name
            ),
            remedy: format!(
                "load the module (`modprobe ip_gre`), or take a kind that brings its own: {}",
                kinds::with_own_tunnels()
            ),
        })
    }

    /// Pins the calling thread to one processor.
    ///
    /// # Errors
    /// [`LabError::Io`] if the processor may not be used.
    pub fn pin_current_thread(&self, cpu: usize) -> Result<(), LabError> {
        cpu::pin(0, cpu)
    }

    /// Conditions of a run whose tester has `threads` threads, as found on this machine now.
    pub fn environment(&self, threads: usize) -> Environment {
        environment::read(self.shared.root, &self.shared.cpus, threads)
    }

    /// Runs `work` on a thread in the host's namespaces (network and mounts), for interfaces of the host: sockets that
    /// it opens stay there.
    ///
    /// # Errors
    /// [`LabError::Forbidden`] for ordinary users, whom the kernel does not let back.
    pub fn in_host_netns<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        self.shared.on_host(work)
    }

    /// A further network namespace, empty, with its own view of /sys as long as it lives; `name` is for messages and
    /// must be unique.
    ///
    /// # Errors
    /// [`LabError::Io`], [`LabError::Forbidden`].
    pub fn namespace(&self, name: &str) -> Result<Netns, LabError> {
        Netns::create(&self.shared, name)
    }

    /// The tester's own namespace.
    ///
    /// # Errors
    /// [`LabError::Io`] if no descriptor is left.
    pub fn tester(&self) -> Result<Netns, LabError> {
        Netns::tester(&self.shared)
    }

    /// Joins the tester's ports to each other without a DUT, to find the tester's own ceiling; see [`Loop`].
    ///
    /// # Errors
    /// [`LabError::Unusable`] for fewer than two ports; errors of making links.
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

impl Shared {
    /// A fresh folder for the sockets of a DUT's daemons: a socket left by an earlier daemon would look like readiness.
    pub(crate) fn fresh_state(&self, dut: &str) -> Result<PathBuf, LabError> {
        let folder = self.state.join(format!("dut-{dut}"));
        match fs::remove_dir_all(&folder) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(LabError::file("empty", &folder)(e)),
            _ => fs::create_dir_all(&folder).map_err(LabError::file("create", &folder)),
        }?;
        Ok(folder)
    }

    /// A handle of the host's network namespace, for threads of root.
    pub(crate) fn host_netns(&self) -> Result<OwnedFd, LabError> {
        self.host.as_fd().try_clone_to_owned().map_err(LabError::io("cannot duplicate a descriptor"))
    }

    /// See [`Lab::in_host_netns`].
    pub(crate) fn on_host<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        if !self.root {
            return Err(LabError::Forbidden {
                what: "only root can use the interfaces of this machine in a run".into(),
                remedy: "run as root (routers on real interfaces need it), or use a kind that runs in a namespace"
                    .into(),
            });
        }
        let here = std::env::current_dir().ok();
        let before = || {
            // A thread must have its own working folder before it may change the mount namespace.
            setns(&self.host, CloneFlags::CLONE_NEWNET)
                .and_then(|()| unshare(CloneFlags::CLONE_FS))
                .and_then(|()| setns(&self.host_mounts, CloneFlags::CLONE_NEWNS))
                .map_err(LabError::io("cannot return to the host's namespaces"))?;
            here.as_deref().map_or(Ok(()), |h| std::env::set_current_dir(h).map_err(LabError::file("return to", h)))
        };
        on_a_thread(before, work)
    }
}

/// Folders that stay visible, absolute, and the current folder if it must be entered again.
fn kept(options: &LabOptions) -> Result<(Vec<PathBuf>, Option<PathBuf>), LabError> {
    let mut keep = Vec::new();
    for folder in &options.keep {
        keep.push(folder.canonicalize().map_err(LabError::file("find", folder))?);
    }
    let here = std::env::current_dir().ok().filter(|h| HIDDEN.iter().any(|hidden| h.starts_with(hidden)));
    keep.extend(here.clone());
    Ok((keep, here))
}

/// Leaves the host's mount and network namespaces, through a user namespace if we lack the right. True if the rights
/// are the host's.
fn leave_host() -> Result<bool, LabError> {
    let own = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET;
    if geteuid().is_root() && unshare(own).is_ok() {
        return Ok(true);
    }
    let (uid, gid) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER).map_err(|e| user_namespace_refused(e, threads()))?;
    let write = |file: &str, text: String| {
        let path = Path::new("/proc/self").join(file);
        fs::write(&path, text).map_err(|e| LabError::Forbidden {
            what: format!("cannot write {}: {e}", path.display()),
            remedy: "run as root, or allow user namespaces to ordinary users".into(),
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

/// Why the kernel refuses a user namespace, with the responsible setting.
fn user_namespace_refused(error: nix::Error, threads: usize) -> LabError {
    if threads > 1 {
        return LabError::Unusable {
            what: format!("the lab was entered with {threads} threads running; the kernel wants one"),
            remedy: "this is a fault of the program: enter the lab before anything else".into(),
        };
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
    LabError::Forbidden { what: format!("this system forbids user namespaces to this user: {error}"), remedy }
}

/// Makes the PID namespace of the daemons and its first process.
fn start_holder(mark: &str, favoured: Option<&Favoured>) -> Result<(Child, File), LabError> {
    let shell = process::find("sh", "dash")?;
    // By its path: a shell whose PATH lacks it would end at once, and the namespace would take no process any more.
    let cat = process::find("cat", "coreutils")?.display().to_string();
    // Dropping the lab kills it. If this process is killed, it reads the end of the pipe and does what the drop would have done.
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
