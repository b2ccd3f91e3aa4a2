//! Reads the kernel's counters: processor time, memory, interfaces, IP, softnet, packet sockets.

use crate::{LabError, Netns};
use drophammer_model::trial::Family;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Folder of the interfaces of this process's namespace.
pub(crate) const OWN: &str = "/sys/class/net";

/// Recorded counters of an interface, as files of `statistics/`.
const INTERFACE: [&str; 8] =
    ["rx_packets", "rx_bytes", "rx_dropped", "rx_errors", "tx_packets", "tx_bytes", "tx_dropped", "tx_errors"];

/// Counters of `/proc/net/snmp` that show the result of forwarding.
const IPV4: [&str; 9] = [
    "InReceives",
    "InHdrErrors",
    "InAddrErrors",
    "ForwDatagrams",
    "InDiscards",
    "OutRequests",
    "OutDiscards",
    "OutNoRoutes",
    "FragFails",
];

/// Invalid packets, from the row `IpExt` of `/proc/net/netstat`.
const IPV4_MORE: [&str; 3] = ["InTruncatedPkts", "InCsumErrors", "InNoRoutes"];

/// Counters of `/proc/net/snmp6`, without the prefix `Ip6`.
const IPV6: [&str; 11] = [
    "InReceives",
    "InHdrErrors",
    "InAddrErrors",
    "OutForwDatagrams",
    "InDiscards",
    "OutRequests",
    "OutDiscards",
    "InNoRoutes",
    "InTooBigErrors",
    "InTruncatedPkts",
    "InUnknownProtos",
];

/// Ticks per second of `/proc`.
fn ticks_per_second() -> u64 {
    nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK)
        .ok()
        .flatten()
        .and_then(|t| u64::try_from(t).ok())
        .unwrap_or(100)
}

fn ticks(n: u64) -> Duration {
    Duration::from_nanos(n.saturating_mul(1_000_000_000 / ticks_per_second()))
}

/// Processor time of a process with all its threads: in nanoseconds if the kernel counts them for each thread and no
/// thread has ended, otherwise in ticks of 10 ms.
pub(crate) fn process_time(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat_time(&stat).map(|in_ticks| threads_time(pid, ticks(in_ticks)))
}

/// Sum of the times of the threads of a process that has run for about `in_ticks`.
fn threads_time(pid: u32, in_ticks: Duration) -> Duration {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let times: Vec<Duration> = threads.filter_map(|thread| schedstat(&thread.path(), 0)).collect();
    let sum: Duration = times.iter().sum();
    // Only the ticks include threads that have ended. Ticks are samples: each thread can be off by a few.
    let doubt = ticks(2) * (times.len() as u32 + 1) + in_ticks / 10;
    if times.is_empty() || sum + doubt < in_ticks { in_ticks } else { sum }
}

/// Times of a thread since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadTimes {
    /// Number of the thread.
    pub id: u32,
    /// How long it has run.
    pub ran: Duration,
    /// How long it has been ready to run but did not.
    pub waited: Duration,
    /// Number of times that it got a processor.
    pub turns: u64,
}

/// Times of the threads of a process; `None` where the kernel does not count them.
pub(crate) fn process_threads(pid: u32) -> Option<Vec<ThreadTimes>> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let times = |thread: fs::DirEntry| times_of(thread.file_name().to_str()?.parse().ok()?, &thread.path());
    Some(threads.filter_map(times).collect::<Vec<_>>()).filter(|threads| !threads.is_empty())
}

/// Like [`process_threads`], for a single thread.
pub(crate) fn thread_times(pid: u32) -> Option<ThreadTimes> {
    times_of(pid, Path::new(&format!("/proc/{pid}")))
}

fn times_of(id: u32, folder: &Path) -> Option<ThreadTimes> {
    let text = fs::read_to_string(folder.join("schedstat")).ok()?;
    let mut fields = text.split_whitespace().map(|field| field.parse::<u64>().ok());
    let [ran, waited, turns] = [fields.next()??, fields.next()??, fields.next()??];
    Some(ThreadTimes { id, ran: Duration::from_nanos(ran), waited: Duration::from_nanos(waited), turns })
}

