//! Questions that an operator sends to a router, to see whether it still answers. They leave from a separate namespace
//! over a link without other traffic, or from the host to the address of the user's own router.

use crate::configuration::text_of;
use crate::confine::steer;
use crate::netns::kernel_has_ipv6;
use crate::snmp::Agent;
use crate::{Lab, LabError, Netns, cpu, probe, snmp, ssh};
use drophammer_model::management::Question;
use drophammer_model::param::Param;
use drophammer_model::suite::DutConfig;
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use nix::unistd::getegid;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Parameter of the kinds in namespaces.
pub(crate) const MANAGEMENT: Param<bool> = Param::fixed(
    "management",
    "false",
    "also make a management link; tests under load also check that the router answers over it",
);

/// Name of the interface, at both ends.
const INTERFACE: &str = "mgmt0";
/// Its addresses are link-local (RFC 3927); suites must not use link-local addresses on their ports.
pub(crate) const ROUTER: Ipv4Addr = Ipv4Addr::new(169, 254, 73, 1);
pub(crate) const OPERATOR: Ipv4Addr = Ipv4Addr::new(169, 254, 73, 2);
const LENGTH: u8 = 30;

/// How long a question waits for its answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// The time of each question, and the time until its answer.
type Asked = Vec<(Instant, Option<Duration>)>;

/// The management link of a router in a namespace.
pub(crate) struct ManagementLink {
    operator: Netns,
    /// Description for the record: the processor that does the router's receive work for this link.
    pub(crate) text: String,
}

impl ManagementLink {
    /// Connects the namespace of the router `name` to a namespace for its operator.
    pub(crate) fn make(lab: &Lab, router: &Netns, name: &str) -> Result<ManagementLink, LabError> {
        let shared = lab.shared();
        let operator = Netns::create(shared, &format!("management-{name}"))?;
        let quiet = [("net/ipv6/conf/default/disable_ipv6".to_owned(), "1")];
        if kernel_has_ipv6() {
            operator.sysctl(&quiet)?;
        }
        let group = format!("{0} {0}", getegid());
        operator.sysctl(&[("net/ipv4/ping_group_range".to_owned(), &group)])?;
        operator.ip(&[format!("link add {INTERFACE} type veth peer name {INTERFACE} netns {}", router.path())])?;
        if kernel_has_ipv6() {
            // Neighbor Discovery would change the counters of the router.
            router.sysctl(&[(format!("net/ipv6/conf/{INTERFACE}/disable_ipv6"), "1")])?;
        }
        let up =
            |address| [format!("address add {address}/{LENGTH} dev {INTERFACE}"), format!("link set {INTERFACE} up")];
        router.ip(&up(ROUTER))?;
        operator.ip(&up(OPERATOR))?;
        // Without this, the kernel would answer on the processor of the asking thread, even if the router's processor
        // is busy.
        let dut = shared.cpus.dut;
        let text = match steer(router, INTERFACE, dut) {
            Ok(()) => format!("; management link {INTERFACE}, whose receive work is steered (RPS) to processor {dut}"),
            Err(e) => format!("; management link {INTERFACE}, whose receive work runs on the asking processor ({e})"),
        };
        Ok(ManagementLink { operator, text })
    }

    /// The namespace of the operator, at the other end of the link.
    pub(crate) fn operator(&self) -> &Netns {
        &self.operator
    }

    /// Number of IP packets that the operator has sent over the link. The interface's own counters would include ARP.
    pub(crate) fn questions(&self) -> Result<u64, LabError> {
        let sent = self.operator.run(probe::ip)??.remove("ip.OutRequests");
        let missing =
            || LabError::io("cannot count the packets of the management link")(std::io::Error::other("no row Ip"));
        sent.ok_or_else(missing)
    }
}

/// The management address of the user's own router.
pub(crate) struct ManagementPort {
    pub(crate) address: IpAddr,
    /// Community of its SNMP agent, if the tester queries the agent.
    pub(crate) community: Option<String>,
}

impl ManagementPort {
    /// Reads the management address from the suite.
    pub(crate) fn of(dut: &DutConfig) -> Result<Option<ManagementPort>, LabError> {
        let (address, file) = (dut.params.text("management"), dut.params.text("snmp_community_file"));
        let unusable = |what: String, remedy: &str| LabError::unusable(what, remedy);
        let Some(address) = address else {
            return match file {
                None => Ok(None),
                Some(_) => Err(unusable(
                    format!("`{}` has `snmp_community_file` but no address to ask", dut.name),
                    "give the address of its agent: `management: 192.0.2.9`",
                )),
            };
        };
        let address = address.parse().map_err(|_| {
            unusable(
                format!("`management: {address}` of `{}` is not an IP address", dut.name),
                "write the address of the router's management port, for instance 192.0.2.9",
            )
        })?;
        let community = file.map(|file| community(&file)).transpose()?;
        Ok(Some(ManagementPort { address, community }))
    }
}

