//! How fast emulated TCP is over a veth pair into a kernel that reads and throws away, against the kernel's own TCP without
//! segmentation offload (one frame per segment, as ours): the same bytes, alternating, in one run. Prints medians and their
//! ratio. "From the kernel" is the other direction, where the kernel sends segments of up to 64 KiB. In brackets: milliseconds that the
//! processor worked for the sending (or receiving) thread, so that others on the machine matter less; what the kernel receives for
//! the other side on the same processor is in them.
//!
//! `cargo bench -p drophammer-testbed --bench tcp_blast`; the lab needs a user namespace or root.

mod kernel;
#[path = "../tests/common/station.rs"]
mod station;

use drophammer_emulation::tcp::{ConnState, TcpConfig};
use drophammer_lab::Netns;
use kernel::{Outcome, median, text};
use station::{Station, addresses, ethtool, links};
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

const ROUNDS: usize = 21;
const SIZES: [usize; 2] = [4_100_000, 16_400_000];
const SEND_BUFFERS: [usize; 2] = [256 << 10, 1 << 20];
const LIMIT: Duration = Duration::from_secs(10);
/// Address of the kernel when it sends to itself.
const KERNEL_SOURCE: &str = "198.18.1.9";

/// A kernel's listener in the peer's namespace.
fn listen(peer: &Netns) -> Outcome<TcpListener> {
    peer.run(|| TcpListener::bind((addresses(false)[0], 179))).map_err(text)?.map_err(text)
}

/// Reads until the end; replies with the number of bytes.
fn sink(mut stream: TcpStream) -> Outcome<usize> {
    let (mut buffer, mut total) = (vec![0; 256 << 10], 0);
    loop {
        match stream.read(&mut buffer).map_err(text)? {
            0 => return Ok(total),
            n => total += n,
        }
    }
}

/// Seconds from the first segment until the kernel has read `bytes`, and frames that were refused.
fn ours(station: &mut Station, peer: &Netns, bytes: usize) -> Outcome<f64> {
    let listener = listen(peer)?;
    let reader = thread::spawn(move || sink(listener.accept().map_err(text)?.0).map(|n| (n, Instant::now())));
    let id = station.connect(false, 179)?;
    let begun = Instant::now();
    let mut sent = 0;
    station.run(LIMIT, |station| {
        let tcp = &mut station.tcp;
        while sent < bytes {
            let n = tcp.send_with(id, &mut |room| room.len().min(bytes - sent));
            sent += n;
            if n == 0 {
                break;
            }
        }
        if sent == bytes {
            tcp.close(id);
        }
        tcp.state(id) != ConnState::Established
    })?;
    let (read, done) = reader.join().map_err(|_| "panicked")??;
    station.tcp.remove(id);
    if read != bytes {
        return Err(format!("{read} of {bytes} came, {:?}", station.tcp.state(id)));
    }
    Ok((done - begun).as_secs_f64())
}

/// As [`ours`], from the kernel on this side.
fn kernel(peer: &Netns, bytes: usize) -> Outcome<f64> {
    let listener = listen(peer)?;
    let reader = thread::spawn(move || sink(listener.accept().map_err(text)?.0).map(|n| (n, Instant::now())));
    let begun = kernel::send(addresses(false)[0], bytes)?;
    let (read, done) = reader.join().map_err(|_| "panicked")??;
    if read != bytes {
        return Err(format!("{read} of {bytes} came"));
    }
    Ok((done - begun).as_secs_f64())
}

/// Seconds in which we receive `bytes` from the kernel.
fn inward(station: &mut Station, peer: &Netns, bytes: usize) -> Outcome<f64> {
    let listener = listen(peer)?;
    let writer = thread::spawn(move || {
        let (mut stream, _) = listener.accept().map_err(text)?;
        stream.write_all(&vec![0; bytes]).map_err(text)
    });
    let begun = Instant::now();
    let id = station.connect(false, 179)?;
    let mut taken = 0;
    station.run(LIMIT, |station| {
        taken += station.tcp.receive_with(id, &mut |b| b.len());
        station.tcp.state(id) != ConnState::Established
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    station.tcp.abort(id);
    station.run(LIMIT, |s| s.tcp.next_deadline().is_none_or(|at| at.0 > 0))?;
    station.tcp.remove(id);
    writer.join().map_err(|_| "panicked")??;
    if taken != bytes { Err(format!("{taken} of {bytes} came")) } else { Ok(seconds) }
}

/// Seconds that a processor has worked for this thread.
fn worked_s() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

/// The result of `work`, and how long the processor worked for it on this thread.
fn with_work(into: &mut [Vec<f64>; 2], work: impl FnOnce() -> Outcome<f64>) -> Outcome<()> {
    let begun = worked_s();
    into[0].push(work()?);
    into[1].push(worked_s() - begun);
    Ok(())
}

/// Resident memory of this process in KiB.
fn resident_kib() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|pages| pages.parse::<f64>().ok()).unwrap_or(0.0) * 4.0
}