/// Field 0 (running time of a thread) or 1 (its waiting time) of its `schedstat`.
fn schedstat(folder: &Path, field: usize) -> Option<Duration> {
    let text = fs::read_to_string(folder.join("schedstat")).ok()?;
    text.split_whitespace().nth(field)?.parse().ok().map(Duration::from_nanos)
}

/// Processor time of a process, its ended children that were waited for, and all its descendants.
pub(crate) fn tree_time(pid: u32) -> Option<Duration> {
    let time = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some(threads_time(*pid, ticks(stat_time(&stat)?)) + ticks(ended_time(&stat)?))
    };
    let own = time(&pid)?;
    Some(own + family_tree(pid)[1..].iter().filter_map(time).sum())
}

/// A process and all its descendants, in start order if the kernel keeps that order.
pub(crate) fn family_tree(pid: u32) -> Vec<u32> {
    let mut tree = vec![pid];
    let mut next = 0;
    while let Some(pid) = tree.get(next).copied() {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for thread in threads {
            let text = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            tree.extend(text.split_whitespace().filter_map(|p| p.parse::<u32>().ok()));
        }
        next += 1;
    }
    tree
}

/// Name of a child of the daemon `parent`, with its first option, if any, which shows its purpose: `bgpd -R`.
pub(crate) fn child_name(parent: &str, pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let option = line.split(|b| *b == 0).nth(1).filter(|w| w.starts_with(b"-"));
    option.map_or_else(|| parent.to_owned(), |option| format!("{parent} {}", String::from_utf8_lossy(option)))
}

/// Memory of a process that is in RAM (VmRSS), in bytes.
pub(crate) fn resident(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status_kib(&status, "VmRSS:").map(|kib| kib * 1024)
}

/// Memory of a process and its descendants in RAM, in bytes: the sum of their proportional set sizes (PSS), so that a
/// page shared by several processes counts once. Processes of User Mode Linux share one address space, and the kernel
/// reports its pages for each of them. They have the same memory map, so they count once. `None` if it cannot be read.
pub(crate) fn proportional(pid: u32) -> Option<u64> {
    let mut maps = Vec::new();
    let mut of = |pid: u32| {
        let map = fs::read(format!("/proc/{pid}/maps")).ok()?;
        if maps.contains(&map) {
            return Some(0);
        }
        maps.push(map);
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
        status_kib(&text, "Pss:").map(|kib| kib * 1024)
    };
    // A descendant may have ended meanwhile.
    Some(of(pid)? + family_tree(pid)[1..].iter().filter_map(|pid| of(*pid)).sum::<u64>())
}

fn status_kib(status: &str, key: &str) -> Option<u64> {
    status.lines().find_map(|l| l.strip_prefix(key))?.split_whitespace().next()?.parse().ok()
}

/// Routes in the kernel for the namespace of the calling thread, including those to its own addresses and links. For
/// IPv4 the kernel walks its trie (about 40 ms for a million routes); for IPv6 it keeps a count.
pub(crate) fn fib_routes(family: Family) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
    match family {
        Family::Ipv4 => trie_prefixes(&read("fib_triestat")),
        Family::Ipv6 => rt6_entries(&read("rt6_stats")),
    }
}

/// Prefixes of the main table in `/proc/net/fib_triestat`. Without policy rules it includes the local table.
fn trie_prefixes(text: &str) -> Option<u64> {
    let main = text.lines().skip_while(|l| !l.starts_with("Main:"));
    main.skip(1).find_map(|l| l.trim().strip_prefix("Prefixes:"))?.trim().parse().ok()
}

/// The fourth field of `/proc/net/rt6_stats`: entries of all tables, in hexadecimal.
fn rt6_entries(text: &str) -> Option<u64> {
    u64::from_str_radix(text.split_whitespace().nth(3)?, 16).ok()
}

/// Returns utime + stime from a line of `/proc/PID/stat`.
fn stat_time(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11).map(|f| f.parse::<u64>().ok());
    Some(fields.next()?? + fields.next()??)
}

