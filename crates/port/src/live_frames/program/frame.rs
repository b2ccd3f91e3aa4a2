//! The bytes of a frame: headers, addresses, signature, checksums.

use super::super::layout::{addresses, flow, state};
use super::{FLOW, FRAME, SEQUENCE, SOURCE_HIGH, SOURCE_LOW, STACK, SUM, TIME, Writer, at};
use crate::bpf::assembler::{Alu, If, Is, Register, Value, Width};
use crate::bpf::plain::{IP, UDP};
use drophammer_model::traffic::FieldName;
use drophammer_wire::signature;

// One store of a double word and one of a word.
const _: () = assert!(signature::LEN == 12);

/// Maximum number of steps to a number below `count`. The network is less than four times as large as `count`, so the
/// probability of more steps is 10^-28.
const WALK: i32 = 224;

impl Writer<'_> {
    /// Writes the constant bytes and the addresses; stores the sum of the addresses on the stack.
    pub(super) fn write_headers(&mut self) {
        for word in 0..self.plain.headers().div_ceil(8) {
            self.p.load(Width::Long, 1, FLOW, at(flow::HEAD + word));
            self.p.store(Width::Long, FRAME, at(word), 1);
        }
        let [source, destination] = [FieldName::Source, FieldName::Destination].map(|field| self.plain.at(IP, field));
        self.address(flow::SOURCES);
        self.p.store(Width::Long, STACK, SOURCE_LOW, 0);
        self.p.store(Width::Long, STACK, SOURCE_HIGH, 1);
        self.address(flow::DESTINATIONS);
        if self.shape.ipv6 {
            // Destination in 1, 0; source in 3, 2; all in network byte order.
            self.p.load(Width::Long, 2, STACK, SOURCE_LOW);
            self.p.load(Width::Long, 3, STACK, SOURCE_HIGH);
            let places = [(3, source), (2, source + 8), (1, destination), (0, destination + 8)];
            for (register, place) in places {
                self.p.big_endian(register, 64);
                self.p.store(Width::Long, FRAME, place, register);
            }
            self.p.set(5, Value(0));
            for (register, _) in places {
                self.add_halves(5, register, 4);
            }
        } else {
            self.p.load(Width::Long, 2, STACK, SOURCE_LOW);
            self.p.alu(Alu::ShiftLeft, 2, Value(32));
            self.low_half(0);
            self.p.alu(Alu::Or, 2, Is(0));
            self.p.big_endian(2, 64);
            // Both addresses at once: the destination follows the source.
            self.p.store(Width::Long, FRAME, source, 2);
            self.p.set(5, Value(0));
            self.add_halves(5, 2, 4);
        }
        self.p.store(Width::Long, STACK, SUM, 5);
    }

    /// `to += low half of from + high half of from`; `from` is overwritten.
    fn add_halves(&mut self, to: Register, from: Register, spare: Register) {
        self.p.set(spare, Is(from));
        self.p.alu(Alu::ShiftRight, spare, Value(32));
        self.p.alu(Alu::Add, to, Is(spare));
        self.low_half(from);
        self.p.alu(Alu::Add, to, Is(from));
    }

    /// Registers 1 (high) and 0 (low) = the next address of the range at `range` of the flow.
    fn address(&mut self, range: usize) {
        let field = |word: usize| at(range + word);
        let (walk, found, single) = (self.p.label(), self.p.label(), self.p.label());
        self.p.set(0, Value(0));
        self.p.load(Width::Long, 5, FLOW, field(addresses::COUNT));
        self.p.jump_if(If::Equal, 5, Value(1), single);
        let again = self.p.label();
        self.p.load(Width::Long, 0, FLOW, field(addresses::NEXT));
        self.p.set(1, Is(0));
        self.add(1, 1);
        self.p.jump_if(If::Below, 1, Is(5), again);
        self.p.set(1, Value(0));
        self.p.here(again);
        self.p.store(Width::Long, FLOW, field(addresses::NEXT), 1);
        // Registers: 0 the number, 5 the steps so far, 1 and 2 its halves, 3 and 4 temporary.
        self.p.set(5, Value(0));
        self.p.here(walk);
        self.p.load(Width::Long, 3, FLOW, field(addresses::HALF_BITS));
        self.p.load(Width::Long, 4, FLOW, field(addresses::MASK));
        self.p.set(1, Is(0));
        self.p.alu(Alu::And, 3, Value(31));
        self.p.alu(Alu::ShiftRight, 1, Is(3));
        self.p.set(2, Is(0));
        self.p.alu(Alu::And, 2, Is(4));
        for key in 0..3 {
            // left, right = right, left ^ (mixed >> (32 - half_bits) & mask)
            self.p.load(Width::Long, 3, FLOW, field(addresses::KEYS + key));
            self.p.alu(Alu::Xor, 3, Is(2));
            self.p.set_long(4, 0x9e37_79b1);
            self.p.alu(Alu::Mul, 3, Is(4));
            self.low_half(3);
            self.p.load(Width::Long, 0, FLOW, field(addresses::HALF_BITS));
            self.p.alu(Alu::And, 0, Value(31));
            self.p.alu(Alu::ShiftLeft, 3, Is(0));
            self.p.alu(Alu::ShiftRight, 3, Value(32));
            self.p.alu(Alu::Xor, 3, Is(1));
            self.p.set(1, Is(2));
            self.p.set(2, Is(3));
        }
        self.p.set(3, Is(0));
        self.p.set(0, Is(1));
        self.p.alu(Alu::ShiftLeft, 0, Is(3));
        self.p.alu(Alu::Or, 0, Is(2));
        self.p.load(Width::Long, 1, FLOW, field(addresses::COUNT));
        self.p.jump_if(If::Below, 0, Is(1), found);
        self.add(5, 1);
        self.p.jump_if(If::Below, 5, Value(WALK), walk);
        self.p.set(0, Value(0));
        self.p.here(found);
        self.p.here(single);
        // first + step * member, in 128 bits: the member has 32 bits, so two products are added.
        self.p.load(Width::Long, 2, FLOW, field(addresses::STEP));
        self.p.set(1, Is(2));
        self.p.alu(Alu::ShiftRight, 1, Value(32));
        self.p.alu(Alu::Mul, 1, Is(0));
        self.low_half(2);
        self.p.alu(Alu::Mul, 2, Is(0));
        self.p.set(0, Is(2));
        self.p.alu(Alu::ShiftRight, 2, Value(32));
        self.p.alu(Alu::Add, 1, Is(2));
        self.p.set(2, Is(1));
        self.low_half(0);
        self.p.alu(Alu::ShiftLeft, 2, Value(32));
        self.p.alu(Alu::Or, 0, Is(2));
        self.p.alu(Alu::ShiftRight, 1, Value(32));
        self.p.load(Width::Long, 2, FLOW, field(addresses::FIRST_HIGH));
        self.p.alu(Alu::Add, 1, Is(2));
        self.p.load(Width::Long, 2, FLOW, field(addresses::FIRST_LOW));
        self.p.alu(Alu::Add, 0, Is(2));
        let no_carry = self.p.label();
        self.p.jump_if(If::AtLeast, 0, Is(2), no_carry);
        self.add(1, 1);
        self.p.here(no_carry);
    }

    /// Writes the signature; register 0 = its sum, as it counts in the datagram.
    pub(super) fn write_signature(&mut self) {
        let place = self.shape.signature_at as i16;
        // 1 = flow and sequence number, 2 = the value that is mixed.
        self.p.load(Width::Long, 1, FLOW, at(flow::ID));
        self.p.alu(Alu::ShiftLeft, 1, Value(28));
        self.p.load(Width::Long, 2, STACK, SEQUENCE);
        self.p.alu(Alu::And, 2, Value(0xfff_ffff));
        self.p.alu(Alu::Or, 1, Is(2));
        self.get(2, state::KEY);
        self.p.alu(Alu::Xor, 2, Is(1));
        self.p.load(Width::Long, 3, STACK, TIME);
        self.low_half(3);
        self.p.alu(Alu::ShiftLeft, 3, Value(24));
        self.p.set(4, Is(3));
        self.p.alu(Alu::ShiftLeft, 4, Value(17));
        self.p.alu(Alu::ShiftRight, 3, Value(64 - 17));
        self.p.alu(Alu::Or, 3, Is(4));
        self.p.alu(Alu::Xor, 2, Is(3));
        for (shift, factor) in [(30, 0xbf58_476d_1ce4_e5b9), (27, 0x94d0_49bb_1331_11eb)] {
            self.shift_in(2, shift);
            self.p.set_long(3, factor);
            self.p.alu(Alu::Mul, 2, Is(3));
        }
        self.shift_in(2, 31);
        self.p.alu(Alu::ShiftRight, 2, Value(48));
        self.p.alu(Alu::ShiftLeft, 1, Value(16));
        self.p.alu(Alu::Or, 1, Is(2));
        self.p.big_endian(1, 64);
        self.p.store(Width::Long, FRAME, place, 1);
        self.p.load(Width::Long, 2, STACK, TIME);
        self.p.big_endian(2, 32);
        self.p.store(Width::Word, FRAME, place + 8, 2);
        self.p.set(0, Is(2));
        self.add_halves(0, 1, 3);
        // Odd offset in the datagram, whose header has an even length.
        if (self.shape.signature_at - self.plain.headers()) % 2 == 1 {
            self.fold(0, 1);
            self.p.big_endian(0, 16);
        }
    }

    /// `register ^= register >> bits`
    fn shift_in(&mut self, register: Register, bits: i32) {
        self.p.set(3, Is(register));
        self.p.alu(Alu::ShiftRight, 3, Value(bits));
        self.p.alu(Alu::Xor, register, Is(3));
    }

    /// Folds a sum of 32-bit halves to 16 bits.
    fn fold(&mut self, register: Register, spare: Register) {
        self.p.set(spare, Is(register));
        self.p.alu(Alu::ShiftRight, spare, Value(32));
        self.low_half(register);
        self.p.alu(Alu::Add, register, Is(spare));
        // The results have at most 33, 18, 17 and 16 bits.
        for _ in 0..3 {
            self.p.set(spare, Is(register));
            self.p.alu(Alu::ShiftRight, spare, Value(16));
            self.p.alu(Alu::And, register, Value(0xffff));
            self.p.alu(Alu::Add, register, Is(spare));
        }
    }

    /// Writes the checksums; register 0 contains the sum of the signature.
    pub(super) fn write_checksums(&mut self) {
        self.p.load(Width::Long, 5, STACK, SUM);
        if !self.shape.ipv6 {
            self.p.load(Width::Long, 2, FLOW, at(flow::IP_SUM));
            self.p.alu(Alu::Add, 2, Is(5));
            self.fold(2, 1);
            self.p.alu(Alu::Xor, 2, Value(0xffff));
            self.p.store(Width::Half, FRAME, self.plain.at(IP, FieldName::HeaderChecksum), 2);
        }
        self.p.load(Width::Long, 2, FLOW, at(flow::UDP_SUM));
        self.p.alu(Alu::Add, 2, Is(5));
        self.p.alu(Alu::Add, 2, Is(0));
        self.fold(2, 1);
        let not_zero = self.p.label();
        self.p.alu(Alu::Xor, 2, Value(0xffff));
        self.p.jump_if(If::Unequal, 2, Value(0), not_zero);
        self.p.set(2, Value(0xffff));
        self.p.here(not_zero);
        self.p.store(Width::Half, FRAME, self.plain.at(UDP, FieldName::Checksum), 2);
    }
}