/// Many hosts with small buffers, each with one connection to the kernel that is then idle.
fn many(station: &mut Station, peer: &Netns) -> Outcome<()> {
    const HOSTS: u32 = 1_504;
    let IpAddr::V4(own) = addresses(false)[1] else { return Err("family".into()) };
    peer.ip(&[format!("route add 198.19.0.0/16 via {own}")]).map_err(text)?;
    let listener = listen(peer)?;
    let accepting =
        thread::spawn(move || (0..HOSTS).map(|_| listener.accept().map(|a| a.0)).collect::<Result<Vec<_>, _>>());
    station.tcp.set_buffers(16 << 10, 16 << 10);
    let before = resident_kib();
    let begun = Instant::now();
    let mut ids = Vec::new();
    for host in 0..HOSTS {
        let address = IpAddr::V4((0xc613_0000 + host).into());
        station.tcp.add_host(address);
        ids.push(station.tcp.connect(station.now(), address, (addresses(false)[0], 179).into()));
        // The kernel's listener has a short queue and may forget connections that do not fit.
        if ids.len() % 64 == 0 || host + 1 == HOSTS {
            station.run(LIMIT, |s| ids.iter().rev().take(64).all(|id| s.tcp.state(*id) == ConnState::Established))?;
        }
    }
    station.run(LIMIT, |_| accepting.is_finished())?;
    let connected = begun.elapsed();
    let memory = (resident_kib() - before) / f64::from(HOSTS);
    let theirs = accepting.join().map_err(|_| "panicked")?.map_err(text)?;
    let (worked, begun) = (worked_s(), Instant::now());
    station.run(LIMIT, |_| begun.elapsed() > Duration::from_secs(3))?;
    let idle = (worked_s() - worked) / begun.elapsed().as_secs_f64() * 100.0;
    println!(
        "{} hosts connected in {:.1} ms, {memory:.1} KiB each; idle for {idle:.2} % of a processor",
        theirs.len(),
        connected.as_secs_f64() * 1e3,
    );
    Ok(())
}

fn bench() -> Outcome<()> {
    let (lab, peer) = links()?;
    let source = [format!("addr add {KERNEL_SOURCE}/24 dev t0")];
    lab.tester().and_then(|t| t.ip(&source)).map_err(text)?;
    // The kernel on this side sends the frames that we send.
    ethtool(&["t0", "tso", "off", "gso", "off"])?;
    lab.tester().and_then(|t| t.ip(&["route add 198.18.1.1/32 dev t0 mtu 1500".to_owned()])).map_err(text)?;
    let config = TcpConfig { verify_checksums: false, ..TcpConfig::new(1500, 1) };
    let mut station = Station::open(config)?;
    for (bytes, send_buffer) in SIZES.into_iter().flat_map(|b| SEND_BUFFERS.map(|s| (b, s))) {
        station.tcp.set_buffers(send_buffer, config.receive_buffer);
        let mut seconds: [[Vec<f64>; 2]; 3] = Default::default();
        for _ in 0..ROUNDS {
            let [us, them, inwards] = &mut seconds;
            with_work(us, || ours(&mut station, &peer, bytes))?;
            with_work(them, || kernel(&peer, bytes))?;
            with_work(inwards, || inward(&mut station, &peer, bytes))?;
        }
        let [us, them, inwards] = seconds.map(|s| s.map(|mut s| median(&mut s) * 1e3));
        println!(
            "{:5.1} MB, send buffer {:4} KiB: ours {:6.1} ms ({:5.1} of the processor), kernel without GSO {:6.1} ms ({:5.1}), \
             ratio {:4.2} ({:4.2}); from the kernel {:6.1} ms ({:5.1})",
            bytes as f64 / 1e6,
            send_buffer >> 10,
            us[0],
            us[1],
            them[0],
            them[1],
            us[0] / them[0],
            us[1] / them[1],
            inwards[0],
            inwards[1],
        );
    }
    println!("frames refused: {}", station.refused);
    many(&mut station, &peer)?;
    Ok(())
}

fn main() {
    kernel::main(bench);
}
