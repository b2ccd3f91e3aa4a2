//! The program that generates frames: it checks if a frame is due, writes it, and redirects it to the interface.
//!
//! The kernel runs it over recycled pages: the part of a page after the headers still has its initial contents, but the
//! headers contain what the device left there. So every frame writes all headers.

use super::layout::{Maps, addresses, flow, state};
use crate::bpf::assembler::{Alu, Helper, If, Instruction, Is, Label, Program, Register, Value, Width};
use crate::bpf::plain::{IP, Plain, UDP};
use crate::bpf::{SharedArray, verdict};
use drophammer_model::traffic::FieldName;
use drophammer_wire::signature;
use std::os::fd::AsRawFd;

// One double-word store and one word store.
const _: () = assert!(signature::LEN == 12);

/// Maximum number of steps until a number is below `count`. The network is less than four times as large as `count`, so
/// the probability of more steps is 10^-28.
const WALK: i32 = 224;

/// Constants of a program; everything else is in its maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub ipv6: bool,
    pub frame_len: usize,
    pub signature_at: usize,
}

// Preserved registers: the frame, the state, the flow, the time since the start.
const FRAME: Register = 6;
const STATE: Register = 7;
const FLOW: Register = 8;
const NOW: Register = 9;
const STACK: Register = 10;
/// Offsets on the stack.
const KEY: i16 = -4;
const LATE: i16 = -16;
const SEQUENCE: i16 = -24;
const SOURCE_HIGH: i16 = -32;
const SOURCE_LOW: i16 = -40;
const SUM: i16 = -48;
const TIME: i16 = -56;

const fn at(word: usize) -> i16 {
    (word * 8) as i16
}

struct Writer<'a> {
    p: Program,
    drop: Label,
    shape: Shape,
    plain: Plain,
    maps: &'a Maps,
}

/// Assembles the program.
pub fn assemble(shape: Shape, maps: &Maps) -> Vec<Instruction> {
    let mut p = Program::default();
    let drop = p.label();
    let mut w = Writer { p, drop, shape, plain: Plain::new(shape.ipv6), maps };
    w.is_due();
    w.find_frame();
    w.catch_up();
    w.count();
    w.find_flow();
    w.write_headers();
    w.write_signature();
    w.write_checksums();
    w.leave();
    w.p.assemble()
}

