//! Emulated TCP over a veth pair with the kernel's: 10 MB out and in, IPv4 and IPv6, active and passive, while the kernel
//! sends segments of up to 64 KiB with unfinished checksums.
//!
//! The lab has to be entered by a process with one thread, so this test has no harness.

#[path = "common/station.rs"]
mod station;

use drophammer_emulation::tcp::{CloseReason, ConnState, ConnectionId, TcpConfig};
use station::{Station, addresses, links};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

const BYTES: usize = 10_000_000;
const LIMIT: Duration = Duration::from_secs(20);

fn byte(i: usize) -> u8 {
    (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0]
}

/// The kernel's side of a connection: reads all, checks it, and sends as much.
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

/// Our side: sends all, takes as much back, and closes when the kernel has closed.
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
        // Nobody listens any more.
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
    }
    // Else offload was off, and this test shows less than it says.
    (station.longest > 10_000).then_some(()).ok_or_else(|| format!("no frame above {} bytes", station.longest))
}

fn main() -> ExitCode {
    if std::env::args().any(|a| a == "--list") {
        println!("emulated_and_kernel_tcp_understand_each_other: test");
        return ExitCode::SUCCESS;
    }
    let result = checked();
    println!("test emulated_and_kernel_tcp_understand_each_other ... {}", if result.is_ok() { "ok" } else { "FAILED" });
    match result {
        Ok(()) => {
            // The line that cargo's own harness ends with, for those who add such lines up.
            println!("\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
            ExitCode::SUCCESS
        }
        Err(e) => {
            println!("    {e}");
            ExitCode::FAILURE
        }
    }
}
