//! The shapes as assembly for AArch64, with registers and spellings drawn at random.

use std::fmt::Write as _;

use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;

use super::shape::{Base, Index, MemoryOperand, Op, Shape};

pub const HEAD: &str = ".text\n";

struct Writer<'a> {
    shape: &'a Shape,
    text: String,
    rng: Pcg64,
    /// pointer, table, turn, read, written, moving, value, spare, another, outer
    role: [u32; 10],
    labels: u32,
}

const POINTER: usize = 0;
const TABLE: usize = 1;
const TURN: usize = 2;
const READ: usize = 3;
const WRITTEN: usize = 4;
const MOVING: usize = 5;
const VALUE: usize = 6;
const SPARE: usize = 7;
const ANOTHER: usize = 8;
const OUTER: usize = 9;

/// The function of a shape, and what it calls.
pub fn function(shape: &Shape) -> String {
    let mut rng = Pcg64::seed_from_u64(u64::from(shape.style));
    let mut free: Vec<u32> = (2..16).collect();
    free.shuffle(&mut rng);
    let mut role = [0; 10];
    role.copy_from_slice(&free[..10]);
    let mut writer = Writer { shape, text: String::new(), rng, role, labels: 0 };
    writer.function();
    writer.text
}

fn before(shape: &Shape) -> i32 {
    (shape.style >> 4 & 3) as i32 * 8
}

