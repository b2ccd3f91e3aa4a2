//! freeRtr (github.com/mc36/freeRtr) in place of the kernel's network stack: it carries Ethernet frames in UDP datagrams, and a bridge takes them to the
//! links. The environment variable FREERTR names the folder or jar with its classes.

use crate::daemon::LINKS;
use drophammer_lab::Netns;
use drophammer_port::af_packet::AfPacket;
use drophammer_port::{BURST, Port, SystemClock};
use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Its interfaces: link 0 is `eth1`. Ports of received datagrams and of sent datagrams.
const HARDWARE: &str = "hwid test
int eth1 eth 0000.0000.2222 127.0.0.1 26021 127.0.0.1 26022
int eth2 eth 0000.0000.3333 127.0.0.1 26031 127.0.0.1 26032
";
const PORTS: [[u16; 2]; 2] = [[26021, 26022], [26031, 26032]];

/// Carries frames between the links and freeRtr until it is dropped.
pub struct Bridge {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

/// Takes the daemon's addresses away from the kernel, which would also answer, and connects the links with freeRtr.
fn bridge(netns: &Netns) -> Result<Bridge, String> {
    let flush: Vec<_> = (0..LINKS.len()).map(|link| format!("address flush dev d{link}")).collect();
    netns.ip(&flush).map_err(text)?;
    let mut bridge = Bridge { stop: Arc::default(), threads: Vec::new() };
    for (link, [there, here]) in PORTS.into_iter().enumerate() {
        let open = || {
            let socket = UdpSocket::bind(("127.0.0.1", here)).map_err(text)?;
            socket.connect(("127.0.0.1", there)).map_err(text)?;
            socket.set_nonblocking(true).map_err(text)?;
            let port = AfPacket::open(&format!("d{link}"), SystemClock::start()).map_err(text)?;
            Ok::<_, String>((socket, port))
        };
        let (socket, port) = netns.run(open).map_err(text)??;
        let stop = Arc::clone(&bridge.stop);
        bridge.threads.push(std::thread::spawn(move || {
            if let Err(e) = carry(&socket, port, &stop) {
                eprintln!("link {link}: {e}");
            }
        }));
    }
    Ok(bridge)
}

fn carry(socket: &UdpSocket, mut port: AfPacket, stop: &AtomicBool) -> Result<(), String> {
    let mut buffer = [0; 2048];
    while !stop.load(Ordering::Relaxed) {
        for arrival in port.receive().map_err(text)?.iter() {
            // Before freeRtr listens, the datagram is refused.
            let _ = socket.send(arrival.frame);
        }
        let mut frames = 0;
        while frames < BURST
            && let Ok(length) = socket.recv(&mut buffer)
        {
            port.slots().put(frames, &buffer[..length]);
            frames += 1;
        }
        port.send(frames).map_err(text)?;
        if frames == 0 {
            // Sockets are polled a thousand times a second: nothing is measured here.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}

/// Starts freeRtr with these lines of its configuration, in addition to the lines for the interfaces.
pub fn start(netns: &Netns, folder: &Path, config: &str) -> Result<(Bridge, Child), String> {
    let classes = std::env::var("FREERTR").map_err(|_| "FREERTR does not name the classes of freeRtr")?;
    let mut software = "hostname daemon\nvrf def v1\n rd 1:1\n exit\n".to_owned();
    for (link, [[ipv4, _], [ipv6, _]]) in LINKS.iter().enumerate() {
        software += &format!(
            "int eth{}\n vrf for v1\n ipv4 addr {ipv4} 255.255.255.0\n ipv6 addr {ipv6} ffff:ffff:ffff:ffff::\n mpls enable\n exit\n",
            link + 1
        );
    }
    software += config;
    for (name, text_of) in [("hw.txt", HARDWARE), ("sw.txt", &software)] {
        fs::write(folder.join(name), text_of).map_err(text)?;
    }
    let bridge = bridge(netns)?;
    let log = fs::File::create(folder.join("freertr.log")).map_err(text)?;
    let spawn = || {
        // It reads its own processor time in /proc, where it must have the number that it has in the lab.
        let mut java = Command::new("unshare");
        java.args([
            "--mount-proc",
            "java",
            "-Xmx256m",
            "-cp",
            &classes,
            "org.freertr.router",
            "routersc",
            "hw.txt",
            "sw.txt",
        ]);
        java.current_dir(folder).stdin(Stdio::piped()).stdout(log).stderr(Stdio::null()).spawn()
    };
    let child = netns.run(spawn).map_err(text)?.map_err(|e| format!("java: {e}"))?;
    Ok((bridge, child))
}