/// Returns cutime + cstime from a line of `/proc/PID/stat`: the time of children that have been waited for.
fn ended_time(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(13).map(|f| f.parse::<u64>().ok());
    Some(fields.next()?? + fields.next()??)
}

/// Processor time of one kernel thread, in nanoseconds if the kernel counts them.
pub(crate) fn thread_time(pid: u32) -> Option<Duration> {
    let precise = schedstat(Path::new(&format!("/proc/{pid}")), 0).filter(|time| !time.is_zero());
    precise.or_else(|| process_time(pid))
}

/// One counter of an interface, in the folder of all interfaces.
pub(crate) fn interface_counter(folder: &Path, name: &str, counter: &str) -> Result<u64, LabError> {
    let path = folder.join(format!("{name}/statistics/{counter}"));
    let text = fs::read_to_string(&path).map_err(LabError::file("read", &path))?;
    text.trim()
        .parse()
        .map_err(|_| LabError::file("read", &path)(std::io::Error::other("it does not contain a number")))
}

/// Adds the counters of an interface to `into`, as `d0.rx_packets`.
pub(crate) fn interface(folder: &Path, name: &str, into: &mut BTreeMap<String, u64>) -> Result<(), LabError> {
    for counter in INTERFACE {
        into.insert(format!("{name}.{counter}"), interface_counter(folder, name, counter)?);
    }
    Ok(())
}

/// The IP counters of the calling thread's namespace, as `ip.InHdrErrors` and `ip6.InHdrErrors`.
pub(crate) fn ip() -> Result<BTreeMap<String, u64>, LabError> {
    // /proc/net belongs to the main thread; /proc/thread-self to the reading thread.
    let read = |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}"));
    let mut into = BTreeMap::new();
    let four = snmp(&read("snmp").map_err(LabError::io("cannot read /proc/net/snmp"))?, "Ip: ");
    let more = snmp(&read("netstat").unwrap_or_default(), "IpExt: ");
    into.extend(IPV4_MORE.iter().filter_map(|n| Some((format!("ip.{n}"), *more.get(*n)?))));
    into.extend(IPV4.iter().filter_map(|n| Some((format!("ip.{n}"), *four.get(*n)?))));
    // A kernel without IPv6 has no such file, so there is nothing to count.
    let six = snmp6(&read("snmp6").unwrap_or_default());
    into.extend(IPV6.iter().filter_map(|n| Some((format!("ip6.{n}"), *six.get(&format!("Ip6{n}"))?))));
    Ok(into)
}

/// Renames the kernel's counters of received and forwarded packets, if another forwarder in its namespace leaves the
/// kernel only some of the packets (the slow path). Errors and discards keep their names, since only the kernel detects
/// them.
pub(crate) fn rename_slow_path(counters: &mut BTreeMap<String, u64>) {
    for name in ["ip.InReceives", "ip.ForwDatagrams", "ip6.InReceives", "ip6.OutForwDatagrams"] {
        if let Some(value) = counters.remove(name) {
            counters.insert(format!("slow_path.{name}"), value);
        }
    }
}

/// Frames dropped at full packet sockets of the links `d0 d1 ...` in a namespace: their reader is too slow.
pub(crate) fn socket_drops(netns: &Netns) -> Result<BTreeMap<String, u64>, LabError> {
    let arguments = ["--packet", "--all", "--numeric", "--memory", "--no-header"];
    netns.output("ss", "iproute2", &arguments, None).map(|text| socket_drops_in(&text))
}

/// Parses, for each socket, the last field of `skmem:(r0,...,d12)` after `*:d0`.
fn socket_drops_in(text: &str) -> BTreeMap<String, u64> {
    let of_link = |word: &str| {
        let name = word.strip_prefix("*:")?;
        name.strip_prefix('d')?.parse::<u16>().ok()?;
        Some(name.to_owned())
    };
    let (mut found, mut link) = (BTreeMap::new(), None);
    for word in text.split_whitespace() {
        if word.starts_with("p_") {
            // The next socket.
            link = None;
        } else if let Some(name) = of_link(word) {
            link = Some(name);
        } else if let (Some(name), Some(memory)) = (&link, word.strip_prefix("skmem:(")) {
            let mut fields = memory.trim_end_matches(')').split(',');
            let dropped = fields.find_map(|field| field.strip_prefix('d')?.parse().ok());
            *found.entry(name.clone()).or_default() += dropped.unwrap_or(0u64);
        }
    }
    found
}

