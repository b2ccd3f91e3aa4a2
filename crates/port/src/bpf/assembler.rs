//! Assembles kernel programs instruction by instruction, with labels in place of jump distances.

/// One instruction in the kernel's layout: opcode, registers (source above destination), offset, immediate.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    pub opcode: u8,
    pub registers: u8,
    pub offset: i16,
    pub immediate: i32,
}

/// A register: calls overwrite 0 to 5 and preserve 6 to 9; 10 is the (read-only) frame pointer.
pub type Register = u8;

/// A position in the program, set by [`Program::here`] before or after the jumps to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// Width of a load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    Byte = 0x10,
    Half = 0x08,
    Word = 0x00,
    Long = 0x18,
}

/// Operations on 64 bits, unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alu {
    Add = 0x00,
    Sub = 0x10,
    Mul = 0x20,
    Div = 0x30,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Xor = 0xa0,
    Move = 0xb0,
}

/// Comparisons of 64-bit values, unsigned unless stated otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum If {
    Equal = 0x10,
    Above = 0x20,
    AtLeast = 0x30,
    Unequal = 0x50,
    Below = 0xa0,
    AtMost = 0xb0,
}

/// The second operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    Is(Register),
    Value(i32),
}
pub use Operand::{Is, Value};

/// Helper functions of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Helper {
    MapLookup = 1,
    TimeNs = 5,
    Processor = 8,
    ThreadName = 16,
    Redirect = 23,
    RedirectMap = 51,
    FibLookup = 69,
    FrameLength = 188,
}

/// A program under construction.
#[derive(Default)]
pub struct Program {
    code: Vec<Instruction>,
    /// Positions of labels that are already set.
    labels: Vec<Option<usize>>,
    /// Positions of jumps and their labels.
    jumps: Vec<(usize, Label)>,
}

impl Program {
    fn push(&mut self, opcode: u8, destination: Register, source: Register, offset: i16, immediate: i32) {
        self.code.push(Instruction { opcode, registers: source << 4 | destination, offset, immediate });
    }

    /// Returns a label whose position is set later.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Sets `label` to the current position.
    pub fn here(&mut self, label: Label) {
        self.labels[label.0] = Some(self.code.len());
    }

    /// `to = *(from + offset)`, zero-extended.
    pub fn load(&mut self, width: Width, to: Register, from: Register, offset: i16) {
        self.push(0x61 | width as u8, to, from, offset, 0);
    }

    /// `*(to + offset) = from`.
    pub fn store(&mut self, width: Width, to: Register, offset: i16, from: Register) {
        self.push(0x63 | width as u8, to, from, offset, 0);
    }

    /// `*(to + offset) += from`, 64 bits, atomically.
    pub fn add_shared(&mut self, to: Register, offset: i16, from: Register) {
        self.push(0xdb, to, from, offset, 0);
    }

    /// `to = to op operand`.
    pub fn alu(&mut self, op: Alu, to: Register, operand: Operand) {
        match operand {
            Is(register) => self.push(0x0f | op as u8, to, register, 0, 0),
            Value(value) => self.push(0x07 | op as u8, to, 0, 0, value),
        }
    }

    /// `to = operand`.
    pub fn set(&mut self, to: Register, operand: Operand) {
        self.alu(Alu::Move, to, operand);
    }

    /// `to = value`, all 64 bits.
    pub fn set_long(&mut self, to: Register, value: u64) {
        self.push(0x18, to, 0, 0, value as u32 as i32);
        self.push(0, 0, 0, 0, (value >> 32) as i32);
    }

    /// `to` = the map with this descriptor.
    pub fn set_map(&mut self, to: Register, map: i32) {
        self.push(0x18, to, 1, 0, map);
        self.push(0, 0, 0, 0, 0);
    }

    /// `to` = address of the only value of the map with this descriptor.
    pub fn set_map_value(&mut self, to: Register, map: i32) {
        self.push(0x18, to, 2, 0, map);
        self.push(0, 0, 0, 0, 0);
    }

    /// Converts the low `bits` (16, 32, 64) of the register between the machine's byte order and network byte order.
    /// The other bits become zero.
    pub fn big_endian(&mut self, register: Register, bits: i32) {
        self.push(0xdc, register, 0, 0, bits);
    }

    /// Jumps to `label` if the comparison is true.
    pub fn jump_if(&mut self, condition: If, register: Register, operand: Operand, label: Label) {
        self.jumps.push((self.code.len(), label));
        match operand {
            Is(other) => self.push(0x0d | condition as u8, register, other, 0, 0),
            Value(value) => self.push(0x05 | condition as u8, register, 0, 0, value),
        }
    }

    /// Jumps to `label`.
    pub fn jump(&mut self, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.push(0x05, 0, 0, 0, 0);
    }

    /// Calls a helper: arguments in registers 1 to 5, result in register 0.
    pub fn call(&mut self, helper: Helper) {
        self.push(0x85, 0, 0, 0, helper as i32);
    }

    /// Ends the program; register 0 is its result.
    pub fn exit(&mut self) {
        self.push(0x95, 0, 0, 0, 0);
    }

    /// Returns the instructions.
    pub fn assemble(mut self) -> Vec<Instruction> {
        for (at, label) in self.jumps {
            let to = self.labels[label.0].expect("every label that is jumped to has a place");
            self.code[at].offset = (to as i64 - at as i64 - 1) as i16;
        }
        self.code
    }
}

/// Returns the value that a load in the machine's byte order reads for a 16-bit value of the frame.
pub const fn wire(value: u16) -> i32 {
    value.to_be() as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_as_the_kernel_lays_them_out() {
        assert_eq!(std::mem::size_of::<Instruction>(), 8);
        let mut p = Program::default();
        let (back, forth) = (p.label(), p.label());
        p.here(back);
        p.load(Width::Word, 2, 1, 4);
        p.store(Width::Long, 10, -8, 2);
        p.jump_if(If::Above, 4, Is(3), forth);
        p.alu(Alu::Mul, 5, Value(-2));
        p.set_long(3, 0x1122_3344_5566_7788);
        p.jump_if(If::Unequal, 5, Value(7), back);
        p.here(forth);
        p.big_endian(6, 64);
        p.add_shared(1, 8, 2);
        p.exit();
        let of = |i: &Instruction| (i.opcode, i.registers, i.offset, i.immediate);
        let code: Vec<_> = p.assemble().iter().map(of).collect();
        let wanted = [
            (0x61, 0x12, 4, 0),
            (0x7b, 0x2a, -8, 0),
            (0x2d, 0x34, 4, 0),
            (0x27, 0x05, 0, -2),
            (0x18, 0x03, 0, 0x5566_7788),
            (0, 0, 0, 0x1122_3344),
            (0x55, 0x05, -7, 7),
            (0xdc, 0x06, 0, 64),
            (0xdb, 0x21, 8, 0),
            (0x95, 0, 0, 0),
        ];
        assert_eq!(code, wanted);
    }
}
