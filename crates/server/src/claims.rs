//! Ensures that only one server, run or other command in a network namespace owns an interface.
//!
//! A process that uses an interface binds two abstract Unix sockets: one that only one process can bind, and one whose name
//! identifies this process. Such names belong to a network namespace, as interfaces do, and the kernel removes them with their
//! process.

use std::collections::HashMap;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Interfaces that this process owns.
#[derive(Debug)]
pub struct Claims {
    /// How others describe this process to their users.
    owner: String,
    held: HashMap<String, [UnixDatagram; 2]>,
}

const PREFIX: &str = "drophammer/port/";

fn bind(name: &str) -> io::Result<UnixDatagram> {
    UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

impl Claims {
    /// Owns no interfaces yet. `owner` describes this process.
    pub fn new(owner: &str) -> Claims {
        // A name has at most 107 bytes.
        let owner = format!("{owner}, process {}", std::process::id()).chars().take(60).collect();
        Claims { owner, held: HashMap::new() }
    }

    /// Claims these interfaces in addition to those already held.
    ///
    /// # Errors
    /// The index in `names`, and the owner. Then nothing has changed.
    pub fn add(&mut self, names: &[&str]) -> Result<(), (usize, String)> {
        let mut new = HashMap::new();
        for (i, name) in names.iter().enumerate() {
            if self.held.contains_key(*name) || new.contains_key(*name) {
                continue;
            }
            let exclusive = bind(&format!("{PREFIX}{name}")).map_err(|e| match e.kind() {
                io::ErrorKind::AddrInUse => (i, format!("`{name}` belongs to {}; end that first", owner_of(name))),
                _ => (i, format!("`{name}` cannot be claimed: {e}")),
            })?;
            let told = bind(&format!("{PREFIX}{name} {}", self.owner));
            let told = told.map_err(|e| (i, format!("`{name}` cannot be claimed: {e}")))?;
            new.insert((*name).to_owned(), [exclusive, told]);
        }
        self.held.extend(new);
        Ok(())
    }

    /// Gives up all other interfaces.
    pub fn keep(&mut self, names: &[&str]) {
        self.held.retain(|name, _| names.contains(&name.as_str()));
    }
}

/// Who has claimed an interface, as far as known.
fn owner_of(name: &str) -> String {
    let names = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let told = format!("@{PREFIX}{name} ");
    let owner = names.lines().find_map(|line| line.split_once(&told)).map(|(_, owner)| owner.to_owned());
    owner.unwrap_or_else(|| "another process".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_has_one_owner() {
        // Other processes run this test in the same namespace.
        let name = format!("t{}", std::process::id());
        let (mut first, mut second) = (Claims::new("the first"), Claims::new("the second"));
        assert_eq!(first.add(&[&name]), Ok(()));
        assert_eq!(first.add(&[&name]), Ok(()), "it has it already");
        let other = format!("{name}x");
        let text = format!("`{name}` belongs to the first, process {}; end that first", std::process::id());
        assert_eq!(second.add(&[&other, &name]), Err((1, text)));
        assert_eq!(first.add(&[&other]), Ok(()), "what was refused is not held");
        first.keep(&[&other]);
        assert_eq!(second.add(&[&name]), Ok(()));
        drop(first);
        assert_eq!(second.add(&[&other]), Ok(()));
    }
}