/// Parses the rows with this prefix in `/proc/net/snmp` or `/proc/net/netstat`: first names, then values.
fn snmp(text: &str, prefix: &str) -> BTreeMap<String, u64> {
    let mut rows = text.lines().filter_map(|l| l.strip_prefix(prefix));
    let (names, values) = (rows.next().unwrap_or_default(), rows.next().unwrap_or_default());
    let values = values.split_whitespace().map(str::parse);
    names.split_whitespace().zip(values).filter_map(|(n, v)| Some((n.to_owned(), v.ok()?))).collect()
}

fn snmp6(text: &str) -> BTreeMap<String, u64> {
    let pair = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
    };
    text.lines().filter_map(pair).collect()
}

/// Adds the drops in the backlog of processor `cpu`, for the whole machine, as `softnet.cpu1.dropped`.
pub(crate) fn softnet(cpu: usize, into: &mut BTreeMap<String, u64>) {
    let text = fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default();
    if let Some((processed, dropped, squeezed)) = softnet_row(&text, cpu) {
        into.insert(format!("softnet.cpu{cpu}.processed"), processed);
        into.insert(format!("softnet.cpu{cpu}.dropped"), dropped);
        into.insert(format!("softnet.cpu{cpu}.time_squeeze"), squeezed);
    }
}

