//! Questions to SNMP agents, and the SNMP agent in the namespace of a router (Debian's snmpd). We query it over the
//! management link of the router if there is one, otherwise over the loopback interface of the namespace.

use crate::management::{self, Asking, ManagementLink, Operator, PATIENCE};
use crate::namespace_dut::NamespaceDut;
use crate::router::dut_interface;
use crate::{Lab, LabError, Netns};
use drophammer_model::counters::DutCounter;
use drophammer_model::management::Question;
use drophammer_model::param::Param;
use snmp2::{Oid, Pdu, SyncSession, Value};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

/// Required program.
pub(crate) const NEED: (&str, &str) = ("snmpd", "snmpd");

/// Parameter of the kinds in namespaces.
pub(crate) const SNMP: Param<bool> = Param::fixed(
    "snmp",
    "false",
    "also start an SNMP agent (snmpd), for its counters and to check that it answers under load",
);

/// Port of agents.
pub(crate) const PORT: u16 = 161;
/// The agent answers its own namespace at this address, and the operator's end of a management link at
/// [`management::ROUTER`].
const ADDRESS: Ipv4Addr = Ipv4Addr::LOCALHOST;
pub(crate) const COMMUNITY: &str = "drophammer";
/// Name of its configuration.
const FILE: &str = "snmpd.conf";

/// `sysUpTime.0`
const UP_TIME: &[u64] = &[1, 3, 6, 1, 2, 1, 1, 3, 0];
/// Columns of a table by number, with the names of counters.
type Counters = &'static [(u64, &'static str)];

/// Columns of ifTable and ifXTable (RFC 2863).
const OF_A_PORT: &[(&[u64], Counters)] = &[
    (
        &[1, 3, 6, 1, 2, 1, 2, 2, 1],
        &[
            (10, "ifInOctets"),
            (11, "ifInUcastPkts"),
            (13, "ifInDiscards"),
            (14, "ifInErrors"),
            (16, "ifOutOctets"),
            (17, "ifOutUcastPkts"),
            (19, "ifOutDiscards"),
            (20, "ifOutErrors"),
        ],
    ),
    (
        &[1, 3, 6, 1, 2, 1, 31, 1, 1, 1],
        &[
            (2, "ifInMulticastPkts"),
            (3, "ifInBroadcastPkts"),
            (4, "ifOutMulticastPkts"),
            (5, "ifOutBroadcastPkts"),
            (6, "ifHCInOctets"),
            (7, "ifHCInUcastPkts"),
            (8, "ifHCInMulticastPkts"),
            (9, "ifHCInBroadcastPkts"),
            (10, "ifHCOutOctets"),
            (11, "ifHCOutUcastPkts"),
            (12, "ifHCOutMulticastPkts"),
            (13, "ifHCOutBroadcastPkts"),
        ],
    ),
];
/// ipSystemStatsTable (RFC 4293).
const OF_ALL: &[u64] = &[1, 3, 6, 1, 2, 1, 4, 31, 1, 1];
/// Its rows.
const IP_VERSIONS: [(u64, &str); 2] = [(1, "ipv4"), (2, "ipv6")];
/// The columns of each row.
const OF_A_VERSION: Counters = &[
    (3, "ipSystemStatsInReceives"),
    (7, "ipSystemStatsInHdrErrors"),
    (8, "ipSystemStatsInNoRoutes"),
    (9, "ipSystemStatsInAddrErrors"),
    (17, "ipSystemStatsInDiscards"),
    (22, "ipSystemStatsOutNoRoutes"),
    (23, "ipSystemStatsOutForwDatagrams"),
    (25, "ipSystemStatsOutDiscards"),
];
/// nsCacheTimeout of net-snmp: how many seconds it caches the values of a table. We set it to 1 for the tables above;
/// the defaults are 3 and 60.
const CACHE_TIMEOUT: &[u64] = &[1, 3, 6, 1, 4, 1, 8072, 1, 5, 3, 1, 2];
const CACHES: [&[u64]; 2] = [&[1, 3, 6, 1, 2, 1, 2, 2], &[1, 3, 6, 1, 2, 1, 4, 31, 1]];

/// The object identifier of these parts.
pub(crate) fn oid(parts: &[&[u64]]) -> Oid<'static> {
    // An object identifier is invalid only if its second number is above 39.
    Oid::from(&parts.concat()).unwrap_or_else(|_| unreachable!("{parts:?} is an object identifier"))
}

