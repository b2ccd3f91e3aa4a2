//! An emulated device at the tester's end of the link, in real time.

use drophammer_emulation::protocol::{Command, ProtocolConfig};
use drophammer_emulation::{Address, Device, DeviceConfig};
use drophammer_model::Instant;
use drophammer_port::af_packet::AfPacket;
use drophammer_port::clock::SystemClock;
use drophammer_port::{BURST, Clock, Port, wait};
use drophammer_wire::MacAddr;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

/// A device with one protocol on interface `t0`.
pub struct Station {
    pub device: Device,
    pub clock: SystemClock,
    port: AfPacket,
    queue: Vec<Vec<u8>>,
    /// Time, whether the device sent it, frame.
    frames: Vec<(Instant, bool, Vec<u8>)>,
}

/// Addresses of device 2 on the link.
pub fn config() -> DeviceConfig {
    let ipv4 = Address { address: [198, 18, 0, 2].into(), prefix_len: 24, gateway: [198, 18, 0, 1].into() };
    let [address, gateway] = [2, 1].map(|n| [0x2001, 2, 0, 0, 0, 0, 0, n].into());
    DeviceConfig {
        ipv4: Some(ipv4),
        ipv6: Some(Address { address, prefix_len: 64, gateway }),
        ..DeviceConfig::new("station", MacAddr::local(2), 1)
    }
}

/// True for packets of OSPF and BFD.
fn is_routing(frame: &[u8]) -> bool {
    let bfd = |at: usize| frame.get(at..at + 2) == Some(&[0x0e, 0xc8]);
    match frame.get(12..14) {
        Some([8, 0]) => frame.get(23) == Some(&89) || frame.get(23) == Some(&17) && bfd(36),
        Some([0x86, 0xdd]) => frame.get(20) == Some(&17) && bfd(56),
        _ => false,
    }
}

impl Station {
    /// Opens the port and starts the protocol.
    pub fn open(protocol: &ProtocolConfig) -> Result<Station, String> {
        let clock = SystemClock::start();
        let port = AfPacket::open("t0", clock).map_err(|e| e.to_string())?;
        let mut device = Device::new(config());
        let protocol = protocol.create(&config()).map_err(|e| e.to_string())?;
        let name = protocol.name();
        device.add_protocol(protocol);
        device.command(clock.now(), name, &Command::Start).map_err(|e| e.to_string())?;
        Ok(Station { device, clock, port, queue: Vec::new(), frames: Vec::new() })
    }

    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    pub fn command(&mut self, protocol: &str, command: &Command) -> Result<(), String> {
        self.device.command(self.clock.now(), protocol, command).map_err(|e| e.to_string())
    }

    /// Runs until `done`, for at most `limit`.
    pub fn run(
        &mut self,
        what: &str,
        limit: Duration,
        mut done: impl FnMut(&Device) -> Result<bool, String>,
    ) -> Result<(), String> {
        let end = self.clock.now() + limit;
        loop {
            let received = self.port.receive().map_err(|e| e.to_string())?;
            let came = !received.is_empty();
            for arrival in received.iter() {
                if is_routing(arrival.frame) {
                    self.frames.push((arrival.at, false, arrival.frame.to_vec()));
                }
                self.device.receive(arrival.at, arrival.frame, &mut |f| self.queue.push(f.to_vec()));
            }
            let now = self.clock.now();
            if self.device.next_deadline().is_some_and(|at| at <= now) {
                self.device.poll(now, 64 << 10, &mut |f| self.queue.push(f.to_vec()));
            }
            for burst in self.queue.chunks(BURST) {
                for (i, frame) in burst.iter().enumerate() {
                    self.port.slots().put(i, frame);
                }
                self.port.send(burst.len()).map_err(|e| e.to_string())?;
            }
            self.frames.extend(self.queue.drain(..).filter(|f| is_routing(f)).map(|f| (now, true, f)));
            if done(&self.device)? {
                return Ok(());
            }
            if now > end {
                let states: Vec<_> = self.device.protocols().map(|p| (p.name(), p.state())).collect();
                return Err(format!("{what}: not within {limit:?}; {:#?}", states.last()));
            }
            if !came {
                let next = self.device.next_deadline().map_or(Duration::from_millis(10), |at| at.since(now));
                let readable: Vec<_> = self.port.readable().into_iter().collect();
                wait::until_readable(&readable, next.min(Duration::from_millis(10))).map_err(|e| e.to_string())?;
            }
        }
    }

    /// Runs for this time.
    pub fn pass(&mut self, time: Duration) -> Result<(), String> {
        let end = self.clock.now() + time;
        let clock = self.clock;
        self.run("time passes", time * 2 + Duration::from_secs(1), move |_| Ok(clock.now() >= end))
    }

    /// Writes all packets so far to `tests/recorded/NAME.txt` if DROPHAMMER_RECORD is set.
    pub fn keep(&self, name: &str) -> Result<(), String> {
        if std::env::var_os("DROPHAMMER_RECORD").is_none() {
            return Ok(());
        }
        let mut text = format!("# {name}: seconds, sender, frame. `device` is the emulated one.\n");
        let start = self.frames.first().map_or(Instant(0), |(at, ..)| *at);
        for (at, own, frame) in &self.frames {
            let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
            let sender = if *own { "device" } else { "daemon" };
            let _ = writeln!(text, "{:.6} {sender} {hex}", at.since(start).as_secs_f64());
        }
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/recorded/{name}.txt"));
        std::fs::write(file, text).map_err(|e| e.to_string())
    }
}