impl Writer<'_> {
    fn line(&mut self, line: &str) {
        let _ = writeln!(self.text, "    {line}");
    }

    fn x(&self, role: usize) -> String {
        format!("x{}", self.role[role])
    }

    fn w(&self, role: usize) -> String {
        format!("w{}", self.role[role])
    }

    fn function(&mut self) {
        let name = format!("f{}", self.shape.number);
        let _ = writeln!(self.text, ".globl {name}\n.type {name}, %function\n.p2align 4\n{name}:");
        self.line("stp x29, x30, [sp, -16]!");
        self.line("sub sp, sp, 1088");
        self.line(&format!("mov {}, x0", self.x(POINTER)));
        self.line(&format!("mov {}, x1", self.x(TABLE)));
        self.line(&format!("add {}, x0, 1, lsl 12", self.x(MOVING)));
        self.line(&format!("mov {}, 12345", self.x(VALUE)));
        self.line(&format!("mov {}, 2", self.x(OUTER)));
        if self.shape.nested {
            self.text += "8:\n";
        }
        self.line(&format!("mov {}, 0", self.x(TURN)));
        self.text += "9:\n";
        self.iteration();
        self.line(&format!("add {0}, {0}, 1", self.x(TURN)));
        self.line(&format!("cmp {}, {}", self.w(TURN), if self.shape.nested { 5 } else { 9 }));
        self.line("b.ne 9b");
        if self.shape.nested {
            self.line(&format!("subs {0}, {0}, 1", self.x(OUTER)));
            self.line("b.ne 8b");
        }
        self.line("add sp, sp, 1088");
        self.line("ldp x29, x30, [sp], 16");
        self.line("ret");
        let _ = writeln!(self.text, ".size {name}, .-{name}");
        for op in &self.shape.body {
            if let Op::Call { place, bytes } = op {
                self.callee(&name, *place, *bytes);
            }
        }
    }

    fn iteration(&mut self) {
        let (table, turn) = (self.x(TABLE), self.x(TURN));
        self.line(&format!("sub {}, {turn}, {}", self.x(SPARE), self.shape.lag));
        self.line(&format!("ldr {}, [{table}, {}, lsl 2]", self.w(READ), self.x(SPARE)));
        self.line(&format!("and {0}, {0}, {1}", self.w(READ), self.shape.mask));
        self.line(&format!("and {}, {}, {}", self.w(WRITTEN), self.w(TURN), self.shape.mask));
        let body = self.shape.body.clone();
        self.ops(&body);
        self.line(&format!("ror {0}, {0}, 9", self.x(VALUE)));
        self.line(&format!("add {0}, {0}, {1}", self.x(VALUE), self.shape.number + 1));
        self.line(&format!("sub {0}, {0}, {1}", self.x(MOVING), self.shape.step_bytes));
    }

    /// A register and a constant that together are the place.
    fn plain(&mut self, place: MemoryOperand) -> (String, i32) {
        let base = match place.base {
            Base::Pointer => self.x(POINTER),
            Base::Moving => self.x(MOVING),
            Base::Stack | Base::Arguments => "sp".to_owned(),
        };
        let element = place.element_bytes as i32;
        let (index, back) = match place.index {
            Index::None => return (base, place.offset_bytes),
            Index::Counter(lag) => (self.x(TURN), lag * element),
            Index::Written => (self.x(WRITTEN), 0),
            Index::Read => (self.x(READ), 0),
        };
        let (spare, another) = (self.x(SPARE), self.x(ANOTHER));
        if element % 3 == 0 {
            self.line(&format!("add {another}, {index}, {index}, lsl 1"));
            self.sum(&spare, &base, &another, (element / 3).ilog2());
        } else if self.rng.random_ratio(1, 4) {
            self.line(&format!("lsl {another}, {index}, {}", element.ilog2()));
            self.sum(&spare, &base, &another, 0);
        } else {
            self.sum(&spare, &base, &index, element.ilog2());
        }
        (spare, place.offset_bytes - back)
    }

    fn sum(&mut self, to: &str, base: &str, index: &str, shift: u32) {
        if base == "sp" && shift > 4 {
            let another = self.x(ANOTHER);
            self.line(&format!("lsl {another}, {index}, {shift}"));
            self.line(&format!("add {to}, sp, {another}"));
        } else if base == "sp" {
            self.line(&format!("add {to}, sp, {index}, uxtx {shift}"));
        } else {
            self.line(&format!("add {to}, {base}, {index}, lsl {shift}"));
        }
    }

    fn operand(&mut self, place: MemoryOperand, bytes: u32) -> String {
        let index = match place.index {
            Index::Written => Some(WRITTEN),
            Index::Read => Some(READ),
            _ => None,
        };
        let base = match place.base {
            Base::Pointer => self.x(POINTER),
            Base::Moving => self.x(MOVING),
            _ => "sp".to_owned(),
        };
        if let Some(index) = index
            && place.element_bytes == bytes
            && place.offset_bytes == 0
        {
            let shift = bytes.ilog2();
            return if self.rng.random::<bool>() {
                format!("[{base}, {}, lsl {shift}]", self.x(index))
            } else {
                format!("[{base}, {}, uxtw {shift}]", self.w(index))
            };
        }
        let (register, offset) = self.plain(place);
        format!("[{register}, {offset}]")
    }

    fn ops(&mut self, ops: &[Op]) {
        let mut rest = ops;
        while let [op, behind @ ..] = rest {
            rest = behind;
            match op {
                Op::Store { place, bytes } => {
                    if let [Op::Store { place: next, bytes: same }, after @ ..] = behind
                        && self.shape.style >> 10 & 1 == 0
                        && (*same, next.offset_bytes)
                            == (*bytes, place.offset_bytes + *bytes as i32)
                        && (4..=16).contains(bytes)
                        && place.offset_bytes % *bytes as i32 == 0
                    {
                        let (register, offset) = self.plain(*place);
                        let value = self.value(*bytes);
                        self.line(&format!("stp {value}, {value}, [{register}, {offset}]"));
                        rest = after;
                        continue;
                    }
                    let operand = self.operand(*place, *bytes);
                    let (verb, value) = (verb("str", *bytes), self.value(*bytes));
                    self.line(&format!("{verb} {value}, {operand}"));
                }
                Op::Load { place, bytes } => {
                    let operand = self.operand(*place, *bytes);
                    self.load(&operand, *bytes);
                }
                Op::Fill { place, bytes, count } => self.fill(*place, *bytes, *count),
                Op::Wait(count) => self.line(&format!(".rept {count}\n    nop\n    .endr")),
                Op::Choose(odd, even) => {
                    self.labels += 2;
                    let (other, behind) = (self.labels - 1, self.labels);
                    let number = self.shape.number;
                    self.line(&format!("tbz {}, 0, .Lf{number}_{other}", self.w(TURN)));
                    self.ops(odd);
                    self.line(&format!("b .Lf{number}_{behind}"));
                    let _ = writeln!(self.text, ".Lf{number}_{other}:");
                    self.ops(even);
                    let _ = writeln!(self.text, ".Lf{number}_{behind}:");
                }
                Op::Call { place, .. } => {
                    if place.base != Base::Arguments {
                        let (register, offset) = self.plain(place.moved(-before(self.shape)));
                        let (verb, by) =
                            if offset < 0 { ("sub", -offset) } else { ("add", offset) };
                        self.line(&format!("{verb} x0, {register}, {by}"));
                    }
                    self.line(&format!("bl f{}_in", self.shape.number));
                    self.line(&format!("eor {0}, {0}, x0", self.x(VALUE)));
                }
            }
        }
    }

    fn value(&self, bytes: u32) -> String {
        match bytes {
            16 => "q1".to_owned(),
            8 if self.shape.vector => "d1".to_owned(),
            4 if self.shape.vector => "s1".to_owned(),
            8 => self.x(VALUE),
            _ => self.w(VALUE),
        }
    }

    fn load(&mut self, operand: &str, bytes: u32) {
        let to = match bytes {
            16 => "q0",
            8 if self.shape.vector => "d0",
            4 if self.shape.vector => "s0",
            8 => "x0",
            _ => "w0",
        };
        self.line(&format!("{} {to}, {operand}", verb("ldr", bytes)));
        if to == "x0" {
            self.line(&format!("eor {0}, {0}, x0", self.x(VALUE)));
        }
    }

    fn fill(&mut self, place: MemoryOperand, bytes: u32, count: u32) {
        let (register, offset) = self.plain(place);
        let (spare, value) = (self.x(SPARE), self.value(bytes));
        self.line(&format!("add {spare}, {register}, {offset}"));
        self.line(&format!("ldr w0, [{}, {}]", self.x(TABLE), 4 * count));
        self.text += "7:\n";
        self.line(&format!("{} {value}, [{spare}], {bytes}", verb("str", bytes)));
        self.line("subs w0, w0, 1");
        self.line("b.ne 7b");
    }

    fn callee(&mut self, caller: &str, place: MemoryOperand, bytes: u32) {
        let _ = writeln!(
            self.text,
            ".globl {caller}_in\n.type {caller}_in, %function\n.p2align 4\n{caller}_in:"
        );
        let operand = match place.base {
            Base::Arguments => "[sp]".to_owned(),
            _ => format!("[x0, {}]", before(self.shape)),
        };
        self.load_into_result(&operand, bytes);
        self.line("ret");
        let _ = writeln!(self.text, ".size {caller}_in, .-{caller}_in");
    }

    fn load_into_result(&mut self, operand: &str, bytes: u32) {
        let to = match bytes {
            16 => "q0",
            8 => "x0",
            _ => "w0",
        };
        self.line(&format!("{} {to}, {operand}", verb("ldr", bytes)));
    }
}

fn verb(verb: &str, bytes: u32) -> String {
    let suffix = match bytes {
        1 => "b",
        2 => "h",
        _ => "",
    };
    format!("{verb}{suffix}")
}