/// Processed, dropped and time_squeeze of `cpu`. Offline processors have no row; column 13, if there is one, is the
/// number of the processor.
fn softnet_row(text: &str, cpu: usize) -> Option<(u64, u64, u64)> {
    let hex = |word: &str| u64::from_str_radix(word, 16).ok();
    let rows: Vec<Vec<u64>> = text.lines().map(|l| l.split_whitespace().filter_map(hex).collect()).collect();
    let numbered = rows.iter().find(|r| r.get(12) == Some(&(cpu as u64)));
    let row = numbered.or_else(|| rows.get(cpu).filter(|r| r.len() < 13))?;
    Some((*row.first()?, *row.get(1)?, *row.get(2)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_process_may_hold_anything() {
        let stat = "77 (napi/d0) 1) S 2 0 0 0 -1 69238880 0 0 0 0 31 12 0 0 20 0 1 0 5 0 0";
        assert_eq!((stat_time(stat), ended_time(stat)), (Some(43), Some(0)));
        let stat = "77 (linux.uml) S 2 0 0 0 -1 69238880 0 0 0 0 31 12 5 7 20 0 1 0 5 0 0";
        assert_eq!((stat_time(stat), ended_time(stat)), (Some(43), Some(12)));
    }

    #[test]
    fn own_time_grows_with_work() {
        let before = thread_time(std::process::id()).unwrap();
        let start = std::time::Instant::now();
        // On a busy machine a tick of 10 ms may take a long time.
        while process_time(std::process::id()).unwrap() < Duration::from_millis(10) {
            assert!(start.elapsed() < Duration::from_secs(20), "no time is counted");
        }
        assert!(thread_time(std::process::id()).unwrap() >= before);
    }

    #[test]
    fn children_are_found_and_have_memory() {
        let sh = crate::process::find("sh", "dash").unwrap();
        let mut child = std::process::Command::new(sh);
        child.args(["-c", "sleep 600 & echo started; wait"]).stdout(std::process::Stdio::piped());
        let mut child = child.spawn().unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
        // A child is a copy of its parent until it executes its own program.
        let begun = std::time::Instant::now();
        let tree = loop {
            let tree = family_tree(child.id());
            let names: Vec<String> = tree.iter().map(|pid| child_name("a", *pid)).collect();
            if names == ["a -c", "a"] && tree.iter().all(|pid| resident(*pid).is_some_and(|bytes| bytes > 10_000)) {
                break tree;
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "{names:?}");
            std::thread::yield_now();
        };
        assert_eq!(tree[0], child.id());
        let (whole, last) = (proportional(child.id()).unwrap(), proportional(tree[1]).unwrap());
        assert!(whole > last && last > 0, "{whole} {last}");
        for pid in tree {
            let pid = nix::unistd::Pid::from_raw(pid.cast_signed());
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
        }
        child.wait().unwrap();
    }

    #[test]
    fn routes_of_the_kernel() {
        let triestat = "Basic info: size of leaf: 56 bytes, size of tnode: 56 bytes.\nMain:\n\tAver depth:     2.45\n\
                        \tMax depth:      5\n\tLeaves:         11\n\tPrefixes:       13\n\tInternal nodes: 9\n\
                        Local:\n\tLeaves:         11\n\tPrefixes:       99\n";
        assert_eq!((trie_prefixes(triestat), trie_prefixes("Local:\n\tPrefixes: 9\n")), (Some(13), None));
        assert_eq!(rt6_entries("0014 000a 0024 00ff 0000 000d 0002\n"), Some(255));
        assert_eq!(status_kib("VmPeak:\t  9 kB\nVmRSS:\t    1200 kB\n", "VmRSS:"), Some(1200));
        let rollup = "55d0c0de8000-7ffd8a5f1000 ---p 00000000 00:00 0 [rollup]\nRss:  1692 kB\nPss:   270 kB\nPss_Dirty: 88 kB\n";
        assert_eq!(status_kib(rollup, "Pss:"), Some(270));
    }

    #[test]
    fn what_only_the_kernel_detects_keeps_its_name() {
        let names = ["ip.ForwDatagrams", "ip6.InReceives", "ip.InHdrErrors", "d0.rx_packets"];
        let mut counters: BTreeMap<String, u64> = names.iter().map(|name| ((*name).to_owned(), 3)).collect();
        rename_slow_path(&mut counters);
        assert_eq!(counters.get("slow_path.ip.ForwDatagrams"), Some(&3));
        let known = drophammer_model::counters::DutCounter::all_of("kernel", &counters);
        assert_eq!(known.into_iter().map(|c| c.name).collect::<Vec<_>>(), ["rx_packets", "ip.InHdrErrors"]);
    }

    #[test]
    fn drops_of_the_links_are_found() {
        let text = "p_raw UNCONN 0 0 *:d1 * skmem:(r0,rb212992,t0,tb212992,f0,w0,o176,bl0,d12)\n\
                    p_raw UNCONN 0 0 [0]:* * skmem:(r0,rb1,t0,tb1,f0,w0,o0,bl0,d5)\n\
                    p_raw UNCONN 0 0 *:dummy0 * skmem:(r0,d9)\n\
                    p_raw UNCONN 0 0 *:d0 *\n\t skmem:(r0,rb1,d0)\n";
        assert_eq!(socket_drops_in(text), [("d0", 0), ("d1", 12)].map(|(name, n)| (name.to_owned(), n)).into());
    }

    #[test]
    fn tables_of_proc() {
        let table = "Ip: Forwarding InReceives InHdrErrors\nIp: 1 500 3\nIcmp: InMsgs\nIcmp: 9\n";
        assert_eq!(snmp(table, "Ip: ").get("InHdrErrors"), Some(&3));
        let more = "TcpExt: A\nTcpExt: 1\nIpExt: InNoRoutes InTruncatedPkts\nIpExt: 0 7\n";
        assert_eq!(snmp(more, "IpExt: ").get("InTruncatedPkts"), Some(&7));
        assert_eq!(snmp6("Ip6InReceives  12\nIp6InHdrErrors  4\n").get("Ip6InHdrErrors"), Some(&4));
        let row = |n: &str, cpu: &str| format!("{n} 0000000a 00000001 0 0 0 0 0 0 0 0 0 {cpu} 0 0\n");
        let text = row("000000ff", "00000000") + &row("00000010", "00000002");
        assert_eq!(softnet_row(&text, 2), Some((16, 10, 1)));
        assert_eq!(softnet_row(&text, 1), None);
    }
}
