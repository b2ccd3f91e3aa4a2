//! Several queues of one interface, each opened as a port.

use super::{Bench, Checked, SILENCE, check, frame, sign};
use drophammer_port::{BURST, Clock, Port, PortError, Queue, set_link};
use drophammer_wire::signature::{LEN, Signature};

type Queues = Vec<Box<dyn Port + Send>>;

const FLOWS: u32 = 64;
/// Frames of each flow.
const FRAMES: u64 = 500;

/// Both ends with two queues in each direction.
fn links(bench: &Bench, name: &str) -> Checked {
    bench.ip(&["link delete t0"])?;
    let queues = "numtxqueues 2 numrxqueues 2";
    let up = ["t0", "t1"].map(|name| format!("link set {name} arp off multicast off addrgenmode none up"));
    bench.ip(&[&format!("link add t0 {queues} type veth peer name t1 {queues}"), &up[0], &up[1]])?;
    check(name != "live_frames", || "this backend has one queue".into())
}

fn open(bench: &Bench, interface: &str, count: u32) -> Result<Queues, PortError> {
    (bench.backend.begin)(&[interface], count, bench.clock)
}

/// A test frame of `flow`: the flows differ in their addresses.
fn frame_of(flow: u32, sequence: u64) -> Vec<u8> {
    let mut f = frame(false, 60, flow, sequence);
    f[26..30].copy_from_slice(&(0x0a00_0001 + flow).to_be_bytes());
    f[30..34].copy_from_slice(&(0x0a80_0001 + flow * 7).to_be_bytes());
    sign(&mut f, flow, sequence);
    f
}

/// Takes frames at any queue until none has arrived for a while; passes queue and frame to `see`.
fn take_all(bench: &Bench, ports: &mut Queues, mut see: impl FnMut(usize, &[u8]) -> Checked) -> Checked {
    let mut last = bench.clock.now();
    loop {
        // If this thread did not get its processor for a while, frames may be waiting.
        let (silent, mut none) = (bench.clock.now().since(last) > SILENCE, true);
        for (queue, port) in ports.iter_mut().enumerate() {
            let frames = port.receive().map_err(|e| e.to_string())?;
            if !frames.is_empty() {
                (last, none) = (bench.clock.now(), false);
            }
            frames.iter().try_for_each(|a| see(queue, a.frame))?;
        }
        if silent && none {
            return Ok(());
        }
    }
}

fn drops(ports: &mut Queues) -> Result<Vec<u64>, String> {
    ports.iter_mut().map(|p| p.counters().map(|c| c.receive_drops).map_err(|e| e.to_string())).collect()
}

/// Sends a burst of `frames` from one queue, all of which must leave.
fn send(port: &mut dyn Port, frames: &[Vec<u8>]) -> Checked {
    frames.iter().enumerate().for_each(|(i, f)| port.slots().put(i, f));
    let sent = port.send(frames.len()).map_err(|e| e.to_string())?;
    check(sent.accepted as usize == frames.len(), || format!("{sent:?} of {}", frames.len()))
}

/// Opens two queues at each end; for `live_frames` the error message is checked instead.
fn both_ends(bench: &Bench) -> Result<Option<[Queues; 2]>, String> {
    if links(bench, bench.name).is_err() {
        return match open(bench, "t0", 2) {
            Err(e) if e.to_string().contains("opens one") => Ok(None),
            other => Err(format!("{:?}", other.map(|ports| ports.len()))),
        };
    }
    let ends = ["t0", "t1"].map(|name| open(bench, name, 2).map_err(|e| e.to_string()));
    let [near, far] = ends;
    let (near, far) = (near?, far?);
    for (interface, ports) in [("t0", &near), ("t1", &far)] {
        let found: Vec<_> = ports.iter().map(|p| (p.info().interface.as_str(), p.info().queue)).collect();
        let wanted = [0, 1].map(|index| (interface, Queue { index, count: 2 }));
        check(ports.iter().all(|p| !p.info().merges_queues), || format!("{interface}: no card is behind a veth pair"))?;
        check(found == wanted, || format!("{found:?}"))?;
    }
    Ok(Some([near, far]))
}