impl Writer<'_> {
    fn get(&mut self, to: Register, word: usize) {
        self.p.load(Width::Long, to, STATE, at(word));
    }

    fn put(&mut self, word: usize, from: Register) {
        self.p.store(Width::Long, STATE, at(word), from);
    }

    fn add(&mut self, to: Register, value: i32) {
        self.p.alu(Alu::Add, to, Value(value));
    }

    /// Sets register 0 to the value of `map` at the index in register 1. Jumps to `otherwise` if there is none.
    fn look_up(&mut self, map: &SharedArray, otherwise: Label) {
        self.p.store(Width::Word, STACK, KEY, 1);
        self.p.set(2, Is(STACK));
        self.add(2, i32::from(KEY));
        self.p.set_map(1, map.descriptor());
        self.p.call(Helper::MapLookup);
        self.p.jump_if(If::Equal, 0, Value(0), otherwise);
    }

    /// Continues if a frame is due. Stores the time since the start, and the time by the run's clock.
    fn is_due(&mut self) {
        let drop = self.drop;
        self.p.set(FRAME, Is(1));
        self.p.set_map_value(STATE, self.maps.state.descriptor());
        self.get(1, state::INDEX);
        self.get(2, state::TOTAL);
        self.p.jump_if(If::AtLeast, 1, Is(2), drop);
        self.p.call(Helper::TimeNs);
        self.get(1, state::START);
        self.p.jump_if(If::Below, 0, Is(1), drop);
        self.p.set(NOW, Is(0));
        self.p.alu(Alu::Sub, NOW, Is(1));
        self.get(1, state::END);
        self.p.jump_if(If::AtLeast, NOW, Is(1), drop);
        self.get(2, state::DUE);
        self.p.jump_if(If::Below, NOW, Is(2), drop);
        self.get(1, state::CLOCK);
        self.p.alu(Alu::Sub, 0, Is(1));
        self.p.store(Width::Long, STACK, TIME, 0);
    }

    /// Finds the address of the frame, after checking its length for the verifier.
    fn find_frame(&mut self) {
        self.p.load(Width::Word, 3, FRAME, 4);
        self.p.load(Width::Word, FRAME, FRAME, 0);
        self.p.set(1, Is(FRAME));
        self.add(1, self.shape.frame_len as i32);
        self.p.jump_if(If::Above, 1, Is(3), self.drop);
    }

    /// Lets a late generator skip frames that are too old, and send the rest slightly faster than the requested rate.
    fn catch_up(&mut self) {
        let (free, in_time, no_skip) = (self.p.label(), self.p.label(), self.p.label());
        self.get(1, state::BOUNDED);
        self.p.jump_if(If::Equal, 1, Value(0), free);
        // Lateness counts at most up to the last departure of the schedule, because no frame is due after it.
        self.get(1, state::LAST_DUE);
        self.p.jump_if(If::AtMost, 1, Is(NOW), in_time);
        self.p.set(1, Is(NOW));
        self.p.here(in_time);
        self.get(2, state::DUE);
        self.p.alu(Alu::Sub, 1, Is(2));
        self.get(2, state::MAX_BACKLOG);
        self.p.jump_if(If::AtMost, 1, Is(2), no_skip);
        self.p.alu(Alu::Sub, 1, Is(2));
        self.skip(no_skip);
        self.p.here(no_skip);
        // Adds the tokens for the time since the last addition, up to the size of the bucket.
        let (full, pay) = (self.p.label(), self.p.label());
        self.get(1, state::FILLED);
        self.put(state::FILLED, NOW);
        self.p.set(2, Is(NOW));
        self.p.alu(Alu::Sub, 2, Is(1));
        self.get(1, state::SPEED);
        self.p.alu(Alu::Mul, 2, Is(1));
        self.get(1, state::TOKENS);
        self.p.alu(Alu::Add, 2, Is(1));
        self.get(1, state::BUCKET);
        self.p.jump_if(If::AtMost, 2, Is(1), full);
        self.p.set(2, Is(1));
        self.p.here(full);
        self.get(1, state::COST);
        self.p.jump_if(If::AtLeast, 2, Is(1), pay);
        self.put(state::TOKENS, 2);
        self.p.jump(self.drop);
        self.p.here(pay);
        self.p.alu(Alu::Sub, 2, Is(1));
        self.put(state::TOKENS, 2);
        self.p.here(free);
    }

    /// Skips the frames for the time in register 1 (ns). Jumps to `none` if it is less than one interval.
    fn skip(&mut self, none: Label) {
        let (bounded, forgotten) = (self.p.label(), self.p.label());
        self.p.alu(Alu::ShiftLeft, 1, Value(16));
        self.get(2, state::INTERVAL_16);
        self.p.alu(Alu::Div, 1, Is(2));
        // At least one frame of the schedule remains.
        self.get(2, state::TOTAL);
        self.get(3, state::INDEX);
        self.p.alu(Alu::Sub, 2, Is(3));
        self.add(2, -1);
        self.p.jump_if(If::AtMost, 1, Is(2), bounded);
        self.p.set(1, Is(2));
        self.p.here(bounded);
        self.p.jump_if(If::Equal, 1, Value(0), none);
        self.p.alu(Alu::Add, 3, Is(1));
        self.put(state::INDEX, 3);
        // Departure of the next frame: whole and fractional nanoseconds.
        self.get(2, state::INTERVAL);
        self.p.alu(Alu::Mul, 2, Is(1));
        self.get(3, state::INTERVAL_FRACTION);
        self.p.alu(Alu::Mul, 3, Is(1));
        self.get(4, state::DUE_FRACTION);
        self.p.alu(Alu::Add, 3, Is(4));
        self.set_due(2, 3);
        self.get(4, state::SKIPPED);
        self.p.alu(Alu::Add, 4, Is(1));
        self.put(state::SKIPPED, 4);
        self.get(1, state::SKIPS);
        self.p.set(3, Is(1));
        self.add(3, 1);
        self.put(state::SKIPS, 3);
        let maps = self.maps;
        self.look_up(&maps.skips, forgotten);
        self.get(1, state::SENT);
        self.p.store(Width::Long, 0, 0, 1);
        self.get(1, state::SKIPPED);
        self.p.store(Width::Long, 0, 8, 1);
        self.p.here(forgotten);
    }

    /// Sets the next departure to `whole` ns after this one. `fraction` is the new fraction with its carry.
    fn set_due(&mut self, whole: Register, fraction: Register) {
        self.get(4, state::DUE);
        self.p.alu(Alu::Add, whole, Is(4));
        self.p.set(4, Is(fraction));
        self.p.alu(Alu::ShiftRight, 4, Value(32));
        self.p.alu(Alu::Add, whole, Is(4));
        self.put(state::DUE, whole);
        self.low_half(fraction);
        self.put(state::DUE_FRACTION, fraction);
    }

    fn low_half(&mut self, register: Register) {
        self.p.alu(Alu::ShiftLeft, register, Value(32));
        self.p.alu(Alu::ShiftRight, register, Value(32));
    }

    /// A frame will leave: counts it, its lateness and its bin, and advances the schedule.
    fn count(&mut self) {
        self.p.set(1, Is(NOW));
        self.get(2, state::DUE);
        // After a skip, the frame may be due slightly later than now.
        let late = self.p.label();
        self.p.alu(Alu::Sub, 1, Is(2));
        self.p.jump_if(If::AtLeast, NOW, Is(2), late);
        self.p.set(1, Value(0));
        self.p.here(late);
        self.p.store(Width::Long, STACK, LATE, 1);
        self.bit_length();
        // The histogram has 40 entries.
        self.p.alu(Alu::ShiftLeft, 2, Value(3));
        self.p.set(3, Is(STATE));
        self.p.alu(Alu::Add, 3, Is(2));
        self.p.load(Width::Long, 4, 3, at(state::LATENESS));
        self.add(4, 1);
        self.p.store(Width::Long, 3, at(state::LATENESS), 4);

        for word in [state::INDEX, state::SENT] {
            self.get(1, word);
            self.add(1, 1);
            self.put(word, 1);
        }
        self.put(state::LAST, NOW);
        self.get(2, state::INTERVAL);
        self.get(3, state::INTERVAL_FRACTION);
        self.get(4, state::DUE_FRACTION);
        self.p.alu(Alu::Add, 3, Is(4));
        self.set_due(2, 3);

        let (no_bins, same_bin) = (self.p.label(), self.p.label());
        self.get(3, state::BIN);
        self.p.jump_if(If::Equal, 3, Value(0), no_bins);
        self.get(2, state::BIN_END);
        self.p.jump_if(If::Below, NOW, Is(2), same_bin);
        self.p.set(1, Is(NOW));
        self.p.alu(Alu::Div, 1, Is(3));
        self.put(state::BIN_AT, 1);
        self.add(1, 1);
        self.p.alu(Alu::Mul, 1, Is(3));
        self.put(state::BIN_END, 1);
        self.p.here(same_bin);
        self.get(1, state::BIN_AT);
        let maps = self.maps;
        self.look_up(&maps.bins, no_bins);
        self.p.load(Width::Long, 1, 0, 0);
        self.add(1, 1);
        self.p.store(Width::Long, 0, 0, 1);
        self.p.here(no_bins);
    }

    /// Sets register 2 to the bit length of register 1, at most 39. Overwrites register 1.
    fn bit_length(&mut self) {
        let bounded = self.p.label();
        self.p.set_long(2, (1 << 39) - 1);
        self.p.jump_if(If::AtMost, 1, Is(2), bounded);
        self.p.set(1, Is(2));
        self.p.here(bounded);
        self.p.set(2, Value(0));
        for bits in [32, 16, 8, 4, 2, 1] {
            let less = self.p.label();
            self.p.set(3, Is(1));
            self.p.alu(Alu::ShiftRight, 3, Value(bits));
            self.p.jump_if(If::Equal, 3, Value(0), less);
            self.add(2, bits);
            self.p.set(1, Is(3));
            self.p.here(less);
        }
        // One bit is left, or none.
        self.p.alu(Alu::Add, 2, Is(1));
        // The verifier cannot prove that the sum stays below 40.
        self.p.jump_if(If::Above, 2, Value(39), self.drop);
    }

    /// Finds the flow at the current position in the round.
    fn find_flow(&mut self) {
        let same_round = self.p.label();
        let (drop, maps) = (self.drop, self.maps);
        self.get(1, state::PLACE);
        self.p.set(2, Is(1));
        self.add(2, 1);
        self.get(3, state::ROUND);
        self.p.jump_if(If::Below, 2, Is(3), same_round);
        self.p.set(2, Value(0));
        self.p.here(same_round);
        self.put(state::PLACE, 2);
        self.look_up(&maps.round, drop);
        self.p.load(Width::Long, 1, 0, 0);
        self.look_up(&maps.flows, drop);
        self.p.set(FLOW, Is(0));
        self.p.load(Width::Long, 1, FLOW, at(flow::NEXT));
        self.p.store(Width::Long, STACK, SEQUENCE, 1);
        self.add(1, 1);
        self.p.store(Width::Long, FLOW, at(flow::NEXT), 1);
    }

    fn leave(&mut self) {
        self.p.set_map(1, self.maps.interface.as_raw_fd());
        self.p.set(2, Value(0));
        self.p.set(3, Value(verdict::DROP));
        self.p.call(Helper::RedirectMap);
        self.p.exit();
        self.p.here(self.drop);
        self.p.set(0, Value(verdict::DROP));
        self.p.exit();
    }
}

/// The bytes of a frame: headers, addresses, signature, checksums.
impl Writer<'_> {
    /// Writes the constant bytes and the addresses; stores the sum of the addresses on the stack.
    fn write_headers(&mut self) {
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
            // Destination in registers 1 and 0, source in 3 and 2, all in network byte order.
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
            // Both addresses in one store: the destination follows the source.
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

    /// Sets registers 1 (high) and 0 (low) to the next address of the range at `range` of the flow.
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
        // Registers: 0 the number, 5 the number of steps so far, 1 and 2 the halves of the number, 3 and 4 temporary.
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
        // first + step * member, in 128 bits. The member has 32 bits, so two products are added.
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

    /// Writes the signature. Sets register 0 to its sum in the datagram.
    fn write_signature(&mut self) {
        let place = self.shape.signature_at as i16;
        // 1 = flow and sequence number, 2 = the value to be mixed.
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
        // The offset in the datagram is odd; the datagram's header has an even length.
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
    fn write_checksums(&mut self) {
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
