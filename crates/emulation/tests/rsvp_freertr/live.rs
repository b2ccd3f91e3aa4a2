//! The live run: freeRtr carries Ethernet frames in UDP datagrams on the loopback interface of a namespace of its own.

use super::*;
use std::fmt::Write;
use std::io::Write as _;
use std::net::UdpSocket;
use std::process::{Child, Command as Program, Stdio};
use std::time::Instant as Clock;

const HARDWARE: &str = "hwid test
int eth1 eth 0000.0000.2222 127.0.0.1 26021 127.0.0.1 26022
int eth2 eth 0000.0000.3333 127.0.0.1 26031 127.0.0.1 26032
";
const SOFTWARE: &str = "hostname dut
vrf def v1
 rd 1:1
 exit
int eth1
 vrf for v1
 ipv4 addr 198.18.1.1 255.255.255.0
 mpls enable
 mpls rsvp4
 exit
int eth2
 vrf for v1
 ipv4 addr 198.18.2.1 255.255.255.0
 mpls enable
 mpls rsvp4
 exit
int tun1
 tun sou eth2
 tun dest 198.18.2.2
 tun vrf v1
 tun mod p2pte
 vrf for v1
 ipv4 addr 192.0.2.1 255.255.255.252
 exit
ipv4 route v1 10.2.0.0 255.255.0.0 198.18.2.2
ipv4 route v1 10.1.0.0 255.255.0.0 198.18.1.2
end
";

/// freeRtr, killed at the end.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(classes: &str, folder: &std::path::Path) -> Running {
    for (name, text) in [("hw.txt", HARDWARE), ("sw.txt", SOFTWARE)] {
        std::fs::File::create(folder.join(name)).unwrap().write_all(text.as_bytes()).unwrap();
    }
    let mut java = Program::new("java");
    java.args(["-Xmx256m", "-cp", classes, "org.freertr.router", "routersc", "hw.txt", "sw.txt"]).current_dir(folder);
    Running(java.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
}

/// Runs `work` in a new network namespace: this program starts itself there.
fn in_namespace(test: &str, work: impl FnOnce()) {
    const INSIDE: &str = "RSVP_FREERTR_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        assert!(Program::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
        return work();
    }
    let me = std::env::current_exe().unwrap();
    let mut again = Program::new("unshare");
    again.arg("-n").arg(me).args(["--ignored", "--exact", "--nocapture", test]).env(INSIDE, "1");
    assert!(again.status().unwrap().success());
}

#[test]
#[ignore = "needs root and freeRtr"]
fn freertr_between_our_routers() {
    let Ok(classes) = std::env::var("FREERTR") else {
        println!("NOT CHECKED: FREERTR does not name the folder or jar with the classes of freeRtr");
        return;
    };
    in_namespace("rsvp_freertr::live::freertr_between_our_routers", || run(&classes));
}

fn run(classes: &str) {
    let folder = std::env::temp_dir().join(format!("drophammer-freertr-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let sockets = [(26022, 26021), (26032, 26031)].map(|(own, other)| {
        let socket = UdpSocket::bind(("127.0.0.1", own)).unwrap();
        socket.connect(("127.0.0.1", other)).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    });
    let freertr = start(classes, &folder);
    let mut routers = routers();
    let started = Clock::now();
    // Time of the recording begins when both gateways have answered.
    let (mut begin, mut released, mut torn, mut log) = (None, false, false, String::new());
    log.push_str("# ns ends frame; f is freeRtr\n");
    let mut buffer = [0; 2048];
    loop {
        assert!(started.elapsed() < Duration::from_secs(60), "freeRtr has not answered");
        let real = Instant(started.elapsed().as_nanos() as u64);
        let now = begin.map_or(real, |begin: Instant| Instant(real.0 - begin.0));
        let mut note = |ends: &str, frame: &[u8]| {
            if begin.is_some() && is_rsvp(frame) {
                write!(log, "{} {ends} ", now.0).unwrap();
                frame.iter().for_each(|byte| write!(log, "{byte:02x}").unwrap());
                log.push('\n');
            }
        };
        for (at, router) in routers.iter_mut().enumerate() {
            let mut out = Vec::new();
            while let Ok(length) = sockets[at].recv(&mut buffer) {
                note(["f>a", "f>b"][at], &buffer[..length]);
                router.receive(now, &buffer[..length], &mut |frame| out.push(frame.to_vec()));
            }
            if router.next_deadline().is_some_and(|due| due <= now) {
                router.poll(now, BUDGET, &mut |frame| out.push(frame.to_vec()));
            }
            for frame in out {
                note(["a>f", "b>f"][at], &frame);
                let _ = sockets[at].send(&frame);
            }
        }
        if begin.is_none() && routers.iter().all(Device::is_ready) {
            begin = Some(real);
            routers = super::routers();
            routers.iter_mut().zip(FREERTR).for_each(|(router, mac)| router.fix_gateway(mac));
            command(&mut routers[0], Instant(0), RsvpCommand::SetUp);
        } else if begin.is_some() && !released && now >= RELEASE {
            released = true;
            release(&mut routers, now);
        } else if begin.is_some() && !torn && now >= TEAR {
            torn = true;
            assert_up(&routers);
            command(&mut routers[0], now, RsvpCommand::TearDown);
        } else if begin.is_some() && now >= END {
            break;
        }
        std::thread::yield_now();
    }
    drop(freertr);
    std::fs::remove_dir_all(&folder).unwrap();
    if let Some(path) = std::env::var_os("RECORD") {
        std::fs::write(path, log).unwrap();
    }
    assert_down(&routers);
}
