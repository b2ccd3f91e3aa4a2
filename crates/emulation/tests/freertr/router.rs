//! freeRtr in a namespace of its own: it carries Ethernet frames in UDP datagrams on the loopback interface.

use drophammer_emulation::Device;
use drophammer_emulation::protocol::Command;
use drophammer_model::Instant;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command as Program, Stdio};
use std::time::{Duration, Instant as Clock};

/// Configures `eth1`, with the MAC address of a gateway in recordings, and the console.
const HARDWARE: &str = "hwid test\ntcp2vrf 2323 v1 23\nint eth1 eth 0200.0000.0001 127.0.0.1 26021 127.0.0.1 26022\n";
const COMMON: &str = "hostname dut\nvrf def v1\n rd 1:1\n label-mode per-prefix\n exit\nserver telnet x\n vrf v1\n exec privilege 15\n \
                      no exec authentication\n no login authentication\n exit\n";

/// Runs `work` in a new network namespace: this program starts itself there. `work` gets the classes of freeRtr.
pub fn in_namespace(test: &str, work: impl FnOnce(&str)) {
    let Ok(classes) = std::env::var("FREERTR") else {
        println!("NOT CHECKED: FREERTR does not name the folder or jar with the classes of freeRtr");
        return;
    };
    const INSIDE: &str = "FREERTR_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        assert!(Program::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
        return work(&classes);
    }
    let me = std::env::current_exe().unwrap();
    let mut again = Program::new("unshare");
    again.arg("-n").arg(me).args(["--ignored", "--exact", "--nocapture", test]).env(INSIDE, "1");
    assert!(again.status().unwrap().success());
}

/// A frame: time, whether the device sent it, bytes.
pub type Sent = (Instant, bool, Vec<u8>);

/// freeRtr, killed at the end, and an emulated device on its link.
pub struct Lab {
    pub device: Device,
    pub frames: Vec<Sent>,
    socket: UdpSocket,
    begun: Clock,
    router: Child,
    folder: PathBuf,
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Lab {
    /// Starts freeRtr with these lines of configuration, and waits until its console answers. Time begins then.
    pub fn begin(classes: &str, software: &str, device: Device) -> Lab {
        let folder = std::env::temp_dir().join(format!("drophammer-freertr-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (name, text) in [("hw.txt", HARDWARE), ("sw.txt", &format!("{COMMON}{software}end\n"))] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        let socket = UdpSocket::bind("127.0.0.1:26022").unwrap();
        socket.connect("127.0.0.1:26021").unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut java = Program::new("java");
        java.args(["-Xmx256m", "-cp", classes, "org.freertr.router", "routersc", "hw.txt", "sw.txt"])
            .current_dir(&folder);
        let router = java.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut lab = Lab { device, frames: Vec::new(), socket, begun: Clock::now(), router, folder };
        while lab.console(&[]).is_none() {
            assert!(lab.begun.elapsed() < Duration::from_secs(120), "freeRtr does not start");
            std::thread::yield_now();
        }
        // Earlier output is stale.
        while lab.socket.recv(&mut [0; 2048]).is_ok() {}
        lab.begun = Clock::now();
        lab
    }

    pub fn now(&self) -> Instant {
        Instant(self.begun.elapsed().as_nanos() as u64)
    }

    pub fn command(&mut self, protocol: &str, command: &Command) {
        self.device.command(self.now(), protocol, command).unwrap();
    }

    pub fn kill(&mut self) {
        let _ = self.router.kill();
        let _ = self.router.wait();
    }

    /// What the console prints in reply to these lines; `None` if it does not answer.
    pub fn console(&self, lines: &[&str]) -> Option<String> {
        let mut console = TcpStream::connect("127.0.0.1:2323").ok()?;
        console.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
        let (mut told, mut buffer) = (Vec::new(), [0; 4096]);
        let ended = |told: &[u8]| String::from_utf8_lossy(told).trim_end().ends_with('#');
        for line in [&["terminal length 0"], lines].concat() {
            while !ended(&told) {
                let length = console.read(&mut buffer).ok().filter(|length| *length > 0)?;
                told.extend_from_slice(&buffer[..length]);
            }
            told.clear();
            console.write_all(format!("{line}\r").as_bytes()).ok()?;
        }
        // The last line is complete when no more output comes.
        console.set_read_timeout(Some(Duration::from_millis(500))).ok()?;
        while let Ok(length @ 1..) = console.read(&mut buffer) {
            told.extend_from_slice(&buffer[..length]);
        }
        Some(String::from_utf8_lossy(&told).into_owned())
    }

    /// Runs until `done`, for at most 90 s.
    pub fn run(&mut self, what: &str, mut done: impl FnMut(&Device) -> bool) {
        let begun = Clock::now();
        let mut buffer = [0; 2048];
        while !done(&self.device) {
            if begun.elapsed() > Duration::from_secs(90) {
                let states: Vec<_> = self.device.protocols().map(|p| (p.name(), p.state())).collect();
                panic!("{what}: not in 90 s; {states:#?}");
            }
            let (now, mut out) = (self.now(), Vec::new());
            while let Ok(length) = self.socket.recv(&mut buffer) {
                self.frames.push((now, false, buffer[..length].to_vec()));
                self.device.receive(now, &buffer[..length], &mut |frame| out.push(frame.to_vec()));
            }
            if self.device.next_deadline().is_some_and(|due| due <= now) {
                self.device.poll(now, 64 << 10, &mut |frame| out.push(frame.to_vec()));
            }
            for frame in out {
                let _ = self.socket.send(&frame);
                self.frames.push((now, true, frame));
            }
            std::thread::yield_now();
        }
    }

    /// Runs for this time.
    pub fn pass(&mut self, time: Duration) {
        let end = Clock::now() + time;
        self.run("time", |_| Clock::now() >= end);
    }

    /// Writes the parts of frames that `pick` selects to `tests/recorded/NAME.txt` if DROPHAMMER_RECORD is set.
    pub fn keep(&self, name: &str, pick: impl Fn(&[u8]) -> Option<Vec<u8>>) {
        if std::env::var_os("DROPHAMMER_RECORD").is_none() {
            return;
        }
        let mut text = format!("# {name}: seconds, sender, bytes. `device` is the emulated one.\n");
        for (at, own, frame) in &self.frames {
            if let Some(bytes) = pick(frame) {
                let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                let sender = if *own { "device" } else { "daemon" };
                writeln!(text, "{:.6} {sender} {hex}", at.0 as f64 / 1e9).unwrap();
            }
        }
        let file = format!("{}/tests/recorded/{name}.txt", env!("CARGO_MANIFEST_DIR"));
        std::fs::write(file, text).unwrap();
    }
}
