//! Checks that frames enter and leave a guest with exactly the tags of the suite.

use crate::common::read_suite;
use drophammer_lab::{Dut, Lab};
use drophammer_model::role::RouterRole;
use drophammer_model::suite::{Addressing, PortConfig, VlanTag};
use drophammer_port::af_packet::AfPacket;
use drophammer_port::{Port, SystemClock};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::{Duration, Instant};

const SUITE: &str = "suite: uml\nduts:\n  - {name: box, kind: uml, routing: static, memory: 128}\nports:\n  \
                     - {name: p1, speed: 1 Gbit/s, ipv6: off, vlans: [{id: 100}, {id: [100, 200]}]}\n  \
                     - {name: p2, speed: 1 Gbit/s, ipv6: off, vlans: [{id: 300}]}\ntests: [throughput]\n";
/// Time within which a guest answers, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);
/// Time after which a frame without an answer is sent again.
const AGAIN: Duration = Duration::from_millis(100);

type Mac = [u8; 6];

/// A host as the DUT sees it: its port, tags and addresses.
struct Host {
    port: usize,
    tags: Vec<VlanTag>,
    addressing: Addressing,
    mac: Mac,
}

impl Host {
    fn at(ports: &[PortConfig], port: usize, vlan: Option<usize>) -> Host {
        let config = &ports[port];
        let (tags, addressing) = match vlan {
            None => (Vec::new(), config.ipv4.clone()),
            Some(i) => (config.vlans[i].tags.clone(), config.vlans[i].ipv4.clone()),
        };
        let mac = [2, 0, 0, 0, port as u8, vlan.map_or(0, |i| i as u8 + 1)];
        Host { port, tags, addressing: addressing.expect("the suite gives IPv4"), mac }
    }

    fn frame(&self, to: Mac, ethertype: u16, payload: &[u8]) -> Vec<u8> {
        let mut frame = [to, self.mac].concat();
        for tag in &self.tags {
            frame.extend(tag.tpid.to_be_bytes());
            frame.extend(tag.vid.to_be_bytes());
        }
        frame.extend(ethertype.to_be_bytes());
        frame.extend(payload);
        frame.resize(frame.len().max(60), 0);
        frame
    }

    /// An ARP request to the DUT, or an answer to a request of the DUT.
    fn arp(&self, operation: u8, to: Mac) -> Vec<u8> {
        let own = |address| v4(address).octets();
        let (host, dut) = (own(self.addressing.host), own(self.addressing.dut));
        let head = [0, 1, 8, 0, 6, 4, 0, operation];
        let target = if operation == 1 { [0; 6] } else { to };
        self.frame(to, 0x0806, &[&head[..], &self.mac, &host, &target, &dut].concat())
    }

    /// A UDP datagram to the first address behind another host.
    fn datagram(&self, gateway: Mac, to: &Host, mark: u64) -> Vec<u8> {
        let addresses = [v4(self.addressing.host).octets(), v4(to.addressing.destinations.first).octets()].concat();
        let mut ip = vec![0x45, 0, 0, 36, 0, 0, 0, 0, 9, 17, 0, 0];
        ip.extend(addresses);
        let sum: u32 = ip.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        ip.extend([0x0f, 0xa0, 0, 9, 0, 16, 0, 0]);
        ip.extend(mark.to_be_bytes());
        self.frame(gateway, 0x0800, &ip)
    }

    /// Returns EtherType and content of a frame that arrived at the host's port, if the frame is addressed to this host
    /// and carries its tags. The kernel may have removed the outer tag.
    fn open<'f>(&self, frame: &'f [u8]) -> Option<(u16, &'f [u8])> {
        let whole = self.tags.iter().flat_map(|t| [t.tpid, t.vid]).flat_map(u16::to_be_bytes).collect::<Vec<u8>>();
        let rest = frame.get(12..)?;
        let rest = rest.strip_prefix(&whole[..]).or_else(|| rest.strip_prefix(whole.get(4..).unwrap_or(&[])))?;
        let ethertype = u16::from_be_bytes([*rest.first()?, *rest.get(1)?]);
        let mine = frame[..6] == self.mac || frame[..6] == [0xff; 6];
        (mine && matches!(ethertype, 0x0800 | 0x0806)).then(|| (ethertype, &rest[2..]))
    }
}

fn v4(address: IpAddr) -> Ipv4Addr {
    match address {
        IpAddr::V4(address) => address,
        IpAddr::V6(_) => unreachable!("the suite has IPv4 alone"),
    }
}

struct Bench {
    ports: Vec<AfPacket>,
}

impl Bench {
    fn send(&mut self, port: usize, frame: &[u8]) -> Result<(), String> {
        self.ports[port].slots().put(0, frame);
        self.ports[port].send(1).map(drop).map_err(|e| e.to_string())
    }