fn failed(address: Ipv4Addr, what: &str) -> LabError {
    LabError::unusable(
        format!("the SNMP agent at {address}:{PORT} of the DUT's namespace: {what}"),
        "see snmpd.log in the folder of the run, or leave `snmp: true` out",
    )
}

/// Explains why a question got no answer.
pub(crate) fn why(e: snmp2::Error) -> String {
    match e {
        snmp2::Error::Receive => format!("no answer within {} s", PATIENCE.as_secs()),
        other => other.to_string(),
    }
}

/// Refuses an answer that reports an error, because it contains no values.
pub(crate) fn without_error(answer: Pdu<'_>) -> Result<Pdu<'_>, String> {
    match answer.error_status {
        0 => Ok(answer),
        status => Err(format!("the answer has error-status {status} (RFC 3416 section 3)")),
    }
}

/// Opens a session with the agent at `address`, in the namespace of the calling thread.
pub(crate) fn open(address: IpAddr, community: &str) -> Result<SyncSession, String> {
    let agent = SocketAddr::new(address, PORT);
    SyncSession::new_v2c(agent, community.as_bytes(), Some(PATIENCE), 0).map_err(|e| format!("no socket: {e}"))
}

/// The configuration of the agent. The community has write access over loopback, to set [`CACHES`].
fn configuration() -> String {
    let link = management::OPERATOR;
    format!("# Asked by the tester.\nrwcommunity {COMMUNITY} 127.0.0.1\nrocommunity {COMMUNITY} {link}\n")
}

/// Checks that the agent answers.
fn answers(session: &mut SyncSession) -> Result<(), String> {
    let mut answer = session.get(&oid(&[UP_TIME])).map_err(why)?;
    match answer.varbinds.next() {
        Some((_, Value::Timeticks(_))) => Ok(()),
        other => Err(format!("the answer is not sysUpTime but {other:?}")),
    }
}

/// The agent of a router, and the router's interfaces.
pub(crate) struct Agent {
    operator: Operator,
    /// ifIndex of each port.
    indexes: Vec<u64>,
}

impl Agent {
    /// Starts the agent, and waits until it answers, if `managed` also over the management link.
    pub(crate) fn start(
        lab: &Lab,
        router: &mut NamespaceDut,
        name: &str,
        ports: usize,
        managed: bool,
        work_dir: &Path,
        stop: &dyn Fn() -> bool,
    ) -> Result<Agent, LabError> {
        let program = crate::process::find(NEED.0, NEED.1)?;
        let state = lab.shared().state.join(format!("snmp-{name}"));
        fs::create_dir_all(&state).map_err(LabError::file("create", &state))?;
        let file = work_dir.join(FILE);
        fs::write(&file, configuration()).map_err(LabError::file("write", &file))?;
        let mut command = router.netns().command(&program);
        // Run it in the foreground, without the host's configuration and without modules that open other sockets.
        command.args(["-f", "-Lo", "-C", "-I", "-smux", "-c"]).arg(&file).arg(format!("udp:{ADDRESS}:{PORT}"));
        if managed {
            command.arg(format!("udp:{}:{PORT}", management::ROUTER));
        }
        command.env("SNMP_PERSISTENT_DIR", &state).env("SNMPCONFPATH", &state);
        router.helper(NEED.0, command, work_dir)?;
        let netns = management::duplicate(router.netns())?;
        let operator = Operator { netns, cpu: lab.shared().cpus.for_questions(), over: "loopback".into() };
        let agent = Agent { operator, indexes: indexes(router.netns(), ports)? };
        router.wait(stop, |dut| {
            let asked = dut.netns().run(|| open(ADDRESS.into(), COMMUNITY).and_then(|mut s| answers(&mut s)))?;
            Ok(asked.err().map(|e| format!("snmpd does not answer: {e}")))
        })?;
        router.netns().run(shorten_caches)??;
        Ok(agent)
    }

    /// Queries the counters of IF-MIB and of the IP group over the management link, or without such a link over the
    /// loopback interface of the namespace `router`.
    pub(crate) fn counters(&self, router: &Netns, link: Option<&ManagementLink>) -> Result<Vec<DutCounter>, LabError> {
        let (from, address) = match link {
            Some(link) => (link.operator(), management::ROUTER),
            None => (router, ADDRESS),
        };
        let asked = from.run(|| -> Result<Vec<DutCounter>, String> {
            let mut session = open(address.into(), COMMUNITY)?;
            let mut all = of_interfaces(&mut session, &self.indexes)?;
            all.extend(of_ip(&mut session)?);
            Ok(all)
        })?;
        asked.map_err(|e| failed(address, &format!("it does not report its counters: {e}")))
    }

    /// Starts to query sysUpTime every `interval`, one request at a time.
    pub(crate) fn ask(&self, interval: Duration) -> Result<Asking, LabError> {
        self.operator.ask(Question::Snmp, ADDRESS.into(), COMMUNITY, interval)
    }
}

/// Queries sysUpTime of an agent.
pub(crate) struct UpTime {
    address: String,
    community: String,
    session: Option<SyncSession>,
}

impl UpTime {
    /// For the agent at `address`, from the namespace of the calling thread.
    pub(crate) fn new(address: IpAddr, community: &str) -> UpTime {
        let address = SocketAddr::new(address, PORT).to_string();
        UpTime { address, community: community.to_owned(), session: None }
    }

    /// Asks once; returns true if the answer arrives in time.
    pub(crate) fn answered(&mut self) -> bool {
        let session = match self.session.take() {
            Some(session) => Ok(session),
            None => SyncSession::new_v2c(&self.address, self.community.as_bytes(), Some(PATIENCE), 0),
        };
        let answered = session.map(|mut session| answers(&mut session).map(|()| session));
        // Do not use a session again after a late answer: that answer must not count for the next question.
        self.session = answered.ok().and_then(Result::ok);
        self.session.is_some()
    }
}

/// Counters of IF-MIB for the interfaces with these ifIndexes, which face the ports in this order. Leaves out counters
/// that the agent does not have.
pub(crate) fn of_interfaces(session: &mut SyncSession, indexes: &[u64]) -> Result<Vec<DutCounter>, String> {
    let mut all = Vec::new();
    for (port, index) in indexes.iter().enumerate() {
        for (table, columns) in OF_A_PORT {
            let asked = values(session, columns, |column| oid(&[table, &[column, *index]]))?;
            all.extend(asked.into_iter().filter_map(|(name, n)| DutCounter::of_port("SNMP", name, port, n)));
        }
    }
    Ok(all)
}

/// Like [`of_interfaces`], for the counters of the IP group.
pub(crate) fn of_ip(session: &mut SyncSession) -> Result<Vec<DutCounter>, String> {
    let mut all = Vec::new();
    for (row, version) in IP_VERSIONS {
        let asked = values(session, OF_A_VERSION, |column| oid(&[OF_ALL, &[column, row]]))?;
        let named = asked.into_iter().map(|(name, n)| (format!("{name}.{version}"), n));
        all.extend(named.filter_map(|(name, n)| DutCounter::of_device("SNMP", &name, n)));
    }
    Ok(all)
}

/// Values of counters by name; leaves out counters that the agent does not have.
fn values(
    session: &mut SyncSession,
    names: Counters,
    of: impl Fn(u64) -> Oid<'static>,
) -> Result<Vec<(&'static str, u64)>, String> {
    let oids: Vec<Oid<'static>> = names.iter().map(|(number, _)| of(*number)).collect();
    let answer = session.get_many(&oids.iter().collect::<Vec<_>>()).map_err(why).and_then(without_error)?;
    let value = |value: Value<'_>| match value {
        Value::Counter32(n) | Value::Unsigned32(n) => Some(u64::from(n)),
        Value::Counter64(n) => Some(n),
        _ => None,
    };
    let mut found = Vec::new();
    for (asked, found_oid) in answer.varbinds {
        let place = oids.iter().position(|oid| *oid == asked);
        found.extend(place.and_then(|at| Some((names[at].1, value(found_oid)?))));
    }
    Ok(found)
}

/// ifIndex of the interface of each port.
fn indexes(netns: &Netns, ports: usize) -> Result<Vec<u64>, LabError> {
    let read = |port: usize| {
        let path = netns.sys(&format!("class/net/{}/ifindex", dut_interface(port)));
        let text = fs::read_to_string(&path).map_err(LabError::file("read", &path))?;
        text.trim()
            .parse()
            .map_err(|_| LabError::file("read", &path)(std::io::Error::other("it does not contain a number")))
    };
    (0..ports).map(read).collect()
}

fn shorten_caches() -> Result<(), LabError> {
    let mut session = open(ADDRESS.into(), COMMUNITY).map_err(|e| failed(ADDRESS, &e))?;
    for cache in CACHES {
        let timeout = oid(&[CACHE_TIMEOUT, cache]);
        session
            .set(&[(&timeout, Value::Integer(1))])
            .map_err(|e| failed(ADDRESS, &format!("its caches cannot be shortened: {}", why(e))))?;
    }
    Ok(())
}
