//! Emulated TCP against the kernel's TCP over a veth pair: 10 MB in each direction, IPv4 and IPv6, active and passive,
//! while the kernel sends segments of up to 64 KiB with incomplete checksums. Then connections that are signed (TCP
//! MD5) and accepted only from the link (GTSM).

use crate::anew::Case;
use crate::station::{Station, addresses, links};
use drophammer_emulation::tcp::{CloseReason, ConnState, ConnectionId, Protection, Refusals, TcpConfig};
use drophammer_lab::Netns;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

const BYTES: usize = 10_000_000;
const LIMIT: Duration = Duration::from_secs(20);

fn byte(i: usize) -> u8 {
    (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0]
}

/// The kernel's side of a connection: reads all data, checks it, and sends the same amount.
fn mirror(mut stream: TcpStream) -> Result<(), String> {
    let fail = |e: std::io::Error| e.to_string();
    stream.set_read_timeout(Some(LIMIT)).map_err(fail)?;
    stream.set_write_timeout(Some(LIMIT)).map_err(fail)?;
    let mut bytes = vec![0; BYTES];
    stream.read_exact(&mut bytes).map_err(fail)?;
    if let Some(i) = bytes.iter().enumerate().position(|(i, b)| *b != byte(i)) {
        return Err(format!("byte {i} came out wrong"));
    }
    stream.write_all(&bytes).map_err(fail)?;
    stream.shutdown(Shutdown::Write).map_err(fail)?;
    match stream.read(&mut [0]).map_err(fail)? {
        0 => Ok(()),
        _ => Err("more came than was sent".into()),
    }
}

/// Our side of a connection: sends all data, receives the same amount, and closes when the kernel has closed.
fn there_and_back(station: &mut Station, id: ConnectionId) -> Result<(), String> {
    let (mut sent, mut received, mut wrong) = (0, 0, None);
    station.run(LIMIT, |station| {
        let tcp = &mut station.tcp;
        while sent < BYTES
            && tcp.send_with(id, &mut |room| {
                let n = room.len().min(BYTES - sent);
                room[..n].iter_mut().enumerate().for_each(|(i, b)| *b = byte(sent + i));
                sent += n;
                n
            }) > 0
        {}
        tcp.receive_with(id, &mut |bytes| {
            wrong =
                wrong.or(bytes.iter().enumerate().position(|(i, b)| *b != byte(received + i)).map(|i| received + i));
            received += bytes.len();
            bytes.len()
        });
        tcp.state(id) != ConnState::Established
    })?;
    let state = station.tcp.state(id);
    if (sent, received, wrong, state) != (BYTES, BYTES, None, ConnState::PeerClosed) {
        return Err(format!("sent {sent}, received {received}, first wrong at {wrong:?}, {state:?}"));
    }
    station.tcp.close(id);
    station.run(LIMIT, |s| s.tcp.state(id) == ConnState::Closed(CloseReason::Peer))?;
    station.tcp.remove(id);
    Ok(())
}

/// Echoes one connection that is signed with a key (TCP MD5) and comes from the link (GTSM): `FAMILY OWN PEER KEY`. There is no safe way to
/// set these options from Rust.
const KERNEL_SIDE: &str = r#"
import socket, struct, sys
v6, own, peer, key = sys.argv[1] == "6", sys.argv[2], sys.argv[3], sys.argv[4].encode()
family = socket.AF_INET6 if v6 else socket.AF_INET
address = socket.inet_pton(family, peer)
name = struct.pack("=HHI16sI", family, 0, 0, address, 0) if v6 else struct.pack("=HH4s", family, 0, address)
listener = socket.socket(family, socket.SOCK_STREAM)
listener.setsockopt(socket.IPPROTO_TCP, 14, name.ljust(128, b"\0") + struct.pack("=BBHi80s", 0, 0, len(key), 0, key))
if v6:
    listener.setsockopt(socket.IPPROTO_IPV6, 16, 255)
    listener.setsockopt(socket.IPPROTO_IPV6, 73, 255)
else:
    listener.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 255)
    listener.setsockopt(socket.IPPROTO_IP, 21, 255)
listener.bind((own, 180))
listener.listen()
print("listening", flush=True)
connection = listener.accept()[0]
connection.settimeout(20)
data = b""
while len(data) < 1000000:
    data += connection.recv(65536)
connection.sendall(data)
connection.shutdown(socket.SHUT_WR)
connection.recv(1)
"#;

