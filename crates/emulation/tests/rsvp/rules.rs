//! Single rules of the RFCs, tested with hand-written messages.

use super::common::*;
use drophammer_emulation::device::Device;
use drophammer_emulation::protocol::Command;
use drophammer_emulation::rsvp::{
    HelloConfig, IngressRange, LspRange, NAME, Pace, Phase, RefreshReduction, Rsvp, RsvpCommand, RsvpConfig,
};
use drophammer_model::Instant;
use drophammer_wire::ethernet::{self, ethertype};
use drophammer_wire::rsvp::*;
use drophammer_wire::{MacAddr, ipv4};
use std::net::Ipv4Addr;
use std::time::Duration;

const GATEWAY: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 1);
const OWN: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 2);
/// Another router of the link, or another address of the gateway.
const OTHER: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 77);
const TSPEC: Tspec = Tspec { rate: 0.0, bucket: 0.0, peak: 0.0, min_policed: 20, max_packet: 1500 };

/// Device 2. The test plays its neighbours.
struct Alone {
    device: Device,
    now: Instant,
    sent: Vec<Vec<u8>>,
}

impl Alone {
    fn new(config: RsvpConfig) -> Alone {
        Alone::of(device(2, 1, config))
    }

    fn of(mut device: Device) -> Alone {
        device.command(Instant(0), NAME, &Command::Start).unwrap();
        Alone { device, now: Instant(0), sent: Vec::new() }
    }

    /// A device that ends LSPs, without Bundles.
    fn egress() -> Alone {
        Alone::new(RsvpConfig { refresh_reduction: reduction(), jitter_percent: 0, ..RsvpConfig::default() })
    }

    /// A device at which LSPs of two ranges begin; both ranges have the same tunnels. All are signalled.
    fn ingress(refresh_reduction: Option<RefreshReduction>) -> Alone {
        let lsps = LspRange::new(2, OWN, [10, 2, 0, 1].into());
        let second = LspRange { lsp_id: 101, ..lsps.clone() };
        let ingress = [lsps, second].map(IngressRange::new).to_vec();
        let mut alone =
            Alone::new(RsvpConfig { ingress, refresh_reduction, jitter_percent: 0, ..RsvpConfig::default() });
        alone.command(RsvpCommand::SetUp(Pace { lsps: 0..4, per_second: 0 }));
        alone.run_to(0.0);
        alone
    }

    fn command(&mut self, command: RsvpCommand) {
        self.device.command(self.now, NAME, &Command::Rsvp(command)).unwrap();
    }

    /// Runs until this time, including everything that is due then.
    fn run_to(&mut self, end: f64) {
        let end = seconds(end);
        while let Some(due) = self.device.next_deadline().map(|due| due.max(self.now)).filter(|due| *due <= end) {
            self.now = due;
            self.device.poll(due, BUDGET, &mut |frame| self.sent.push(frame.to_vec()));
        }
        self.now = end;
    }

    /// Delivers a message from the node with the MAC address of the gateway, or from another node.
    fn arrive_from(&mut self, mac: u32, source: Ipv4Addr, body: Body<'_>, ids: &[Object<'_>]) {
        let mut message = Vec::new();
        body.emit(flag::REFRESH_REDUCTION_CAPABLE, 255, ids, &mut message);
        let mut frame = vec![0; ethernet::LEN + ipv4::LEN];
        let [destination, mac] = [2, mac].map(|n| MacAddr::local(n.into()));
        ethernet::Repr { destination, source: mac, ethertype: ethertype::IPV4 }.emit(&mut frame);
        let ip = ipv4::Repr {
            tos: 0,
            identification: 1,
            dont_fragment: false,
            ttl: 255,
            protocol: ipv4::protocol::RSVP,
            source,
            destination: OWN,
            payload_len: message.len(),
        };
        ip.emit(&mut frame[ethernet::LEN..]);
        frame.extend_from_slice(&message);
        self.device.receive(self.now, &frame, &mut |frame| self.sent.push(frame.to_vec()));
    }

    fn arrive(&mut self, source: Ipv4Addr, body: Body<'_>, ids: &[Object<'_>]) {
        self.arrive_from(1, source, body, ids);
    }

    /// Takes the sent RSVP messages of this type, with the TTL of their packets.
    fn sent(&mut self, kind: u8) -> Vec<(u8, Vec<u8>)> {
        let packets = std::mem::take(&mut self.sent).into_iter().filter(|frame| frame[12..14] == [8, 0]);
        let messages = packets.map(|frame| {
            let (ip, message) = ipv4::Repr::parse(&frame[14..]).unwrap();
            (ip.ttl, message.to_vec())
        });
        messages.filter(|(_, message)| Message::parse(message).unwrap().kind == kind).collect()
    }

    /// Codes and values of sent PathErr or ResvErr.
    fn errors(&mut self, kind: u8) -> Vec<(u8, u16)> {
        let errors = self.sent(kind).into_iter().map(|(_, message)| {
            match Body::parse(&Message::parse(&message).unwrap()).unwrap().0 {
                Body::PathErr(PathErr { error, .. }) | Body::ResvErr(ResvErr { error, .. }) => {
                    (error.code, error.value)
                }
                body => panic!("{body:?}"),
            }
        });
        errors.collect()
    }

    fn rsvp(&self) -> &Rsvp {
        self.device.protocol().unwrap()
    }

    fn up(&self) -> u32 {
        self.device.protocols().find(|p| p.name() == NAME).unwrap().state().up
    }

    fn counter(&self, name: &str) -> u64 {
        self.device.protocols().find(|p| p.name() == NAME).unwrap().state().counter(name)
    }
}