    /// Sends frames repeatedly until `wanted` accepts a frame that arrived for `host`. Answers ARP for the host.
    fn until<T>(
        &mut self,
        from: usize,
        frames: &[Vec<u8>],
        host: &Host,
        mut wanted: impl FnMut(u16, &[u8]) -> Option<T>,
    ) -> Result<T, String> {
        let begun = Instant::now();
        let mut next = begun;
        while begun.elapsed() < LIMIT {
            if Instant::now() >= next {
                frames.iter().try_for_each(|frame| self.send(from, frame))?;
                next = Instant::now() + AGAIN;
            }
            let mut asked = None;
            let mut found = None;
            for arrival in self.ports[host.port].receive().map_err(|e| e.to_string())?.iter() {
                let Some((ethertype, body)) = host.open(arrival.frame) else { continue };
                if ethertype == 0x0806 && body[7] == 1 && body[24..28] == v4(host.addressing.host).octets() {
                    asked = <Mac>::try_from(&body[8..14]).ok();
                }
                found = found.or_else(|| wanted(ethertype, body));
            }
            if let Some(dut) = asked {
                self.send(host.port, &host.arp(2, dut))?;
            }
            match found {
                Some(found) => return Ok(found),
                None => std::thread::yield_now(),
            }
        }
        Err(format!("nothing came for {:?} in {LIMIT:?}", host.tags))
    }

    /// The DUT's MAC address, as resolved by the host.
    fn gateway(&mut self, host: &Host) -> Result<Mac, String> {
        let request = host.arp(1, [0xff; 6]);
        self.until(host.port, &[request], host, |ethertype, body| {
            let reply = ethertype == 0x0806 && body[7] == 2;
            reply.then(|| <Mac>::try_from(&body[8..14]).ok()).flatten()
        })
    }

    /// Checks that a datagram passes from one host to the other and changes its tags, and that a datagram with a tag
    /// that the DUT does not have does not pass.
    fn crosses(
        &mut self,
        dut: &mut dyn Dut,
        from: &Host,
        to: &Host,
        mark: u64,
        names: [&str; 2],
    ) -> Result<(), String> {
        let counted = |dut: &mut dyn Dut| -> Result<[u64; 2], String> {
            let counters = dut.counters().map_err(|e| e.to_string())?;
            let of = |name: String| counters.get(&name).copied().ok_or(format!("no counter {name}"));
            Ok([of(format!("{}.rx_packets", names[0]))?, of(format!("{}.tx_packets", names[1]))?])
        };
        let gateway = self.gateway(from)?;
        let before = counted(dut)?;
        let mut frames = vec![from.datagram(gateway, to, mark)];
        if let Some(last) = from.tags.last() {
            let mut foreign = from.tags.clone();
            *foreign.last_mut().expect("not empty") = VlanTag { vid: last.vid + 1, ..*last };
            let stranger = Host { tags: foreign, addressing: from.addressing.clone(), ..*from };
            // It is sent first, so that it would arrive first if the DUT forwarded it.
            frames.insert(0, stranger.datagram(gateway, to, u64::MAX));
        }
        let (ttl, arrived) = self.until(from.port, &frames, to, |ethertype, body| {
            let mark = || Some(u64::from_be_bytes(body.get(28..36)?.try_into().ok()?));
            (ethertype == 0x0800 && body[9] == 17).then(|| Some((body[8], mark()?))).flatten()
        })?;
        if (ttl, arrived) != (8, mark) {
            return Err(format!("{names:?}: TTL {ttl}, mark {arrived:x}"));
        }
        let after = counted(dut)?;
        match before[0] < after[0] && before[1] < after[1] {
            true => Ok(()),
            false => Err(format!("{names:?} counted {before:?}, then {after:?}")),
        }
    }
}

/// Checks three datagrams that pass a guest, each from one sub-interface to another.
pub fn tags(lab: &mut Lab, folder: &Path) -> Result<(), String> {
    let suite = read_suite(SUITE);
    let kind = drophammer_lab::find("uml").ok_or("no such kind")?;
    let role = RouterRole::of(&suite.ports);
    let begun = Instant::now();
    let mut dut = kind.bring_up(lab, &suite.duts[0], &role, folder, &|| false).map_err(|e| e.to_string())?;
    println!("    up in {:.2} s: {}", begun.elapsed().as_secs_f64(), dut.record().version);
    let clock = SystemClock::start();
    let ports: Result<Vec<_>, _> = dut.interfaces().iter().map(|i| AfPacket::open(&i.name, clock)).collect();
    let mut bench = Bench { ports: ports.map_err(|e| e.to_string())? };
    let host = |port, vlan| Host::at(&suite.ports, port, vlan);
    let (one, two, far, plain) = (host(0, Some(0)), host(0, Some(1)), host(1, Some(0)), host(1, None));
    bench.crosses(dut.as_mut(), &one, &far, 1, ["d0.100", "d1.300"])?;
    bench.crosses(dut.as_mut(), &far, &two, 2, ["d1.300", "d0.s100.200"])?;
    bench.crosses(dut.as_mut(), &two, &plain, 3, ["d0.s100.200", "d1"])?;
    dut.check().map_err(|e| e.to_string())?;
    drop(bench);
    dut.take_down().map_err(|e| e.to_string())?;
    super::nothing_left()
}
