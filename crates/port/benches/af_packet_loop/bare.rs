//! The limit: `sendmmsg` and `recvmmsg` over constant frames, nothing else. No timestamps, no look at what comes in.

use std::ffi::CString;
use std::mem;
use std::time::Instant;

const BURST: usize = 64;
const FRAME: usize = 60;

/// Frames per second through `from` and out of `to`, over `seconds`.
pub fn run(from: &str, to: &str, seconds: f64) -> f64 {
    // SAFETY: every pointer handed to the kernel is to memory that lives until the end of this function; zeroed C
    // structs are valid here.
    unsafe {
        let open = |name: &str, protocol: u16| {
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, i32::from(protocol.to_be()));
            assert!(fd >= 0, "socket: {}", std::io::Error::last_os_error());
            let mut address: libc::sockaddr_ll = mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = protocol.to_be();
            let name = CString::new(name).expect("a name");
            address.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
            let size = mem::size_of_val(&address) as u32;
            assert_eq!(libc::bind(fd, (&raw const address).cast(), size), 0);
            fd
        };
        let option = |fd: i32, level: i32, name: i32, value: i32| {
            libc::setsockopt(fd, level, name, (&raw const value).cast(), 4);
        };
        let sender = open(from, 0);
        let receiver = open(to, libc::ETH_P_ALL as u16);
        option(sender, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1);
        option(sender, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, 8 << 20);
        option(receiver, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1);
        option(receiver, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 64 << 20);

        let mut frame = [0u8; FRAME];
        // Like the tester's: IPv4 to an address of no interface, so that the kernel's own stack lets go of it at once.
        frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
        frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
        let mut receive = vec![[0u8; 2048]; BURST];
        let mut send_vectors: Vec<libc::iovec> =
            (0..BURST).map(|_| libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: FRAME }).collect();
        let mut receive_vectors: Vec<libc::iovec> =
            receive.iter_mut().map(|b| libc::iovec { iov_base: b.as_mut_ptr().cast(), iov_len: 2048 }).collect();
        let headers = |vectors: &mut Vec<libc::iovec>| -> Vec<libc::mmsghdr> {
            vectors
                .iter_mut()
                .map(|v| {
                    let mut m: libc::mmsghdr = mem::zeroed();
                    m.msg_hdr.msg_iov = v;
                    m.msg_hdr.msg_iovlen = 1;
                    m
                })
                .collect()
        };
        let mut send = headers(&mut send_vectors);
        let mut take = headers(&mut receive_vectors);
        let start = Instant::now();
        let mut received = 0u64;
        while start.elapsed().as_secs_f64() < seconds {
            libc::sendmmsg(sender, send.as_mut_ptr(), BURST as u32, 0);
            for _ in 0..4 {
                let n =
                    libc::recvmmsg(receiver, take.as_mut_ptr(), BURST as u32, libc::MSG_DONTWAIT, std::ptr::null_mut());
                received += n.max(0) as u64;
                if n < BURST as i32 {
                    break;
                }
            }
        }
        let rate = received as f64 / start.elapsed().as_secs_f64();
        libc::close(sender);
        libc::close(receiver);
        rate
    }
}