fn reduction() -> Option<RefreshReduction> {
    Some(RefreshReduction { bundle: false, ..RefreshReduction::default() })
}

/// A Path to the device.
fn path(hop: Ipv4Addr) -> Path<'static> {
    let sender = Sender { address: GATEWAY, lsp_id: 1 };
    Path {
        session: Session { destination: OWN, tunnel_id: 1, extended_tunnel_id: GATEWAY },
        hop: Hop { address: hop, interface: 0 },
        refresh: 30_000,
        explicit_route: None,
        label_request: Some(0x800),
        attribute: None,
        sender,
        tspec: TSPEC,
        adspec: None,
        record_route: None,
    }
}

fn path_tear(hop: Ipv4Addr) -> Body<'static> {
    let Path { session, hop, sender, .. } = path(hop);
    Body::PathTear(PathTear { session, hop, sender, tspec: None, adspec: None })
}

fn id(id: u32) -> [Object<'static>; 1] {
    [Object::MessageId(MessageId { flags: MessageId::ACK_DESIRED, epoch: 7, id })]
}

/// Session of tunnel 1 of [`Alone::ingress`].
fn session() -> Session {
    Session { destination: [10, 2, 0, 1].into(), tunnel_id: 1, extended_tunnel_id: OWN }
}

/// Flows for LSPs of that session.
fn flows(lsps: &[u16]) -> Vec<u8> {
    let mut list = Vec::new();
    for lsp_id in lsps {
        let filter = Sender { address: OWN, lsp_id: *lsp_id };
        Flow { flowspec: Some(TSPEC), filter, label: Some(100), record_route: None }.emit(&mut list);
    }
    list
}

fn resv(hop: Ipv4Addr, style: Style, list: &[u8]) -> Body<'_> {
    let hop = Hop { address: hop, interface: 0 };
    let flows = Flows::new(list).unwrap();
    Body::Resv(Resv { session: session(), hop, refresh: 30_000, confirm: None, style, flows })
}

fn resv_tear(hop: Ipv4Addr, style: Style, list: &[u8]) -> Body<'_> {
    let hop = Hop { address: hop, interface: 0 };
    Body::ResvTear(ResvTear { session: session(), hop, style, flows: Flows::new(list).unwrap() })
}

fn hello(request: bool, source: u32, destination: u32) -> Body<'static> {
    Body::Hello(Hello { hello: HelloObject { request, source, destination } })
}

fn greeting() -> Alone {
    let hello = Some(HelloConfig { interval: Duration::from_secs(1) });
    Alone::new(RsvpConfig { hello, ..RsvpConfig::default() })
}

/// The last Hello of the device.
fn last_hello(alone: &mut Alone) -> HelloObject {
    let (_, message) = alone.sent(kind::HELLO).pop().expect("a Hello");
    match Body::parse(&Message::parse(&message).unwrap()).unwrap().0 {
        Body::Hello(Hello { hello }) => hello,
        body => panic!("{body:?}"),
    }
}

/// RFC 3209 section 5.1.
#[test]
fn hellos_do_not_leave_the_link() {
    let mut alone = greeting();
    alone.run_to(0.0);
    let sent = alone.sent(kind::HELLO);
    assert_eq!((sent.len(), sent[0].0, Message::parse(&sent[0].1).unwrap().ttl), (1, 1, 1));
}

