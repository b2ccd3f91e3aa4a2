//! MESSAGE_ID, its acknowledgements, and lists of it (RFC 2961 sections 4 and 5).

use super::{Message, Object};
use crate::Malformed;

/// Identifies a message of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageId {
    /// Flags: [`MessageId::ACK_DESIRED`].
    pub flags: u8,
    /// Changes when the sender restarts; 24 bits.
    pub epoch: u32,
    /// Identifier, with the sender's address and epoch.
    pub id: u32,
}

impl MessageId {
    /// The receiver should acknowledge the message.
    pub const ACK_DESIRED: u8 = 1;

    /// True if the sender wants an acknowledgement.
    pub fn ack_desired(self) -> bool {
        self.flags & MessageId::ACK_DESIRED != 0
    }
}

/// Acknowledges a message, or reports that a refreshed message is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageIdAck {
    /// False for MESSAGE_ID_NACK.
    pub known: bool,
    /// Flags.
    pub flags: u8,
    /// Epoch of the acknowledged message.
    pub epoch: u32,
    /// Its identifier.
    pub id: u32,
}

/// Messages whose state is refreshed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageIdList<'a> {
    /// Flags.
    pub flags: u8,
    /// Epoch of all messages of the list; 24 bits.
    pub epoch: u32,
    pub(super) ids: &'a [[u8; 4]],
}

impl<'a> MessageIdList<'a> {
    /// A list of identifiers, each as 4 bytes in network order.
    pub fn new(epoch: u32, ids: &'a [[u8; 4]]) -> MessageIdList<'a> {
        MessageIdList { flags: 0, epoch, ids }
    }

    /// The identifiers.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = u32> + use<'a> {
        self.ids.iter().map(|id| u32::from_be_bytes(*id))
    }
}

/// An object that carries identifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids<'a> {
    /// The message's own identifier.
    Own(MessageId),
    /// An acknowledgement.
    Ack(MessageIdAck),
    /// Refreshed messages.
    List(MessageIdList<'a>),
}

impl<'a> Message<'a> {
    /// The objects that carry identifiers, which any message may have. Lists for multicast sessions are skipped.
    pub fn ids(&self) -> impl Iterator<Item = Result<Ids<'a>, Malformed>> + use<'a> {
        self.objects().filter(|object| (23..=25).contains(&object.class)).filter_map(|object| {
            match Object::parse(object) {
                Ok(Object::MessageId(own)) => Some(Ok(Ids::Own(own))),
                Ok(Object::MessageIdAck(ack)) => Some(Ok(Ids::Ack(ack))),
                Ok(Object::MessageIdList(list)) => Some(Ok(Ids::List(list))),
                Ok(_) => None,
                Err(e) => Some(Err(e)),
            }
        })
    }
}
