//! Counters of an LSR.

use drophammer_wire::ldp::status::{Status, code};
use std::collections::BTreeMap;

/// Names of the counters of notifications: sent and received.
macro_rules! names {
    ($($code:ident $name:literal)*) => {
        fn names(status: u32) -> [&'static str; 2] {
            match status {
                $(code::$code => [concat!("notifications_sent_", $name), concat!("notifications_received_", $name)],)*
                _ => OTHER,
            }
        }
    };
}

const OTHER: [&str; 2] = ["notifications_sent_other", "notifications_received_other"];

names! {
    BAD_LDP_IDENTIFIER "bad_ldp_identifier"
    BAD_PROTOCOL_VERSION "bad_protocol_version"
    BAD_PDU_LENGTH "bad_pdu_length"
    UNKNOWN_MESSAGE_TYPE "unknown_message_type"
    BAD_MESSAGE_LENGTH "bad_message_length"
    UNKNOWN_TLV "unknown_tlv"
    BAD_TLV_LENGTH "bad_tlv_length"
    MALFORMED_TLV_VALUE "malformed_tlv_value"
    HOLD_TIMER_EXPIRED "hold_timer_expired"
    SHUTDOWN "shutdown"
    LOOP_DETECTED "loop_detected"
    UNKNOWN_FEC "unknown_fec"
    NO_ROUTE "no_route"
    NO_LABEL_RESOURCES "no_label_resources"
    NO_HELLO "no_hello"
    ADVERTISEMENT_MODE "advertisement_mode"
    MAX_PDU_LENGTH "max_pdu_length"
    KEEPALIVE_TIMER_EXPIRED "keepalive_timer_expired"
    LABEL_REQUEST_ABORTED "label_request_aborted"
    MISSING_MESSAGE_PARAMETERS "missing_message_parameters"
    UNSUPPORTED_ADDRESS_FAMILY "unsupported_address_family"
    BAD_KEEPALIVE_TIME "bad_keepalive_time"
    INTERNAL_ERROR "internal_error"
    END_OF_LIB "end_of_lib"
    TRANSPORT_CONNECTION_MISMATCH "transport_connection_mismatch"
}

/// Counters of an LSR since its creation, summed over all peers. Labels count by FEC, not by message.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    pub hellos_sent: u64,
    /// Accepted ones.
    pub hellos_received: u64,
    /// Ignored hellos: targeted, malformed, or from more peers than fit.
    pub hellos_ignored: u64,
    pub adjacencies_lost: u64,
    pub sessions_established: u64,
    /// Established sessions that ended, except by a command.
    pub sessions_lost: u64,
    pub sessions_rejected: u64,
    pub mappings_sent: u64,
    pub mappings_received: u64,
    pub withdraws_sent: u64,
    pub withdraws_received: u64,
    pub releases_sent: u64,
    pub releases_received: u64,
    pub requests_received: u64,
    /// Messages and PDUs that are malformed or of an unknown type.
    pub malformed: u64,
    /// Sent and received notifications by status code. Memory is bounded, because unknown codes share one entry.
    notifications: BTreeMap<[&'static str; 2], [u64; 2]>,
}

impl Counters {
    pub fn notified(&mut self, status: &Status) {
        self.notifications.entry(names(status.code)).or_default()[0] += 1;
    }

    pub fn notification_received(&mut self, status: &Status) {
        self.notifications.entry(names(status.code)).or_default()[1] += 1;
    }

    /// All counters by name. Counters of notifications appear only if they are not zero.
    pub fn all(&self) -> Vec<(&'static str, u64)> {
        let mut all = vec![
            ("hellos_sent", self.hellos_sent),
            ("hellos_received", self.hellos_received),
            ("hellos_ignored", self.hellos_ignored),
            ("adjacencies_lost", self.adjacencies_lost),
            ("sessions_established", self.sessions_established),
            ("sessions_lost", self.sessions_lost),
            ("sessions_rejected", self.sessions_rejected),
            ("mappings_sent", self.mappings_sent),
            ("mappings_received", self.mappings_received),
            ("withdraws_sent", self.withdraws_sent),
            ("withdraws_received", self.withdraws_received),
            ("releases_sent", self.releases_sent),
            ("releases_received", self.releases_received),
            ("requests_received", self.requests_received),
            ("malformed", self.malformed),
        ];
        for (names, counts) in &self.notifications {
            all.extend(names.iter().copied().zip(*counts).filter(|(_, count)| *count > 0));
        }
        all
    }
}