/// RFC 3209 section 5.3.
#[test]
fn an_answer_with_a_wrong_instance_is_a_lost_neighbour() {
    let mut alone = greeting();
    alone.run_to(0.0);
    let own = last_hello(&mut alone).source;
    alone.arrive(GATEWAY, hello(false, 5, own ^ 1), &[]);
    alone.run_to(1.0);
    assert_eq!(last_hello(&mut alone).destination, 0, "an answer to someone else");
    alone.arrive(GATEWAY, hello(false, 5, own), &[]);
    alone.run_to(2.0);
    assert_eq!(last_hello(&mut alone).destination, 5);
    for wrong in 0..3 {
        alone.arrive(GATEWAY, hello(true, 5, own ^ 1), &[]);
        assert_eq!(alone.counter("lost_neighbours"), 0, "{wrong}: requests may be old");
    }
    alone.arrive(GATEWAY, hello(false, 5, own ^ 1), &[]);
    assert_eq!(alone.counter("lost_neighbours"), 1);
    alone.arrive(GATEWAY, hello(false, 0, own), &[]);
    assert_eq!(alone.counter("lost_neighbours"), 2, "zero is not an instance");
}

/// RFC 3209 section 5.3.
#[test]
fn requests_of_the_neighbour_replace_own_ones() {
    let mut alone = greeting();
    alone.run_to(0.0);
    for n in 1..=5 {
        alone.run_to(f64::from(n) - 0.5);
        alone.arrive(GATEWAY, hello(true, 5, 0), &[]);
    }
    // The first request, and answers.
    assert_eq!(alone.counter("hello_sent"), 6);
    alone.run_to(7.0);
    // The last request was at 4.5 s.
    assert_eq!((alone.counter("hello_sent"), alone.counter("lost_neighbours")), (8, 0));
    alone.run_to(7.99);
    assert_eq!(alone.counter("lost_neighbours"), 0);
    alone.run_to(8.0);
    assert_eq!(alone.counter("lost_neighbours"), 1, "3.5 intervals after it");
}

#[test]
fn another_life_has_another_instance() {
    let mut alone = greeting();
    alone.run_to(0.0);
    let first = last_hello(&mut alone).source;
    for command in [Command::Stop, Command::Start] {
        alone.device.command(alone.now, NAME, &command).unwrap();
    }
    alone.run_to(0.0);
    assert_ne!(last_hello(&mut alone).source, first);
}

#[test]
fn messages_that_were_not_sent_are_not_counted() {
    let hello = Some(HelloConfig { interval: Duration::from_secs(1) });
    let mut alone = Alone::of(unresolved(2, 1, RsvpConfig { hello, ..RsvpConfig::default() }));
    alone.run_to(0.5);
    assert_eq!((alone.counter("hello_sent"), alone.counter("unresolved")), (0, 1));
}

#[test]
fn paths_that_follow_a_restart_at_once_survive() {
    let mut alone = Alone::egress();
    alone.arrive(GATEWAY, hello(true, 5, 0), &[]);
    alone.arrive(GATEWAY, Body::Path(path(GATEWAY)), &[]);
    alone.run_to(1.0);
    // This happens before the device can forget the state from the neighbour's old life.
    alone.arrive(GATEWAY, hello(true, 6, 0), &[]);
    alone.arrive(GATEWAY, Body::Path(path(GATEWAY)), &[]);
    alone.run_to(2.0);
    assert_eq!((alone.counter("lost_neighbours"), alone.up()), (1, 1));
    alone.arrive(GATEWAY, hello(true, 7, 0), &[]);
    alone.run_to(3.0);
    assert_eq!((alone.counter("lost_neighbours"), alone.up()), (2, 0));
}

/// RFC 2205 section 3.1.5, RFC 2961 section 4.3.
#[test]
fn only_a_new_tear_of_the_previous_hop_counts() {
    let mut alone = Alone::egress();
    alone.arrive(GATEWAY, Body::Path(path(GATEWAY)), &id(10));
    alone.arrive_from(9, OTHER, path_tear(OTHER), &id(11));
    assert_eq!(alone.up(), 1, "another hop");
    alone.arrive(GATEWAY, path_tear(GATEWAY), &id(9));
    assert_eq!((alone.up(), alone.counter("out_of_order")), (1, 1));
    alone.arrive(GATEWAY, path_tear(GATEWAY), &id(11));
    assert_eq!((alone.up(), alone.counter("out_of_order")), (0, 1));
}