/// The community: the first line of the user's file.
fn community(file: &str) -> Result<String, LabError> {
    let path = Path::new(file);
    let text = text_of(path).map_err(LabError::file("read", path))?;
    let line = text.lines().next().unwrap_or_default().trim();
    match line.len() {
        1..=255 => Ok(line.to_owned()),
        length => Err(LabError::unusable(
            format!("the community in {file} has {length} bytes"),
            "write it in the first line of the file, with 1 to 255 bytes",
        )),
    }
}

/// The namespace and processor of an operator.
pub(crate) struct Operator {
    pub(crate) netns: OwnedFd,
    pub(crate) cpu: usize,
    /// How the questions reach the router, such as `management link`.
    pub(crate) over: String,
}

impl Operator {
    /// An operator at the other end of a management link.
    pub(crate) fn link(link: &ManagementLink, cpu: usize) -> Result<Operator, LabError> {
        let netns = duplicate(&link.operator)?;
        Ok(Operator { netns, cpu, over: format!("management link {INTERFACE}") })
    }

    /// Starts sending `question` to the router at `address` every `interval`, one at a time. The community is for SNMP.
    pub(crate) fn ask(
        &self,
        question: Question,
        address: IpAddr,
        community: &str,
        interval: Duration,
    ) -> Result<Asking, LabError> {
        let netns = self.netns.try_clone().map_err(LabError::io("cannot duplicate a descriptor"))?;
        let (over, community, cpu) = (Arc::new(AtomicBool::new(false)), community.to_owned(), self.cpu);
        let flag = Arc::clone(&over);
        let work = move || -> Asked {
            if setns(&netns, CloneFlags::CLONE_NEWNET).is_err() || cpu::pin(0, cpu).is_err() {
                return Vec::new();
            }
            match question {
                Question::Ping => {
                    let mut ping = Ping { to: address, socket: None, sequence: 0 };
                    ask_until(&flag, interval, || ping.answered())
                }
                Question::Ssh => ask_until(&flag, interval, || ssh::greets(address).is_ok()),
                Question::Snmp => {
                    let mut agent = snmp::UpTime::new(address, &community);
                    ask_until(&flag, interval, || agent.answered())
                }
            }
        };
        let thread = std::thread::Builder::new().name("operator".into()).spawn(work);
        let thread = Some(thread.map_err(LabError::io("cannot start a thread"))?);
        Ok(Asking { question, over: self.over.clone(), ended: over, thread })
    }
}

/// A handle to a namespace. It stays valid after the namespace value is dropped.
pub(crate) fn duplicate(netns: &Netns) -> Result<OwnedFd, LabError> {
    netns.as_fd().try_clone_to_owned().map_err(LabError::io("cannot duplicate a descriptor"))
}

/// Sends the `questions` that do not need the ports of a router in a namespace: over its management link, or, for SNMP
/// without such a link, over the loopback of its namespace.
pub(crate) fn ask(
    link: Option<&Operator>,
    agent: Option<&Agent>,
    ssh: bool,
    questions: &[Question],
    interval: Duration,
) -> Result<Vec<Asking>, LabError> {
    let mut all = Vec::new();
    for question in questions {
        match (question, link) {
            (Question::Snmp, None) => all.extend(agent.map(|agent| agent.ask(interval)).transpose()?),
            (_, None) => {}
            (Question::Snmp, Some(_)) if agent.is_none() => {}
            (Question::Ssh, Some(_)) if !ssh => {}
            (question, Some(link)) => all.push(link.ask(*question, ROUTER.into(), snmp::COMMUNITY, interval)?),
        }
    }
    Ok(all)
}

/// Asks repeatedly until `over` is set, but at least once.
fn ask_until(over: &AtomicBool, interval: Duration, mut answered: impl FnMut() -> bool) -> Asked {
    let (mut asked, mut due) = (Vec::new(), Instant::now());
    loop {
        let now = Instant::now();
        if now >= due {
            due = now + interval;
            let answered = answered();
            asked.push((now, answered.then(|| now.elapsed())));
        }
        if over.load(Ordering::Relaxed) {
            return asked;
        }
        std::thread::park_timeout(due.saturating_duration_since(Instant::now()));
    }
}

