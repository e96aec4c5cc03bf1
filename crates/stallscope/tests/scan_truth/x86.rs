//! The shapes as assembly for x86-64, with registers and spellings drawn at random.

use std::fmt::Write as _;

use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;

use super::shape::{Base, Index, MemoryOperand, Op, Shape};

pub const HEAD: &str = ".intel_syntax noprefix\n.text\n";

const SAVED: [usize; 6] = [3, 5, 12, 13, 14, 15];
const FREE: [usize; 13] = [1, 2, 3, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15];
const NAMES: [&str; 8] = ["ax", "cx", "dx", "bx", "sp", "bp", "si", "di"];

/// Registers by what they hold.
struct Writer<'a> {
    shape: &'a Shape,
    text: String,
    rng: Pcg64,
    pointer: usize,
    table: usize,
    turn: usize,
    read: usize,
    written: usize,
    moving: usize,
    value: usize,
    spare: usize,
    hoisted: usize,
    labels: u32,
}

/// The name of a general register in a width.
fn name(register: usize, bytes: u32) -> String {
    if register > 7 {
        let suffix = ["", "b", "w", "", "d"].get(bytes as usize).copied().unwrap_or("");
        return format!("r{register}{suffix}");
    }
    let name = NAMES[register];
    match bytes {
        1 if register < 4 => format!("{}l", &name[..1]),
        1 => format!("{name}l"),
        2 => name.to_owned(),
        4 => format!("e{name}"),
        _ => format!("r{name}"),
    }
}

/// The function of a shape, and what it calls.
pub fn function(shape: &Shape) -> String {
    let mut rng = Pcg64::seed_from_u64(u64::from(shape.style));
    let mut free = FREE;
    free.shuffle(&mut rng);
    let [pointer, table, turn, read, written, moving, value, spare, hoisted, ..] = free;
    let mut writer = Writer {
        shape,
        text: String::new(),
        rng,
        pointer,
        table,
        turn,
        read,
        written,
        moving,
        value,
        spare,
        hoisted,
        labels: 0,
    };
    writer.function();
    writer.text
}

/// How far before the loaded field the callee's argument points.
fn before(shape: &Shape) -> i32 {
    (shape.style >> 4 & 3) as i32 * 8
}