/// Signed connections with the kernel; the kernel refuses a wrong key, and a sender that is not on the link.
fn protected(station: &mut Station, peer: &Netns, v6: bool) -> Result<(), String> {
    let [kernel, own] = addresses(v6).map(|address| address.to_string());
    let start = || {
        let mut python = Command::new("python3");
        let arguments = ["-c", KERNEL_SIDE, if v6 { "6" } else { "4" }, &kernel, &own, "secret"];
        python.args(arguments).stdout(Stdio::piped()).spawn()
    };
    let mut child = peer.run(start).map_err(|e| e.to_string())?.map_err(|e| format!("python3: {e}"))?;
    let mut line = [0; 10];
    let mut output = child.stdout.take().ok_or("no output")?;
    let done = output.read_exact(&mut line).map_err(|e| format!("python3: {e}")).and_then(|()| signed(station, v6));
    if done.is_err() {
        child.kill().map_err(|e| e.to_string())?;
    }
    let ended = child.wait().map_err(|e| e.to_string())?;
    done?;
    ended.success().then_some(()).ok_or_else(|| format!("the kernel's side: {ended}"))
}

/// Our side of a signed connection.
fn signed(station: &mut Station, v6: bool) -> Result<(), String> {
    const SIGNED: usize = 1_000_000;
    let [kernel, own] = addresses(v6);
    let key = |key: &str, hops| Protection { md5_key: Some(key.into()), ttl_security_hops: hops };
    for refused in [key("secret", None), key("other", Some(1)), Protection { md5_key: None, ..key("", Some(1)) }] {
        station.tcp.protect(own, kernel, refused.clone());
        let before = station.tcp.connections();
        let id = station.tcp.connect(station.now(), own, (kernel, 180).into());
        let came = station.run(Duration::from_secs(1), |s| s.tcp.state(id) != ConnState::Connecting);
        if came.is_ok() {
            return Err(format!("the kernel lets in {refused:?}: {:?}", station.tcp.state(id)));
        }
        station.tcp.remove(id);
        station.run(LIMIT, |s| s.tcp.connections() == before)?;
    }
    station.tcp.protect(own, kernel, key("secret", Some(1)));
    let id = station.connect(v6, 180)?;
    let (mut sent, mut received, mut wrong) = (0, 0, 0);
    station.run(LIMIT, |station| {
        let tcp = &mut station.tcp;
        tcp.send_with(id, &mut |room| {
            let n = room.len().min(SIGNED - sent);
            room[..n].iter_mut().enumerate().for_each(|(i, b)| *b = byte(sent + i));
            sent += n;
            n
        });
        tcp.receive_with(id, &mut |bytes| {
            wrong += bytes.iter().enumerate().filter(|(i, b)| **b != byte(received + i)).count();
            received += bytes.len();
            bytes.len()
        });
        tcp.state(id) != ConnState::Established
    })?;
    let refusals = station.tcp.refusals();
    if (sent, received, wrong, refusals) != (SIGNED, SIGNED, 0, Refusals::default()) {
        return Err(format!("signed: sent {sent}, received {received}, {wrong} wrong, {refusals:?}"));
    }
    station.tcp.close(id);
    station.run(LIMIT, |s| s.tcp.state(id) == ConnState::Closed(CloseReason::Peer))?;
    station.tcp.remove(id);
    Ok(())
}

fn checked() -> Result<(), String> {
    let (_lab, peer) = links()?;
    let config = TcpConfig { verify_checksums: false, ..TcpConfig::new(1500, 1) };
    let mut station = Station::open(config)?;
    for v6 in [false, true] {
        let [kernel, own] = addresses(v6);
        // Active: the kernel listens.
        let listener =
            peer.run(|| TcpListener::bind((kernel, 179))).map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
        let theirs = thread::spawn(move || mirror(listener.accept().map_err(|e| e.to_string())?.0));
        let id = station.connect(v6, 179)?;
        there_and_back(&mut station, id)?;
        theirs.join().map_err(|_| "panicked")??;
        // The listener no longer exists.
        let refused = station.connect(v6, 179);
        if refused != Err(format!("{:?}", ConnState::Closed(CloseReason::Refused))) {
            return Err(format!("{refused:?}"));
        }
        // Passive: the kernel connects.
        let listener = station.tcp.listen(own, 179);
        let theirs = thread::scope(|scope| {
            let connect = scope.spawn(|| peer.run(|| TcpStream::connect((own, 179))));
            let mut id = None;
            station.run(LIMIT, |s| {
                id = s.tcp.accept(listener);
                id.is_some()
            })?;
            let stream =
                connect.join().map_err(|_| "panicked")?.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
            let theirs = thread::spawn(move || mirror(stream));
            there_and_back(&mut station, id.ok_or("nobody")?)?;
            Ok::<_, String>(theirs)
        })?;
        theirs.join().map_err(|_| "panicked")??;
        protected(&mut station, &peer, v6)?;
    }
    // If this fails, offload was off, and the test shows less than it claims.
    (station.longest > 10_000).then_some(()).ok_or_else(|| format!("no frame above {} bytes", station.longest))
}

/// The test.
pub fn cases() -> Vec<Case> {
    vec![Case::alone("emulated_and_kernel_tcp_understand_each_other", checked).long()]
}
