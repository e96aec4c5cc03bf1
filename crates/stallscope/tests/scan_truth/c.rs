//! The shapes as C.

use std::fmt::Write as _;

use super::shape::{Base, Index, MemoryOperand, Op, Shape};

/// What every file starts with.
pub const HEAD: &str = "\
typedef unsigned char byte;
typedef unsigned int u32;
typedef unsigned long long u64;
#define PLAIN __attribute__((aligned(1), may_alias))
typedef byte U1 PLAIN;
typedef unsigned short U2 PLAIN;
typedef u32 U4 PLAIN;
typedef u64 U8 PLAIN;
typedef u64 U16 __attribute__((vector_size(16), aligned(1), may_alias));
#define APART __attribute__((noinline))
";

/// The function of a shape, and what it calls.
pub fn function(shape: &Shape) -> String {
    if let Some(text) = &shape.text {
        return text.clone();
    }
    let name = format!("f{}", shape.number);
    let mut text = String::new();
    let mut body = String::new();
    let writer = Writer { shape, volatile: if shape.style & 1 == 0 { "volatile " } else { "" } };
    writer.ops(&shape.body, &mut body);
    for op in &shape.body {
        if let Op::Call { place, bytes } = op {
            text += &writer.callee(&name, *place, *bytes);
        }
    }
    let _ = writeln!(text, "u64 {name}(byte *p, const u32 *table, long n) {{");
    text += "    u64 x = (u64)n * 0x9e3779b97f4a7c15u, v;\n    byte *q = p + 4096;\n";
    text += "    byte at[1024] __attribute__((aligned(64)));\n";
    text += "    __asm__ volatile(\"\" : \"+r\"(q) : \"r\"(at) : \"memory\");\n";
    if shape.nested {
        text += "    for (long outer = 0; outer < 2; outer++)\n";
    }
    let _ = writeln!(text, "    for (long t = 0; t < n; t++) {{");
    let _ = writeln!(text, "        u64 i = table[t - {}] & {}u;", shape.lag, shape.mask);
    let _ = writeln!(text, "        u64 j = (u32)t & {}u;", shape.mask);
    text += "        (void)i, (void)j;\n";
    text += &body;
    let _ = writeln!(text, "        x = (x << 7 | x >> 57) + {};", shape.number + 1);
    if shape.body.iter().any(moves) {
        let _ = writeln!(text, "        q -= {};", shape.step_bytes);
    }
    text += "    }\n    return x + (u64)q;\n}\n\n";
    text
}

fn moves(op: &Op) -> bool {
    matches!(op, Op::Store { place, .. } | Op::Load { place, .. } if place.base == Base::Moving)
}

struct Writer<'a> {
    shape: &'a Shape,
    volatile: &'static str,
}