impl Writer<'_> {
    fn line(&mut self, line: &str) {
        let _ = writeln!(self.text, "    {line}");
    }

    fn function(&mut self) {
        let name_of = format!("f{}", self.shape.number);
        let _ = writeln!(
            self.text,
            ".globl {name_of}\n.type {name_of}, @function\n.p2align 4\n{name_of}:"
        );
        for register in SAVED {
            self.line(&format!("push {}", name(register, 8)));
        }
        for line in ["push rsi", "push rdi"] {
            self.line(line);
        }
        let (pointer, table, turn) = (self.pointer, self.table, self.turn);
        self.line(&format!("pop {}", name(pointer, 8)));
        self.line(&format!("pop {}", name(table, 8)));
        self.line("sub rsp, 1096");
        self.line(&format!("lea {}, [{}+4096]", name(self.moving, 8), name(pointer, 8)));
        // A copy of the base that lies elsewhere, as compilers hoist one.
        let base = if self.uses_stack() { "rsp".to_owned() } else { name(pointer, 8) };
        self.line(&format!("lea {}, [{base}-24]", name(self.hoisted, 8)));
        self.line(&format!("xor {0}, {0}", name(self.value, 4)));
        if self.shape.nested {
            self.line("mov dword ptr [rsp+1088], 2");
            self.text += "8:\n";
        }
        self.line(&format!("xor {0}, {0}", name(turn, 4)));
        self.text += "9:\n";
        self.iteration();
        self.line(&format!("inc {}", name(turn, 8)));
        self.line(&format!("cmp {}, {}", name(turn, 4), if self.shape.nested { 5 } else { 9 }));
        self.line("jne 9b");
        if self.shape.nested {
            self.line("dec dword ptr [rsp+1088]");
            self.line("jne 8b");
        }
        self.line("add rsp, 1096");
        for register in SAVED.into_iter().rev() {
            self.line(&format!("pop {}", name(register, 8)));
        }
        self.line("ret");
        let _ = writeln!(self.text, ".size {name_of}, .-{name_of}");
        for op in &self.shape.body {
            if let Op::Call { place, bytes } = op {
                self.callee(&name_of, *place, *bytes);
            }
        }
    }

    fn uses_stack(&self) -> bool {
        self.shape.body.iter().any(|op| {
            matches!(op, Op::Load { place, .. } | Op::Call { place, .. } if place.base == Base::Stack)
        })
    }

    fn iteration(&mut self) {
        let (turn, table) = (name(self.turn, 8), name(self.table, 8));
        let (read, written) = (name(self.read, 4), name(self.written, 4));
        self.line(&format!("mov {read}, [{table}+{turn}*4-{}]", 4 * self.shape.lag));
        self.line(&format!("and {read}, {}", self.shape.mask));
        self.line(&format!("mov {written}, {}", name(self.turn, 4)));
        self.line(&format!("and {written}, {}", self.shape.mask));
        let body = self.shape.body.clone();
        self.ops(&body);
        self.line(&format!("ror {}, 9", name(self.value, 8)));
        self.line(&format!("add {}, {}", name(self.value, 8), self.shape.number + 1));
        self.line(&format!("sub {}, {}", name(self.moving, 8), self.shape.step_bytes));
    }

    /// The operand of a place; what it takes to make it is written before.
    fn operand(&mut self, place: MemoryOperand) -> String {
        let hoisted = self.shape.style >> 8 & 3 == 0 && self.rng.random::<bool>();
        let (base, extra) = match place.base {
            Base::Moving => (name(self.moving, 8), 0),
            Base::Arguments => ("rsp".to_owned(), 0),
            Base::Pointer if hoisted && !self.uses_stack() => (name(self.hoisted, 8), 24),
            Base::Stack if hoisted => (name(self.hoisted, 8), 24),
            Base::Pointer => (name(self.pointer, 8), 0),
            Base::Stack => ("rsp".to_owned(), 0),
        };
        let element = place.element_bytes as i32;
        let (index, back) = match place.index {
            Index::None => return format!("[{base}{:+}]", place.offset_bytes + extra),
            Index::Counter(lag) => (self.turn, lag * element),
            Index::Written => (self.written, 0),
            Index::Read => (self.read, 0),
        };
        let offset = place.offset_bytes + extra - back;
        let (index, scale) = self.scaled(index, element);
        if self.rng.random_ratio(1, 4) {
            let spare = name(self.spare, 8);
            self.line(&format!("lea {spare}, [{base}+{index}*{scale}{offset:+}]"));
            return format!("[{spare}]");
        }
        format!("[{base}+{index}*{scale}{offset:+}]")
    }

    /// An index register and a scale whose product is the element's place.
    fn scaled(&mut self, index: usize, element: i32) -> (String, i32) {
        let (from, spare) = (name(index, 8), name(self.spare, 8));
        match element {
            1 | 2 | 4 | 8 => (from, element),
            12 | 24 => {
                self.line(&format!("lea {spare}, [{from}+{from}*2]"));
                (spare, element / 3)
            }
            _ if self.rng.random::<bool>() => {
                self.line(&format!("mov {spare}, {from}"));
                self.line(&format!("shl {spare}, {}", element.ilog2()));
                (spare, 1)
            }
            _ => {
                self.line(&format!("imul {spare}, {from}, {element}"));
                (spare, 1)
            }
        }
    }

    fn ops(&mut self, ops: &[Op]) {
        for op in ops {
            match op {
                Op::Store { place, bytes } => self.store(*place, *bytes),
                Op::Load { place, bytes } => {
                    let operand = self.operand(*place);
                    self.load(&operand, *bytes);
                }
                Op::Fill { place, bytes, count } => self.fill(*place, *bytes, *count),
                Op::Wait(count) => self.line(&format!(".rept {count}\n    nop\n    .endr")),
                Op::Choose(odd, even) => {
                    self.labels += 2;
                    let (other, behind) = (self.labels - 1, self.labels);
                    let number = self.shape.number;
                    self.line(&format!("test {}, 1", name(self.turn, 1)));
                    self.line(&format!("jz .Lf{number}_{other}"));
                    self.ops(odd);
                    self.line(&format!("jmp .Lf{number}_{behind}"));
                    let _ = writeln!(self.text, ".Lf{number}_{other}:");
                    self.ops(even);
                    let _ = writeln!(self.text, ".Lf{number}_{behind}:");
                }
                Op::Call { place, .. } => {
                    if place.base != Base::Arguments {
                        let operand = self.operand(place.moved(-before(self.shape)));
                        self.line(&format!("lea rdi, {operand}"));
                    }
                    self.line(&format!("call f{}_in", self.shape.number));
                    self.line(&format!("xor {}, rax", name(self.value, 8)));
                }
            }
        }
    }

    fn store(&mut self, place: MemoryOperand, bytes: u32) {
        let operand = self.operand(place);
        let value = name(self.value, bytes.min(8));
        match bytes {
            32 => self.line(&format!("vmovdqu ymmword ptr {operand}, ymm1")),
            16 => self.line(&format!("movups xmmword ptr {operand}, xmm1")),
            8 if self.shape.vector => self.line(&format!("movlps qword ptr {operand}, xmm1")),
            4 if self.shape.vector => self.line(&format!("movss dword ptr {operand}, xmm1")),
            4 if self.rng.random_ratio(1, 4) => {
                self.line(&format!("mov dword ptr {operand}, 77"));
            }
            _ => self.line(&format!("mov {operand}, {value}")),
        }
    }

    fn load(&mut self, operand: &str, bytes: u32) {
        let value = name(self.value, 8);
        match bytes {
            32 => self.line(&format!("vmovdqu ymm0, ymmword ptr {operand}")),
            16 if self.rng.random::<bool>() => {
                self.line(&format!("movdqu xmm0, xmmword ptr {operand}"));
            }
            16 => self.line(&format!("movups xmm2, xmmword ptr {operand}")),
            8 if self.shape.vector => self.line(&format!("movq xmm0, qword ptr {operand}")),
            4 if self.shape.vector => self.line(&format!("movd xmm0, dword ptr {operand}")),
            8 => self.line(&format!("xor {value}, {operand}")),
            4 => self.line(&format!("mov eax, {operand}")),
            2 => self.line(&format!("movzx eax, word ptr {operand}")),
            _ => self.line(&format!("movzx eax, byte ptr {operand}")),
        }
    }

    fn fill(&mut self, place: MemoryOperand, bytes: u32, count: u32) {
        let operand = self.operand(place);
        let (spare, value) = (name(self.spare, 8), name(self.value, bytes));
        self.line(&format!("lea {spare}, {operand}"));
        self.line(&format!("mov eax, [{}+{}]", name(self.table, 8), 4 * count));
        if self.rng.random::<bool>() {
            self.text += "7:\n";
            self.line(&format!("mov [{spare}], {value}"));
            self.line(&format!("add {spare}, {bytes}"));
            self.line("dec eax");
            self.line("jne 7b");
        } else {
            self.line("xor edi, edi");
            self.text += "7:\n";
            self.line(&format!("mov [{spare}+rdi*{bytes}], {value}"));
            self.line("inc rdi");
            self.line("cmp edi, eax");
            self.line("jne 7b");
        }
    }

    fn callee(&mut self, caller: &str, place: MemoryOperand, bytes: u32) {
        let _ = writeln!(
            self.text,
            ".globl {caller}_in\n.type {caller}_in, @function\n.p2align 4\n{caller}_in:"
        );
        let operand = match place.base {
            Base::Arguments => "[rsp+8]".to_owned(),
            _ => format!("[rdi+{}]", before(self.shape)),
        };
        let framed = self.rng.random::<bool>() && place.base == Base::Arguments;
        if framed {
            self.line("push rbp");
            self.line("mov rbp, rsp");
        }
        let operand = if framed { "[rbp+16]".to_owned() } else { operand };
        match bytes {
            16 => self.line(&format!("movups xmm0, xmmword ptr {operand}")),
            8 => self.line(&format!("mov rax, {operand}")),
            4 => self.line(&format!("mov eax, {operand}")),
            2 => self.line(&format!("movzx eax, word ptr {operand}")),
            _ => self.line(&format!("vmovdqu ymm0, ymmword ptr {operand}")),
        }
        if framed {
            self.line("pop rbp");
        }
        self.line("ret");
        let _ = writeln!(self.text, ".size {caller}_in, .-{caller}_in");
    }
}
