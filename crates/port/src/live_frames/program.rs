//! The program that generates frames: it checks whether one is due, writes it, and redirects it to the interface.
//!
//! The kernel runs it over recycled pages: after the headers a page still has its initial contents, but in the headers
//! those left by the device. So all headers are written anew in every frame.

mod frame;

use super::layout::{Maps, flow, state};
use crate::bpf::assembler::{Alu, Helper, If, Instruction, Is, Label, Program, Register, Value, Width};
use crate::bpf::plain::Plain;
use crate::bpf::{SharedArray, verdict};
use std::os::fd::AsRawFd;

/// Constants of a program; everything else is in its maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub ipv6: bool,
    pub frame_len: usize,
    pub signature_at: usize,
}

// Registers that are kept: the frame, the state, the flow, the time since the start.
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

/// The program.
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

    /// Sets register 0 to the value of `map` at the index in register 1; jumps to `otherwise` if there is none.
    fn look_up(&mut self, map: &SharedArray, otherwise: Label) {
        self.p.store(Width::Word, STACK, KEY, 1);
        self.p.set(2, Is(STACK));
        self.add(2, i32::from(KEY));
        self.p.set_map(1, map.descriptor());
        self.p.call(Helper::MapLookup);
        self.p.jump_if(If::Equal, 0, Value(0), otherwise);
    }

    /// Continues if a frame is due; stores the time since the start and the time by the run's clock.
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

    /// Address of the frame, after its length has been checked for the verifier.
    fn find_frame(&mut self) {
        self.p.load(Width::Word, 3, FRAME, 4);
        self.p.load(Width::Word, FRAME, FRAME, 0);
        self.p.set(1, Is(FRAME));
        self.add(1, self.shape.frame_len as i32);
        self.p.jump_if(If::Above, 1, Is(3), self.drop);
    }

    /// A late generator skips frames that are too old, and sends the rest a little faster than the requested rate.
    fn catch_up(&mut self) {
        let (free, in_time, no_skip) = (self.p.label(), self.p.label(), self.p.label());
        self.get(1, state::BOUNDED);
        self.p.jump_if(If::Equal, 1, Value(0), free);
        // Lateness, up to the last departure of the schedule at most: no frame is due after it.
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

    /// Skips the frames of the time in register 1 (ns); jumps to `none` if it is less than one interval.
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

    /// Sets the next departure to `whole` ns after this one; `fraction` is the new fraction with its carry.
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

    /// The frame will leave: counts it, its lateness and its bin; advances the schedule.
    fn count(&mut self) {
        self.p.set(1, Is(NOW));
        self.get(2, state::DUE);
        // After a skip, the frame may be due a moment later than now.
        let late = self.p.label();
        self.p.alu(Alu::Sub, 1, Is(2));
        self.p.jump_if(If::AtLeast, NOW, Is(2), late);
        self.p.set(1, Value(0));
        self.p.here(late);
        self.p.store(Width::Long, STACK, LATE, 1);
        self.bit_length();
        // One of the 40 entries of the histogram.
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

    /// Register 2 = bit length of register 1, 39 at most; register 1 is overwritten.
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

    /// Finds the flow at the current place of the round.
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