impl Writer<'_> {
    fn address(&self, place: MemoryOperand) -> String {
        let base = match place.base {
            Base::Pointer => "p",
            Base::Stack => "at",
            Base::Moving => "q",
            Base::Arguments => "(byte *)&block",
        };
        let element = place.element_bytes;
        let index = match place.index {
            Index::None => String::new(),
            Index::Counter(lag) => format!(" + (t - {lag}) * {element}"),
            Index::Written => format!(" + j * {element}"),
            Index::Read => format!(" + i * {element}"),
        };
        format!("({base}{index} + ({}))", place.offset_bytes)
    }

    fn access(&self, place: MemoryOperand, bytes: u32) -> String {
        format!("*({}U{bytes} *){}", self.volatile, self.address(place))
    }

    fn ops(&self, ops: &[Op], text: &mut String) {
        for op in ops {
            let _ = match op {
                Op::Store { place, bytes } => {
                    let at = self.access(*place, *bytes);
                    let by = place.offset_bytes.unsigned_abs() % 48;
                    if *bytes == 16 {
                        writeln!(text, "        {at} = (U16){{x, x + {by}}};")
                    } else {
                        writeln!(text, "        {at} = (U{bytes})(x >> {by});")
                    }
                }
                Op::Load { place, bytes } => {
                    let at = self.access(*place, *bytes);
                    if *bytes == 16 {
                        writeln!(text, "        {{ U16 w = {at}; x += w[0] ^ w[1]; }}")
                    } else {
                        writeln!(text, "        v = {at}; x ^= v;")
                    }
                }
                Op::Fill { place, bytes, count } => writeln!(
                    text,
                    "        for (u32 k = 0; k < table[{count}]; k++)\n            \
                     *({}U{bytes} *)({} + k * {bytes}) = (U{bytes})(x >> k);",
                    self.volatile,
                    self.address(*place)
                ),
                Op::Wait(count) => writeln!(
                    text,
                    "        __asm__ volatile(\".rept {count}\\n nop\\n .endr\" ::: \"memory\");"
                ),
                Op::Choose(odd, even) => {
                    let (mut then, mut other) = (String::new(), String::new());
                    self.ops(odd, &mut then);
                    self.ops(even, &mut other);
                    writeln!(
                        text,
                        "        if (t & 1) {{\n{then}        }} else {{\n{other}        }}"
                    )
                }
                Op::Call { place, .. } if place.base == Base::Arguments => {
                    writeln!(text, "        x ^= f{}_in(block);", self.shape.number)
                }
                Op::Call { place, .. } => writeln!(
                    text,
                    "        x ^= f{}_in({});",
                    self.shape.number,
                    self.address(place.moved(-self.before()))
                ),
            };
        }
        let uses_block = ops
            .iter()
            .any(|op| matches!(op, Op::Call { place, .. } if place.base == Base::Arguments));
        if uses_block {
            *text = format!("        struct block{} block;\n{text}", self.shape.number);
        }
    }

    /// How far before the loaded field the callee's argument points.
    fn before(&self) -> i32 {
        (self.shape.style >> 4 & 3) as i32 * 8
    }

    fn callee(&self, name: &str, place: MemoryOperand, bytes: u32) -> String {
        let volatile = self.volatile;
        let load = if bytes == 16 { "w[0] ^ w[1]" } else { "w" };
        if place.base == Base::Arguments {
            return format!(
                "struct block{n} {{ byte fields[48]; }};\n\
                 APART u64 {name}_in(struct block{n} block) {{\n    \
                 U{bytes} w = *({volatile}U{bytes} *)&block;\n    return {load};\n}}\n",
                n = self.shape.number
            );
        }
        format!(
            "APART u64 {name}_in(byte *p) {{\n    \
             U{bytes} w = *({volatile}U{bytes} *)(p + {});\n    return {load};\n}}\n",
            self.before()
        )
    }
}

const X86_EXIT: &str = "__asm__ volatile(\"syscall\" : : \"a\"(60), \"D\"(0));";
const AARCH64_EXIT: &str = "__asm__ volatile(\"mov x0, 0\\n mov x8, 93\\n svc 0\");";

/// The program's start: calls every function, with a pause behind each in which all stores leave
/// the buffer.
pub fn driver(shapes: &[Shape], is_x86: bool) -> String {
    let exit = if is_x86 { X86_EXIT } else { AARCH64_EXIT };
    let mut text = HEAD.to_owned();
    text += "static byte memory[16384] __attribute__((aligned(4096)));\nstatic u32 table[80];\n";
    text += "void *memset(void *to, int c, unsigned long n) {\n    byte *p = to;\n    \
             while (n--) { *p++ = (byte)c; __asm__ volatile(\"\" ::: \"memory\"); }\n    return to;\n}\n";
    text += "void *memcpy(void *to, const void *from, unsigned long n) {\n    byte *p = to;\n    \
             const byte *q = from;\n    \
             while (n--) { *p++ = *q++; __asm__ volatile(\"\" ::: \"memory\"); }\n    return to;\n}\n";
    text += "APART void pause_here(void) { __asm__ volatile(\".rept 260\\n nop\\n .endr\" ::: \"memory\"); }\n";
    for shape in shapes {
        let _ = writeln!(text, "u64 f{}(byte *, const u32 *, long);", shape.number);
    }
    text += "APART void run_all(void) {\n";
    for shape in shapes {
        let n = if shape.nested { 5 } else { 9 };
        let _ =
            writeln!(text, "    f{}(memory + 2048, table + 16, {n}); pause_here();", shape.number);
    }
    let call = if is_x86 { "call" } else { "bl" };
    let _ = write!(
        text,
        "}}\n__asm__(\".globl _start\\n_start: {call} start_here\");\n\
         void start_here(void) {{\n    for (int k = 0; k < 80; k++) table[k] = (u32)(k - 16);\n    \
         run_all();\n    {exit}\n}}\n"
    );
    text
}
