//! A slow management network: a relay between a host and the server that hands everything on later.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

/// Relays connections to `server`, with `there` on the way to it and `back` on the way from it. Returns the address for
/// clients. It lives as long as the process.
pub fn relay(server: SocketAddr, there: Duration, back: Duration) -> Result<SocketAddr, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| e.to_string())?;
    let address = listener.local_addr().map_err(|e| e.to_string())?;
    spawn(move || {
        for client in listener.incoming() {
            let pair = || {
                let (client, server) = (client?, TcpStream::connect(server)?);
                [&client, &server].into_iter().try_for_each(|end| end.set_nodelay(true))?;
                pass(client.try_clone()?, server.try_clone()?, there);
                pass(server, client, back);
                Ok::<_, std::io::Error>(())
            };
            if let Err(e) = pair() {
                eprintln!("the slow network: {e}");
            }
        }
    });
    Ok(address)
}

fn pass(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let (under_way, arriving) = mpsc::channel::<(Instant, Vec<u8>)>();
    spawn(move || {
        let mut bytes = [0; 1 << 16];
        while let Ok(n @ 1..) = from.read(&mut bytes) {
            if under_way.send((Instant::now(), bytes[..n].to_vec())).is_err() {
                return;
            }
        }
    });
    spawn(move || {
        for (at, bytes) in arriving {
            sleep(delay.saturating_sub(at.elapsed()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        // Either end may be gone already.
        let _ = to.shutdown(Shutdown::Both);
    });
}