/// A frame sent from any queue arrives once; each flow arrives at one queue, in order.
pub fn every_frame(bench: &Bench) -> Checked {
    let Some([mut near, mut far]) = both_ends(bench)? else { return Ok(()) };
    let mut next = [0u64; FLOWS as usize];
    let mut at: [Option<usize>; FLOWS as usize] = [None; FLOWS as usize];
    let mut came = [0u64; 2];
    let mut see = |queue: usize, frame: &[u8]| {
        let signature = frame[frame.len() - LEN..].try_into().map_err(|_| "short frame".to_owned())?;
        let Signature { flow, sequence, .. } = Signature::read(signature).0;
        let flow = flow as usize;
        check(flow < next.len() && frame == frame_of(flow as u32, next[flow]), || {
            format!("flow {flow}: {sequence} after {}, or damaged: {frame:x?}", next[flow])
        })?;
        check(*at[flow].get_or_insert(queue) == queue, || format!("flow {flow} is at two queues"))?;
        next[flow] += 1;
        came[queue] += 1;
        Ok(())
    };
    for sequence in 0..FRAMES {
        for queue in 0..2 {
            let burst: Vec<_> = (0..FLOWS).filter(|f| f % 2 == queue).map(|f| frame_of(f, sequence)).collect();
            send(near[queue as usize].as_mut(), &burst)?;
            for (queue, port) in far.iter_mut().enumerate() {
                let frames = port.receive().map_err(|e| e.to_string())?;
                frames.iter().try_for_each(|a| see(queue, a.frame))?;
            }
        }
    }
    take_all(bench, &mut far, &mut see)?;
    println!("    {} and {} frames at the two queues", came[0], came[1]);
    check(next == [FRAMES; FLOWS as usize], || format!("{next:?} frames came"))?;
    check(came.iter().all(|n| *n > 0), || "one queue got nothing".into())?;
    // Frames that af_xdp sends from a queue of veth arrive at the same queue of the other end.
    let same = at.iter().enumerate().all(|(flow, queue)| *queue == Some(flow % 2));
    check(same || bench.name != "af_xdp", || format!("{at:?}"))?;
    let back = near.iter_mut().map(|p| p.receive().map_or(0, |r| r.len())).sum::<usize>();
    let lost = drops(&mut far)?;
    check(back == 0 && lost == [0, 0], || format!("{back} frames came back, {lost:?} were dropped"))
}

/// Frames that are not test frames arrive once as well, at any queue.
pub fn other_frames(bench: &Bench) -> Checked {
    let Some([mut near, mut far]) = both_ends(bench)? else { return Ok(()) };
    let mut other = |flow: u32| {
        let mut f = frame_of(flow, u64::from(flow));
        f[37] = 10;
        f
    };
    let mut wanted: Vec<Vec<u8>> = (0..FLOWS).map(&mut other).collect();
    for (queue, burst) in wanted.chunks(BURST / 4).enumerate() {
        send(near[queue % 2].as_mut(), burst)?;
    }
    let mut came = Vec::new();
    take_all(bench, &mut far, |_, frame| {
        came.push(frame.to_vec());
        Ok(())
    })?;
    came.sort();
    wanted.sort();
    check(came == wanted, || format!("{} of {} frames came", came.len(), wanted.len()))
}

/// A queue counts the frames that it has lost.
pub fn overflow(bench: &Bench) -> Checked {
    const COUNT: u64 = 200_000;
    let Some([mut near, mut far]) = both_ends(bench)? else { return Ok(()) };
    for first in (0..COUNT).step_by(BURST / 2) {
        let burst: Vec<_> = (first..first + BURST as u64 / 2).map(|n| frame_of(5, n)).collect();
        send(near[1].as_mut(), &burst)?;
    }
    let mut came = [0u64; 2];
    take_all(bench, &mut far, |queue, _| {
        came[queue] += 1;
        Ok(())
    })?;
    let lost = drops(&mut far)?;
    println!("    {came:?} came, {lost:?} were dropped");
    check(came.iter().chain(&lost).sum::<u64>() == COUNT, || "these do not add up".into())?;
    let one = (0..2).any(|q| lost[q] > 0 && came[q] > 0 && lost[1 - q] + came[1 - q] == 0);
    check(one, || "the loss is not where the frames came".into())
}

/// A link that one queue takes down is down for all queues, without an error.
pub fn unplugged(bench: &Bench) -> Checked {
    let Some([mut near, mut far]) = both_ends(bench)? else { return Ok(()) };
    for up in [false, true, false, true] {
        match set_link(near[0].as_mut(), up) {
            Err(e) => return check(matches!(e, PortError::Link { .. }) && bench.name != "af_packet", || e.to_string()),
            Ok(()) => near.iter_mut().try_for_each(|p| send(p.as_mut(), &[frame_of(1, 0)]))?,
        }
        let mut came = 0;
        take_all(bench, &mut far, |_, _| {
            came += 1;
            Ok(())
        })?;
        take_all(bench, &mut near, |_, _| Err("nobody sends to here".into()))?;
        // A socket that is informed only now that the link was down in the meantime loses that burst.
        let fine = if up { came >= 1 } else { came == 0 };
        check(fine, || format!("up {up}: {came} frames came"))?;
    }
    Ok(())
}

/// Opening queues that do not exist fails.
pub fn refusals(bench: &Bench) -> Checked {
    if both_ends(bench)?.is_none() || bench.name != "af_xdp" {
        return Ok(());
    }
    match open(bench, "t0", 3) {
        Err(e @ PortError::Open { .. }) => {
            let text = e.to_string();
            check(text.contains("3 queues, but it has 2") && text.contains("ethtool -L"), || text)
        }
        other => Err(format!("{:?}", other.map(|ports| ports.len()))),
    }
}
