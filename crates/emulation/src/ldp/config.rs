//! Configuration of an LSR.

use super::fecs::{AdvertisedFecs, FecRange};
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// Configuration of an LSR.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LsrConfig {
    /// LSR-ID; not zero. The label space is the platform-wide one.
    pub lsr_id: Ipv4Addr,
    /// Address of its end of the sessions: the device's address or one of its additional addresses. The peer with the larger transport
    /// address opens the connection.
    pub transport_address: Ipv4Addr,
    /// Time between two hellos in seconds; at least 1. A third of the hold time agreed with a peer limits it.
    pub hello_interval: u16,
    /// Proposed hold time of hellos in seconds: 0 for the default of 15, 65535 for ever. The smaller proposal counts.
    pub hello_hold: u16,
    /// Proposed keepalive time in seconds; at least 1. The smaller proposal counts.
    pub keepalive: u16,
    /// Proposed maximum PDU Length in bytes; at least 256. The smaller proposal counts.
    pub max_pdu: u16,
    /// FECs that it can advertise; it advertises none before a command says so.
    pub advertised: Vec<AdvertisedFecs>,
    /// FECs whose labels it expects from a peer. It holds 4 bytes for each.
    pub expected: Vec<FecRange>,
}

impl LsrConfig {
    /// An LSR with hellos every 5 s and a hold time of 15 s, a keepalive time of 180 s, PDUs of 4096 bytes, and no FECs.
    pub fn new(lsr_id: Ipv4Addr, transport_address: Ipv4Addr) -> LsrConfig {
        LsrConfig {
            lsr_id,
            transport_address,
            hello_interval: 5,
            hello_hold: 15,
            keepalive: 180,
            max_pdu: 4096,
            advertised: Vec::new(),
            expected: Vec::new(),
        }
    }

    /// Checks it.
    ///
    /// # Errors
    /// What is wrong, and what would be accepted.
    pub fn check(&self) -> Result<(), String> {
        let address = self.transport_address;
        if self.lsr_id.is_unspecified() {
            return Err("the LSR-ID is 0.0.0.0: use an address of the LSR".into());
        }
        if address.is_unspecified() || address.is_multicast() || address.is_broadcast() {
            return Err(format!("the transport address {address} is not a unicast address: use one of the device"));
        }
        if self.hello_interval == 0 || self.keepalive == 0 || self.max_pdu < 256 {
            return Err(
                "hello interval and keepalive time must be at least 1 s, the maximum PDU at least 256 bytes".into()
            );
        }
        self.advertised.iter().try_for_each(AdvertisedFecs::check)?;
        self.expected.iter().try_for_each(FecRange::check)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ldp::LabelPattern;

    #[test]
    fn it_is_plain_data() {
        let mut config = LsrConfig::new([192, 0, 2, 1].into(), [192, 0, 2, 1].into());
        let fecs = FecRange::new("10.0.0.0/24".parse().unwrap(), 10);
        config.expected.push(fecs.clone());
        config.advertised.push(AdvertisedFecs { fecs, labels: LabelPattern::Counting { first: 16, step: 1 } });
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<LsrConfig>(&text).unwrap(), config);
        assert!(serde_json::from_str::<LsrConfig>(&text.replace("keepalive", "keepalife")).is_err());
        assert_eq!(config.check(), Ok(()));
    }

    #[test]
    fn what_a_peer_would_refuse_is_refused() {
        let right = LsrConfig::new([192, 0, 2, 1].into(), [192, 0, 2, 1].into());
        for wrong in [
            LsrConfig { lsr_id: [0; 4].into(), ..right.clone() },
            LsrConfig { transport_address: [224, 0, 0, 2].into(), ..right.clone() },
            LsrConfig { hello_interval: 0, ..right.clone() },
            LsrConfig { keepalive: 0, ..right.clone() },
            LsrConfig { max_pdu: 255, ..right.clone() },
            LsrConfig { expected: vec![FecRange::new("10.0.0.0/24".parse().unwrap(), 0)], ..right },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