/// ICMP echo requests (RFC 792, RFC 4443).
struct Ping {
    to: IpAddr,
    socket: Option<PingSocket>,
    sequence: u16,
}

impl Ping {
    /// Asks once; returns true if the answer arrives in time.
    fn answered(&mut self) -> bool {
        self.sequence = self.sequence.wrapping_add(1);
        let socket = match self.socket.take() {
            Some(socket) => Ok(socket),
            None => PingSocket::open(self.to),
        };
        let asked = socket.and_then(|socket| Ok((socket.ask(self.sequence)?, socket)));
        // Open a failed socket again next time: the address may become reachable.
        let (answered, socket) = asked.map_or((false, None), |(answered, socket)| (answered, Some(socket)));
        self.socket = socket;
        answered
    }
}

/// A socket for ICMP echo.
struct PingSocket {
    socket: UdpSocket,
    ipv4: bool,
    /// True for a raw socket, which sends and receives whole ICMP packets (IPv4 packets arrive with their IP header);
    /// otherwise the kernel handles checksum and identifier.
    raw: bool,
}

impl PingSocket {
    /// Opens an unprivileged socket if the kernel allows it (`ping_group_range`), a raw one otherwise.
    fn open(to: IpAddr) -> std::io::Result<PingSocket> {
        let (family, protocol) = match to {
            IpAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp),
            IpAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6),
        };
        let make = |kind| socket(family, kind, SockFlag::SOCK_CLOEXEC, protocol);
        let (made, raw) = match make(SockType::Datagram) {
            Ok(made) => (made, false),
            Err(_) => (make(SockType::Raw)?, true),
        };
        let socket = UdpSocket::from(made);
        socket.connect(SocketAddr::new(to, 0))?;
        Ok(PingSocket { socket, ipv4: to.is_ipv4(), raw })
    }

    /// Asks once, and waits for the answer.
    fn ask(&self, sequence: u16) -> std::io::Result<bool> {
        let deadline = Instant::now() + PATIENCE;
        let (request, reply) = if self.ipv4 { (8, 0) } else { (128, 129) };
        let ([high, low], [id_high, id_low]) = (sequence.to_be_bytes(), (std::process::id() as u16).to_be_bytes());
        let mut packet = [request, 0, 0, 0, id_high, id_low, high, low, b'p', b'i', b'n', b'g'];
        if self.raw && self.ipv4 {
            [packet[2], packet[3]] = checksum(&packet).to_be_bytes();
        }
        self.socket.send(&packet)?;
        let mut buffer = [0; 128];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            self.socket.set_read_timeout(Some(left))?;
            let length = match self.socket.recv(&mut buffer) {
                Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => continue,
                other => other?,
            };
            let skipped = if self.raw && self.ipv4 { usize::from(buffer[0] & 15) * 4 } else { 0 };
            let Some([kind, _, _, _, id @ .., answered_high, answered_low]) =
                buffer[..length].get(skipped..).and_then(|packet| packet.first_chunk::<8>())
            else {
                continue;
            };
            // Neither a late answer nor an answer to another program must count for this question.
            let own = !self.raw || *id == [id_high, id_low];
            if *kind == reply && own && [*answered_high, *answered_low] == [high, low] {
                return Ok(true);
            }
        }
    }
}

/// The Internet checksum of a packet of even length (RFC 1071).
fn checksum(packet: &[u8]) -> u16 {
    let words = packet.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum = words.sum::<u32>();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

/// The reason why this thread cannot ping from its namespace, if any.
pub(crate) fn cannot_ping(to: IpAddr) -> Option<std::io::Error> {
    PingSocket::open(to).err()
}

/// Questions of one kind, which are sent until this value is dropped.
pub struct Asking {
    /// Kind of the questions.
    pub question: Question,
    /// How the questions reach the router, such as `management link mgmt0`.
    pub over: String,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<Asked>>,
}

impl Asking {
    /// Stops asking. Returns the time of each question, and the time until its answer if it arrived within a second.
    pub fn end(mut self) -> Vec<(Instant, Option<Duration>)> {
        self.stop()
    }

    fn stop(&mut self) -> Asked {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.take().map_or_else(Vec::new, |thread| {
            thread.thread().unpark();
            thread.join().unwrap_or_default()
        })
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_rfc_1071() {
        // The example of RFC 1071 section 3, and a packet that includes its checksum.
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
        let mut packet = [8, 0, 0, 0, 1, 2, 3, 4, b'p', b'i', b'n', b'g'];
        [packet[2], packet[3]] = checksum(&packet).to_be_bytes();
        assert_eq!(checksum(&packet), 0);
    }
}
