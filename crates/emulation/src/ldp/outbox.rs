//! Messages of a session that wait to be sent.

use drophammer_wire::ldp::{Message, PduWriter};

/// Messages in order, as bytes. Their Message IDs count up.
#[derive(Clone, Debug, Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    /// Bytes at the front that have been sent.
    sent: usize,
    last_id: u32,
}

impl Outbox {
    /// Adds a message.
    pub fn push(&mut self, message: &Message<'_>) {
        let id = self.next_id();
        let start = self.bytes.len();
        self.bytes.resize(start + message.message_len(), 0);
        message.emit(id, &mut self.bytes[start..]);
    }

    /// A new Message ID.
    pub fn next_id(&mut self) -> u32 {
        self.last_id = self.last_id.wrapping_add(1);
        self.last_id
    }

    /// Gives back the Message ID of a message that did not fit.
    pub fn unused_id(&mut self) {
        self.last_id = self.last_id.wrapping_sub(1);
    }

    /// Number of bytes that wait.
    pub fn waiting(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Drops what waits.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.sent = 0;
    }

    /// Moves messages to `pdus` until it has no more room.
    pub fn send(&mut self, pdus: &mut PduWriter<'_>) {
        while let Some(&[_, _, high, low]) = self.bytes[self.sent..].first_chunk() {
            // The length counts neither itself nor the type.
            let end = self.sent + 4 + usize::from(u16::from_be_bytes([high, low]));
            if !pdus.push_written(&self.bytes[self.sent..end]) {
                self.bytes.drain(..self.sent);
                self.sent = 0;
                return;
            }
            self.sent = end;
        }
        self.clear();
    }
}
