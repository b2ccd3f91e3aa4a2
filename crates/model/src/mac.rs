//! Ethernet addresses (IEEE 802).

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A 48-bit Ethernet address. Text and serialised form: `02:00:5e:10:00:ff`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// The broadcast address, all ones.
    pub const BROADCAST: MacAddr = MacAddr([0xff; 6]);

    /// True for broadcast and multicast addresses: the group bit of the first octet is set.
    pub fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }

    /// Builds a locally administered unicast address from 40 bits.
    pub fn local(bits: u64) -> MacAddr {
        let b = bits.to_be_bytes();
        MacAddr([0x02, b[3], b[4], b[5], b[6], b[7]])
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for MacAddr {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || format!("`{text}` is not a MAC address; write for instance 02:00:00:00:00:01");
        let mut out = [0u8; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut out {
            let part = parts.next().filter(|p| p.len() == 2).ok_or_else(bad)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| bad())?;
        }
        if parts.next().is_some() { Err(bad()) } else { Ok(MacAddr(out)) }
    }
}

impl Serialize for MacAddr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MacAddr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let mac: MacAddr = "02:00:5e:10:00:ff".parse().unwrap();
        assert_eq!(mac.to_string(), "02:00:5e:10:00:ff");
        assert_eq!(serde_json::to_string(&mac).unwrap(), r#""02:00:5e:10:00:ff""#);
        assert_eq!(serde_json::from_str::<MacAddr>(r#""02-00-5E-10-00-FF""#).unwrap(), mac);
        for bad in ["", "02:00", "02:00:5e:10:00:ff:01", "0g:00:5e:10:00:ff", "2:0:5e:10:0:ff"] {
            assert!(bad.parse::<MacAddr>().is_err());
        }
        assert!(MacAddr::BROADCAST.is_group() && !MacAddr::local(7).is_group());
    }
}