/// RFC 2205 section 3.1.6.
#[test]
fn only_a_new_tear_of_the_same_reservation_counts() {
    let mut alone = Alone::ingress(reduction());
    let list = flows(&[1]);
    alone.arrive(GATEWAY, resv(GATEWAY, Style::SE, &list), &id(10));
    assert_eq!(alone.up(), 1);
    alone.arrive_from(9, OTHER, resv_tear(OTHER, Style::SE, &list), &id(11));
    alone.arrive(GATEWAY, resv_tear(GATEWAY, Style::FF, &list), &id(11));
    alone.arrive(GATEWAY, resv_tear(GATEWAY, Style::SE, &list), &id(9));
    assert_eq!((alone.up(), alone.counter("out_of_order")), (1, 1));
    alone.arrive(GATEWAY, resv_tear(GATEWAY, Style::SE, &list), &id(11));
    assert_eq!((alone.up(), alone.rsvp().ingress_phase(0)), (0, Phase::Signalled));
}

/// RFC 2961 section 5.
#[test]
fn a_summary_refreshes_all_senders_of_a_reservation() {
    let mut alone = Alone::ingress(reduction());
    let list = flows(&[1, 101]);
    alone.arrive(GATEWAY, resv(GATEWAY, Style::SE, &list), &id(10));
    alone.run_to(100.0);
    assert_eq!(alone.up(), 2);
    let summary = [10u32.to_be_bytes()];
    alone.arrive(GATEWAY, Body::Srefresh, &[Object::MessageIdList(MessageIdList::new(7, &summary))]);
    // Without the summary, both would end at 157.5 s.
    alone.run_to(250.0);
    assert_eq!((alone.up(), alone.counter("nacks_sent")), (2, 0));
    alone.run_to(258.0);
    assert_eq!((alone.up(), alone.counter("timeouts")), (0, 2));
}

#[test]
fn the_gateway_may_speak_from_another_address() {
    let mut alone = Alone::ingress(reduction());
    let without = alone.sent(kind::PATH);
    assert!(without.iter().all(|(_, path)| Message::parse(path).unwrap().ids().next().is_none()));
    alone.arrive_from(9, OTHER, resv(OTHER, Style::FF, &flows(&[1])), &[]);
    alone.run_to(31.0);
    assert!(alone.sent(kind::PATH).iter().all(|(_, path)| Message::parse(path).unwrap().ids().next().is_none()));
    alone.arrive(OTHER, resv(OTHER, Style::FF, &flows(&[1])), &[]);
    alone.run_to(60.0);
    let with = alone.sent(kind::PATH);
    assert!(with.len() >= 4 && with.iter().all(|(_, path)| Message::parse(path).unwrap().ids().next().is_some()));
}

/// RFC 2961 section 4.3.
#[test]
fn an_error_acknowledges_the_path() {
    let mut alone = Alone::ingress(reduction());
    alone.arrive(GATEWAY, resv(GATEWAY, Style::FF, &flows(&[101])), &[]);
    alone.run_to(30.0);
    let answer = |alone: &mut Alone, lsp_id| {
        let error = ErrorSpec { node: GATEWAY, flags: 0, code: error::ROUTING_PROBLEM, value: routing::NO_ROUTE };
        let sender = Sender { address: OWN, lsp_id };
        alone.arrive(GATEWAY, Body::PathErr(PathErr { session: session(), error, sender, tspec: None }), &[]);
    };
    answer(&mut alone, 1);
    alone.run_to(32.0);
    // Four LSPs, three times each without an acknowledgement.
    assert_eq!(alone.counter("path_sent"), 4 + 1 + 3 * 3);
}

