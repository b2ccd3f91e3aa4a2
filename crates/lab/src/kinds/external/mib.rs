//! Counters of the user's own router from its SNMP agent: IF-MIB (RFC 2863) for the interfaces that face the ports, and the
//! IP group (RFC 4293).

use crate::enter::Shared;
use crate::management::ManagementPort;
use crate::wait::{self, Look};
use crate::{LabError, snmp};
use drophammer_model::counters::{Counts, DutCounter};
use drophammer_model::suite::DutConfig;
use drophammer_model::visible::visible;
use snmp2::{Oid, SyncSession, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Key in the suite for the names of the interfaces.
pub(super) const KEY: &str = "snmp_interfaces";

/// ifName and ifDescr.
const IF_NAME: &[u64] = &[1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 1];
const IF_DESCR: &[u64] = &[1, 3, 6, 1, 2, 1, 2, 2, 1, 2];
/// Rows of a column per query.
const ROWS: u32 = 20;
/// Maximum number of interfaces to read, and to name in an error message.
const MOST: usize = 100_000;
const SHOWN: usize = 100;
/// Attempts per query: the network may lose a datagram.
const ATTEMPTS: usize = 3;

/// The names of the router's interfaces in the suite, if any. There must be one for each of `ports` ports, and a community.
pub(super) fn names(dut: &DutConfig, ports: usize) -> Result<Option<Vec<String>>, LabError> {
    let Some(names) = dut.params.texts(KEY) else { return Ok(None) };
    let unusable = |what: String, remedy: &str| Err(LabError::unusable(what, remedy));
    if dut.params.text("snmp_community_file").is_none() {
        return unusable(
            format!("`{}` has `{KEY}` but no community for its SNMP agent", dut.name),
            "give `snmp_community_file`, and the address of the agent as `management`",
        );
    }
    if names.len() != ports {
        return unusable(
            format!("`{KEY}` of `{}` names {} interfaces, but the suite has {ports} ports", dut.name, names.len()),
            "name the router's interface of each port, in the order of `ports:`",
        );
    }
    Ok(Some(names))
}

/// An interface of the router, as its agent names it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Interface {
    index: u64,
    name: String,
    description: String,
}

impl Interface {
    fn is(&self, name: &str) -> bool {
        self.name == name || self.description == name
    }

    /// The names that a suite can use for the interface. They come from the network.
    fn shown(&self) -> String {
        let [name, description] = [&self.name, &self.description].map(|text| visible(text, &[]));
        match (name.is_empty(), description.is_empty()) {
            (true, _) => description,
            (false, false) if name != description => format!("{name} ({description})"),
            _ => name,
        }
    }
}

/// ifIndex of each of `names`, or an error with the possible names. An interface with this ifName comes before those with
/// this ifDescr, which several interfaces may share.
fn find(names: &[String], known: &[Interface]) -> Result<Vec<u64>, String> {
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        let named: Vec<&Interface> = known.iter().filter(|one| one.name == *name).collect();
        let those: Vec<&Interface> = match named.is_empty() {
            true => known.iter().filter(|one| one.description == *name).collect(),
            false => named,
        };
        match those.as_slice() {
            [] if known.is_empty() => return Err(format!("it reports no interfaces, so none is called `{name}`")),
            [] => return Err(format!("it has no interface `{name}`, only {}", list(known))),
            [one] if found.contains(&one.index) => {
                return Err(format!("`{name}` is already the interface of another port: {}", one.shown()));
            }
            [one] => found.push(one.index),
            several => return Err(format!("{} of its interfaces are called `{name}`", several.len())),
        }
    }
    Ok(found)
}

