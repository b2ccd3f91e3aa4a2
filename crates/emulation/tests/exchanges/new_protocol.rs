//! A complete new protocol in one file: it greets its neighbours once a second and answers greetings.

use drophammer_emulation::device::{Device, DeviceConfig, Devices, Tags};
use drophammer_emulation::protocol::{Command, Input, Match, Output, Protocol, Refused, State};
use drophammer_model::Instant;
use drophammer_wire::MacAddr;
use std::collections::BTreeSet;
use std::time::Duration;

/// IEEE 802 Local Experimental EtherType 1.
const ETHERTYPE: u16 = 0x88b5;
/// Group of all devices that speak the protocol.
const GROUP: MacAddr = MacAddr([0x03, 0, 0, 0, 0, 0x2a]);
const INTERVAL: Duration = Duration::from_secs(1);

/// The protocol: sends "hello" to all once a second, and "welcome" in answer to each hello.
#[derive(Default)]
struct Greeter {
    /// Time of the next hello; `None` while it is stopped.
    due: Option<Instant>,
    neighbours: BTreeSet<MacAddr>,
    hellos_sent: u64,
    welcomes_received: u64,
}

impl Protocol for Greeter {
    fn name(&self) -> &'static str {
        "greeter"
    }

    fn matches(&self) -> &[Match] {
        &[Match::EtherType(ETHERTYPE), Match::LinkGroup(GROUP)]
    }

    fn receive(&mut self, _now: Instant, input: Input<'_>, out: &mut Output<'_>) {
        let Input::Frame { source, payload, .. } = input else { return };
        match payload {
            [b'h', ..] => out.frame(source, ETHERTYPE, 1, |payload| payload[0] = b'w'),
            [b'w', ..] => {
                self.neighbours.insert(source);
                self.welcomes_received += 1;
            }
            _ => out.malformed(),
        }
    }

    fn poll(&mut self, now: Instant, _budget: usize, out: &mut Output<'_>) {
        if self.due.is_some_and(|due| due <= now) {
            out.frame(GROUP, ETHERTYPE, 1, |payload| payload[0] = b'h');
            self.hellos_sent += 1;
            self.due = Some(now + INTERVAL);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.due
    }

    fn command(&mut self, now: Instant, command: &Command) -> Result<(), Refused> {
        match command {
            Command::Start => self.due = Some(now),
            Command::Stop => self.due = None,
            _ => return Err(Refused::unknown(self.name())),
        }
        Ok(())
    }

    fn state(&self) -> State {
        State {
            sessions: 0,
            up: self.neighbours.len() as u32,
            counters: vec![("hellos_sent", self.hellos_sent), ("welcomes_received", self.welcomes_received)],
        }
    }
}

#[test]
fn a_protocol_of_ones_own_runs_on_emulated_devices() {
    // Two devices in VLAN 5 and one in VLAN 6, behind one port whose frames return to it.
    let mut port = Devices::new();
    let ids = [(1, 5), (2, 5), (3, 6)].map(|(n, vlan)| {
        let tags = Tags::dot1q(vlan).unwrap();
        let config = DeviceConfig { tags, ..DeviceConfig::new(format!("d{n}"), MacAddr::local(n), n) };
        let id = port.add(Device::new(config)).unwrap();
        port.add_protocol(id, Box::new(Greeter::default()));
        id
    });
    port.command(Instant(0), ids[0], "greeter", &Command::Start).unwrap();
    port.command(Instant(0), ids[2], "greeter", &Command::Start).unwrap();
    let (mut now, mut polls) = (Instant(0), 0);
    while now < Instant(0) + INTERVAL * 10 {
        let mut wire = Vec::new();
        port.poll(now, 1500, &mut |frame| wire.push(frame.to_vec()));
        polls += 1;
        while let Some(frame) = wire.pop() {
            assert_eq!(frame.len(), 60, "padded");
            port.receive(now, &frame, &mut |answer| wire.push(answer.to_vec()));
        }
        now = port.next_deadline().unwrap();
    }
    let state = |id| port.get(id).protocols().find(|p| p.name() == "greeter").unwrap().state();
    assert_eq!((state(ids[0]).counter("hellos_sent"), state(ids[0]).counter("welcomes_received")), (10, 20));
    // On this wire a device receives its own hello again, and the answer of the other device.
    assert_eq!(state(ids[0]).up, 2);
    assert_eq!((state(ids[1]).counter("hellos_sent"), state(ids[1]).up), (0, 0));
    assert_eq!((state(ids[2]).counter("hellos_sent"), state(ids[2]).up), (10, 1));
    assert!(polls <= 12, "{polls} polls for 10 greetings: it is left alone in between");
    let mut stopped = |id| port.command(now, id, "greeter", &Command::Stop);
    assert_eq!((stopped(ids[0]), stopped(ids[2])), (Ok(()), Ok(())));
    port.poll(now, 1500, &mut |_| panic!("it has been stopped"));
    assert_eq!(port.next_deadline(), None);
}