/// RFC 2205 section 3.1.8 and appendix B.
#[test]
fn each_wrong_flow_is_refused_on_its_own() {
    let mut alone = Alone::ingress(None);
    alone.arrive(GATEWAY, resv(GATEWAY, Style::SE, &flows(&[1, 55, 56])), &[]);
    assert_eq!(alone.up(), 1);
    let errors = alone.sent(kind::RESV_ERR);
    assert_eq!(errors.len(), 2);
    for ((_, message), lsp_id) in errors.iter().zip([55, 56]) {
        let Body::ResvErr(e) = Body::parse(&Message::parse(message).unwrap()).unwrap().0 else { panic!() };
        let flow =
            Flow { flowspec: Some(TSPEC), filter: Sender { address: OWN, lsp_id }, label: None, record_route: None };
        assert_eq!((e.error.code, e.error.value), (error::NO_SENDER, 0));
        assert_eq!(e.flows.iter().collect::<Vec<_>>(), [flow]);
    }
    alone.command(RsvpCommand::TearDown(Pace { lsps: 0..4, per_second: 0 }));
    alone.run_to(1.0);
    alone.arrive(GATEWAY, resv(GATEWAY, Style::SE, &flows(&[1])), &[]);
    assert_eq!(alone.errors(kind::RESV_ERR), [(error::NO_PATH, 0)]);
}

/// RFC 3209 sections 3.1, 4.3.4.1 and 4.4.4.
#[test]
fn impossible_paths_are_refused() {
    let mut alone = Alone::egress();
    let (mut here, mut recorded) = (Vec::new(), Vec::new());
    ExplicitHop::Ipv4 { loose: false, address: OWN, prefix_len: 32 }.emit(&mut here);
    for address in [GATEWAY, OWN] {
        RecordedHop::Ipv4 { address, prefix_len: 32, flags: 0 }.emit(&mut recorded);
    }
    let mut refused = |path| {
        alone.arrive(GATEWAY, Body::Path(path), &[]);
        let errors = alone.errors(kind::PATH_ERR);
        (errors, alone.up(), alone.counter("malformed"))
    };
    let route = |hops| Path { explicit_route: ExplicitRoute::new(hops).ok(), ..path(GATEWAY) };
    let problem = |value| (vec![(error::ROUTING_PROBLEM, value)], 0, 0);
    assert_eq!(refused(route(&[])), problem(routing::BAD_EXPLICIT_ROUTE));
    let looped = Path { record_route: RecordRoute::new(&recorded).ok(), ..path(GATEWAY) };
    assert_eq!(refused(looped), problem(routing::LOOP));
    assert_eq!(refused(Path { label_request: None, ..path(GATEWAY) }), (vec![], 0, 1));
    assert_eq!(refused(route(&here)), (vec![], 1, 1));
}

/// RFC 3209 section 4.4.3.
#[test]
fn labels_are_recorded_on_request() {
    let mut alone = Alone::egress();
    for (flags, hops) in [(0, 1), (attribute_flag::LABEL_RECORDING, 2)] {
        let attribute = SessionAttribute { affinities: None, setup: 7, holding: 7, flags, name: b"recorded" };
        let mut record = Vec::new();
        RecordedHop::Ipv4 { address: GATEWAY, prefix_len: 32, flags: 0 }.emit(&mut record);
        let record_route = RecordRoute::new(&record).ok();
        let wanted = Path { attribute: Some(attribute), record_route, ..path(GATEWAY) };
        alone.arrive(GATEWAY, Body::Path(wanted), &[]);
        let sent = alone.sent(kind::RESV);
        let Body::Resv(resv) = Body::parse(&Message::parse(&sent[0].1).unwrap()).unwrap().0 else { panic!() };
        let recorded: Vec<_> = resv.flows.iter().next().unwrap().record_route.unwrap().hops().collect();
        let all = [
            RecordedHop::Ipv4 { address: OWN, prefix_len: 32, flags: 0 },
            RecordedHop::Label { flags: 0, label: IMPLICIT_NULL },
        ];
        assert_eq!(recorded, all[..hops]);
    }
}

/// RFC 2961 section 4.3: any message may ask for an acknowledgement.
#[test]
fn confirmations_are_acknowledged() {
    let mut alone = Alone::egress();
    alone.arrive(GATEWAY, Body::Path(path(GATEWAY)), &[]);
    let mut list = Vec::new();
    let filter = path(GATEWAY).sender;
    Flow { flowspec: Some(TSPEC), filter, label: None, record_route: None }.emit(&mut list);
    let error = ErrorSpec { node: GATEWAY, flags: 0, code: error::CONFIRMATION, value: 0 };
    let (session, flows) = (path(GATEWAY).session, Flows::new(&list).unwrap());
    let conf = ResvConf { session, error, confirm: OWN, style: Style::FF, flows };
    alone.arrive(GATEWAY, Body::ResvConf(conf), &id(3));
    alone.run_to(0.1);
    assert_eq!(alone.counter("ack_sent"), 1);
}