fn list(known: &[Interface]) -> String {
    let shown: Vec<String> = known.iter().take(SHOWN).map(Interface::shown).collect();
    match known.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// The agent of the router, and the router's interfaces.
pub(super) struct Mib {
    address: IpAddr,
    community: String,
    names: Vec<String>,
    /// ifIndex of each interface. It may change when the router restarts (RFC 2863 section 3.1.5).
    indexes: Vec<u64>,
    /// Time limit for reading the names of all interfaces.
    limit: Duration,
}

impl Mib {
    /// Waits until the agent at the management port answers, and finds the interfaces. `None` without `names`.
    pub(super) fn begin(
        shared: &Shared,
        port: Option<&ManagementPort>,
        names: Option<Vec<String>>,
        limit: Duration,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Mib>, LabError> {
        let (Some(names), Some(port)) = (names, port) else { return Ok(None) };
        let Some(community) = port.community.clone() else { return Ok(None) };
        let mut mib = Mib { address: port.address, community, names, indexes: Vec::new(), limit };
        let known = wait::until(limit, stop, || match shared.on_host(|| mib.all())? {
            Ok(known) => Ok(Look::Ready(known)),
            Err(why) => Ok(Look::NotYet(why)),
        });
        let known = known.map_err(|e| match e {
            LabError::NotReady { condition, .. } => mib.silent(&condition),
            other => other,
        })?;
        mib.indexes = find(&mib.names, &known).map_err(|what| mib.unnamed(&what))?;
        Ok(Some(mib))
    }

    /// For the record of the DUT: which interface faces each port. An ifIndex may differ from run to run.
    pub(super) fn record(&self) -> (String, String) {
        let lines = self.names.iter().enumerate().map(|(port, name)| format!("d{port} {}\n", visible(name, &[])));
        (KEY.to_owned(), lines.collect())
    }

    /// The counters of the interfaces, each with the number of the port that it faces, and the counters of the whole
    /// router.
    pub(super) fn counters(&mut self, shared: &Shared) -> Result<Vec<DutCounter>, LabError> {
        shared.on_host(|| self.read())?
    }

    fn read(&mut self) -> Result<Vec<DutCounter>, LabError> {
        let named: Result<Vec<Interface>, String> =
            self.ask(|session| self.indexes.iter().map(|index| interface(session, *index)).collect());
        let named = named.map_err(|why| self.silent(&why))?;
        if !named.iter().zip(&self.names).all(|(one, name)| one.is(name)) {
            let known = self.all().map_err(|why| self.silent(&why))?;
            self.indexes = find(&self.names, &known).map_err(|what| self.unnamed(&what))?;
        }
        let counters = self.ask(|session| {
            let mut all = snmp::of_interfaces(session, &self.indexes)?;
            // Received packets include our queries to the router's agent, which do not pass a port.
            let of_ip = snmp::of_ip(session)?;
            all.extend(of_ip.into_iter().filter(|counter| !matches!(counter.counts, Counts::IpReceived(_))));
            Ok(all)
        });
        counters.map_err(|why| self.silent(&why))
    }

    /// All interfaces of the router.
    fn all(&self) -> Result<Vec<Interface>, String> {
        let deadline = Instant::now() + self.limit;
        let (mut names, mut descriptions) =
            self.ask(|session| Ok((column(session, IF_NAME, deadline)?, column(session, IF_DESCR, deadline)?)))?;
        let indexes: BTreeSet<u64> = names.keys().chain(descriptions.keys()).copied().collect();
        let of = |index: u64| Interface {
            index,
            name: names.remove(&index).unwrap_or_default(),
            description: descriptions.remove(&index).unwrap_or_default(),
        };
        Ok(indexes.into_iter().map(of).collect())
    }

    /// Asks from the namespace of the calling thread. Each attempt uses a new socket, so that a late answer to an earlier
    /// attempt does not count.
    fn ask<T>(&self, question: impl Fn(&mut SyncSession) -> Result<T, String>) -> Result<T, String> {
        let attempt = || snmp::open(self.address, &self.community).and_then(|mut session| question(&mut session));
        let mut result = attempt();
        for _ in 1..ATTEMPTS {
            result = result.or_else(|_| attempt());
        }
        result
    }

    fn silent(&self, why: &str) -> LabError {
        LabError::unusable(
            format!("the SNMP agent at {}, UDP port {}: {why}", self.address, snmp::PORT),
            format!(
                "check that the agent runs and permits this machine's address, and check the community in \
                 `snmp_community_file`, or leave `{KEY}` out"
            ),
        )
    }

    fn unnamed(&self, what: &str) -> LabError {
        LabError::unusable(
            format!("the router whose SNMP agent is at {}: {what}", self.address),
            format!("write in `{KEY}` the ifName or ifDescr of the router's interface of each port"),
        )
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').trim().to_owned()
}

/// The names of the interface with this ifIndex; empty if there is none.
fn interface(session: &mut SyncSession, index: u64) -> Result<Interface, String> {
    let [name, description] = [IF_NAME, IF_DESCR].map(|column| snmp::oid(&[column, &[index]]));
    let answer = session.get_many(&[&name, &description]).map_err(snmp::why).and_then(snmp::without_error)?;
    let mut one = Interface { index, name: String::new(), description: String::new() };
    for (asked, value) in answer.varbinds {
        let Value::OctetString(bytes) = value else { continue };
        if asked == name {
            one.name = text(bytes);
        } else if asked == description {
            one.description = text(bytes);
        }
    }
    Ok(one)
}

/// Reads the texts of a column, by row index.
fn column(session: &mut SyncSession, column: &[u64], deadline: Instant) -> Result<BTreeMap<u64, String>, String> {
    let mut found = BTreeMap::new();
    let mut last: Option<u64> = None;
    loop {
        let from = last.map_or_else(|| snmp::oid(&[column]), |index| snmp::oid(&[column, &[index]]));
        let answer = session.getbulk(&[&from], 0, ROWS).map_err(snmp::why).and_then(snmp::without_error)?;
        let before = last;
        for (asked, value) in answer.varbinds {
            // After the last row come the rows of another column, or nothing.
            let (Value::OctetString(bytes), Some(index)) = (value, row(&asked, column)) else { return Ok(found) };
            // Otherwise an agent could keep the tester busy forever.
            if last.is_some_and(|last| index <= last) || found.len() >= MOST {
                return Err(format!("the rows of its interface table are not in order, or there are more than {MOST}"));
            }
            last = Some(index);
            found.insert(index, text(bytes));
        }
        if last == before {
            return Err("an answer without a value".into());
        }
        if Instant::now() >= deadline {
            return Err(format!(
                "reading its interface table took longer than `timeout` ({} interfaces so far)",
                found.len()
            ));
        }
    }
}

/// The index of a row of this column; `None` for other objects.
fn row(of: &Oid<'_>, column: &[u64]) -> Option<u64> {
    let parts: Vec<u64> = of.iter()?.collect();
    match parts.strip_prefix(column)? {
        [index] => Some(*index),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::External;
    use super::*;
    use crate::DutKind;
    use crate::kinds::tests_support::{dut, two_ports};
    use drophammer_model::role::RouterRole;
    use drophammer_model::suite::{ParamValue, Params};

    fn known() -> Vec<Interface> {
        let one = |index, name: &str, description: &str| Interface {
            index,
            name: name.into(),
            description: description.into(),
        };
        vec![
            one(1, "Gi0/0", "GigabitEthernet0/0"),
            one(7, "Gi0/1", "GigabitEthernet0/1"),
            // An interface without ifXTable, one whose ifDescr is the ifName of another, and two with the same ifDescr.
            one(8, "", "Management"),
            one(9, "Po1", "Gi0/0"),
            one(10, "Tu1", "tunnel"),
            one(11, "Tu2", "tunnel"),
        ]
    }

    fn found(names: &[&str]) -> Result<Vec<u64>, String> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        find(&names, &known())
    }

    #[test]
    fn interfaces_are_found_by_either_name_in_the_order_of_the_ports() {
        assert_eq!(found(&["Gi0/1", "Gi0/0"]), Ok(vec![7, 1]));
        assert_eq!(found(&["GigabitEthernet0/1", "Management", "Tu2"]), Ok(vec![7, 8, 11]));
    }

    #[test]
    fn a_name_that_fits_no_interface_or_several_is_refused_with_the_possible_ones() {
        let error = found(&["Gi0/0", "ge-0/0/1"]).unwrap_err();
        assert!(error.contains("no interface `ge-0/0/1`"), "{error}");
        assert!(
            error.ends_with("Gi0/1 (GigabitEthernet0/1), Management, Po1 (Gi0/0), Tu1 (tunnel), Tu2 (tunnel)"),
            "{error}"
        );
        // Names must match completely, including case.
        assert!(found(&["gi0/0"]).is_err() && found(&["Gi0"]).is_err());
        assert_eq!(found(&["tunnel"]).unwrap_err(), "2 of its interfaces are called `tunnel`");
        let error = found(&["Gi0/1", "GigabitEthernet0/1"]).unwrap_err();
        assert!(error.contains("already the interface of another port"), "{error}");
        let error = find(&["Gi0/0".to_owned()], &[]).unwrap_err();
        assert!(error.contains("reports no interfaces"), "{error}");
    }

    #[test]
    fn a_long_list_is_cut_and_hidden_characters_are_shown() {
        let one = |index| Interface { index, name: format!("\u{1b}[2J{index}"), description: String::new() };
        let many: Vec<Interface> = (0..SHOWN as u64 + 3).map(one).collect();
        let shown = list(&many);
        assert!(shown.starts_with("\\u{1b}[2J0, ") && shown.ends_with("[2J99 and 3 more"), "{shown}");
    }

    #[test]
    fn rows_belong_to_their_column() {
        let of = |parts: &[u64]| row(&snmp::oid(&[parts]), IF_NAME);
        assert_eq!(of(&[1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 1, 4_000_000]), Some(4_000_000));
        assert_eq!(of(&[1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 2, 7]), None);
        assert_eq!(of(IF_NAME), None);
        assert_eq!(of(&[1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 1, 7, 7]), None);
        assert_eq!((text(b"ge-0/0/0\0"), text(b" Ethernet 1 ")), ("ge-0/0/0".to_owned(), "Ethernet 1".to_owned()));
    }

    #[test]
    fn names_need_an_agent_and_one_for_each_port() {
        let folder = tempfile::tempdir().unwrap();
        let community = folder.path().join("community");
        std::fs::write(&community, "laboratory\n").unwrap();
        let text = |text: &str| ParamValue::Text(text.into());
        let mut params = Params::default();
        let mut checked = |key: &str, value: ParamValue| {
            params.0.insert(key.into(), value);
            let dut = dut("box", "external", params.clone());
            External.check(&dut, &RouterRole::of(&two_ports())).map_err(|e| e.to_string())
        };
        let names = |names: &[&str]| ParamValue::Texts(names.iter().map(|name| (*name).to_owned()).collect());
        let error = checked(KEY, names(&["ge-0/0/0"])).unwrap_err();
        assert!(error.contains("no community") && error.contains("`management`"), "{error}");
        let error = checked("snmp_community_file", text(&community.display().to_string())).unwrap_err();
        assert!(error.contains("names 1 interfaces, but the suite has 2 ports"), "{error}");
        let error = checked(KEY, names(&["ge-0/0/0", "ge-0/0/1"])).unwrap_err();
        assert!(error.contains("no address to ask"), "{error}");
        checked("management", text("192.0.2.9")).unwrap();
    }

    #[test]
    fn messages_have_address_and_remedy_and_no_community() {
        let (address, names) = ("192.0.2.9".parse().unwrap(), vec!["ge-0/0/0".to_owned(), "ge-0/0/1".to_owned()]);
        let mib = Mib { address, community: "sesame".into(), names, indexes: vec![1, 2], limit: Duration::ZERO };
        for (error, word) in
            [(mib.silent("no answer within 1 s"), "no answer"), (mib.unnamed("no x"), "ifName or ifDescr")]
        {
            let error = error.to_string();
            assert!(error.contains("192.0.2.9") && error.contains(word) && error.contains("help: "), "{error}");
            assert!(!error.contains("sesame"), "{error}");
        }
        assert_eq!(mib.record(), ("snmp_interfaces".to_owned(), "d0 ge-0/0/0\nd1 ge-0/0/1\n".to_owned()));
    }
}
