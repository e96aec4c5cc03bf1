//! More shapes, as C source and not as relations at places: members that are loaded anew, elements
//! picked by data in an array that is read many at a time, and functions that store for their
//! caller or load for it.

use std::fmt::Write as _;

use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;

use super::shape::Shape;

/// `count` shapes numbered from `first`, every other one meant to block.
pub fn shapes(seed: u64, first: usize, count: usize) -> Vec<Shape> {
    let mut rng = Pcg64::seed_from_u64(seed ^ 0x6d65_6d62);
    (first..first + count).map(|number| draw(&mut rng, number)).collect()
}

/// What is drawn for one shape.
struct Drawn {
    number: usize,
    blocks: bool,
    store: u32,
    load: u32,
    offset: u32,
    wait: u32,
}

type Write = fn(&Drawn, &mut Pcg64) -> String;

fn draw(rng: &mut Pcg64, number: usize) -> Shape {
    let pairs = [(1, 2), (2, 4), (4, 8), (2, 8), (1, 4), (1, 8)];
    let (store, load) = *pairs.choose(rng).unwrap_or(&(4, 8));
    let (offset, wait) = (8 * rng.random_range(0..6), rng.random_range(0..12));
    let drawn = Drawn { number, blocks: number.is_multiple_of(2), store, load, offset, wait };
    let kinds: [(&str, Write); 6] = [
        ("member", member),
        ("counted member", counted_member),
        ("picked element", picked_element),
        ("setter", setter),
        ("record", record),
        ("line", line),
    ];
    let (kind, write) = *kinds.choose(rng).unwrap_or(&kinds[0]);
    let text = write(&drawn, rng);
    let kind = format!("{kind} {}", if drawn.blocks { "blocks" } else { "does not" });
    Shape { number, kind, text: Some(text), ..Shape::default() }
}

impl Drawn {
    /// Stores at `at` in pieces, or in one where nothing shall block.
    fn stores(&self, at: &str) -> String {
        let (width, whole) = (self.store, self.load);
        if !self.blocks {
            return format!("*(U{whole} *)({at}) = (U{whole})x;");
        }
        let pieces = (0..whole / width).map(|n| {
            format!("*(U{width} *)({at} + {}) = (U{width})(x >> {});", n * width, 5 * n + 1)
        });
        pieces.collect::<Vec<_>>().join(" ")
    }

    fn load(&self, at: &str) -> String {
        format!("x ^= *(U{} *)({at});", self.load)
    }

    fn waiting(&self) -> String {
        format!("__asm__ volatile(\".rept {}\\n nop\\n .endr\");", self.wait)
    }

    /// A function with this before it, before its loop, and in its loop.
    fn function(&self, before: &str, first: &str, body: &str) -> String {
        let name = self.number;
        let mut text = format!("{before}\nu64 f{name}(byte *p, const u32 *table, long n) {{\n");
        let _ = writeln!(text, "    u64 x = (u64)n * 0x9e3779b97f4a7c15u;\n    {first}");
        let _ = writeln!(text, "    for (long t = 0; t < n; t++) {{\n        {body}");
        let _ = writeln!(text, "        x = (x << 9 | x >> 55) + {};", name + 1);
        text + "    }\n    return x;\n}\n\n"
    }
}

/// The pointer is a member, which what is stored through it might be.
fn member(d: &Drawn, rng: &mut Pcg64) -> String {
    let name = d.number;
    let index = *["0", "(table[t] & 7)", "(t & 3)"].choose(rng).unwrap_or(&"0");
    let at = format!("o->to + {index} * {}", 2 * d.load);
    let kind = format!("struct m{name} {{ byte head[{}]; byte *to; u64 tail; }};", d.offset);
    let first = format!("struct m{name} *o = (struct m{name} *)p; o->to = p + 512;");
    // Or another buffer is put in its place in between: nothing of it was written lately.
    let swaps = !d.blocks && rng.random::<bool>();
    let stores = if swaps { Drawn { blocks: true, ..*d }.stores(&at) } else { d.stores(&at) };
    let swap = if swaps { "o->to = p + 512 + 256 * ((t + 1) & 7);" } else { "" };
    let load = if swaps { d.load("o->to + 128") } else { d.load(&at) };
    d.function(&kind, &first, &format!("{stores} {swap} {} {load} o->tail += x;", d.waiting()))
}

/// The index is a member, too, and counted in memory.
fn counted_member(d: &Drawn, rng: &mut Pcg64) -> String {
    let name = d.number;
    let size = *["u32", "u64"].choose(rng).unwrap_or(&"u32");
    let kind = format!("struct m{name} {{ byte *to; {size} at; byte rest[{}]; }};", d.offset + 1);
    let first = format!("struct m{name} *o = (struct m{name} *)p; o->to = p + 512; o->at = 4;");
    let stores = d.stores(&format!("o->to + o->at * {}", d.load));
    let load = d.load(&format!("o->to + (o->at - 1) * {}", d.load));
    let body = format!("{stores} o->at++; {} {load} if (t & 1) o->at -= 2;", d.waiting());
    d.function(&kind, &first, &body)
}

/// One element is written, and the whole small array read.
fn picked_element(d: &Drawn, rng: &mut Pcg64) -> String {
    let (store, load) = (d.store, if d.blocks { 8 } else { d.store });
    let count = *[8_u32, 16, 32].choose(rng).unwrap_or(&8);
    let elements = (count / store).max(2);
    let times = *[1, 3, 5].choose(rng).unwrap_or(&1);
    let read = format!(
        "for (int k = 0; k < {}; k++) x += *(U{load} *)(q + k * {load});",
        elements * store / load.min(elements * store)
    );
    let first = format!("byte *q = p + 512 + {};", d.offset);
    let body = format!(
        "*(U{store} *)(q + (table[t] * {times} & {}) * {store}) = (U{store})x; {read}",
        elements - 1
    );
    d.function("", &first, &body)
}

/// A function stores for its caller.
fn setter(d: &Drawn, rng: &mut Pcg64) -> String {
    let name = d.number;
    let early = rng.random::<bool>();
    let leave = if early { "if (!x) return;" } else { "" };
    let set = d.stores(&format!("p + {}", d.offset));
    let callee = format!("APART void f{name}_set(byte *p, u64 x) {{ {leave} {set} }}");
    let load = d.load(&format!("q + {}", d.offset));
    let body = format!("f{name}_set(q, x | 1); {} {load}", d.waiting());
    d.function(&callee, "byte *q = p + 512;", &body)
}

/// A function returns a record, which its caller copies.
fn record(d: &Drawn, _: &mut Pcg64) -> String {
    let name = d.number;
    let (kind, count) = if d.blocks { ("u32", 6) } else { ("u64", 3) };
    let fields = (0..count).map(|n| format!("r.v[{n}] = ({kind})(x >> {});", 3 * n));
    let fields = fields.collect::<Vec<_>>().join(" ");
    let callee = format!(
        "struct r{name} {{ {kind} v[{count}]; }};\n\
         APART struct r{name} f{name}_make(u64 x) {{ struct r{name} r; {fields} return r; }}"
    );
    let body = format!(
        "struct r{name} r = f{name}_make(x); x ^= *(U8 *)((byte *)&r + 8); {}",
        d.waiting()
    );
    d.function(&callee, "", &body)
}

/// All of it happens in a function without a loop.
fn line(d: &Drawn, _: &mut Pcg64) -> String {
    let name = d.number;
    let (stores, load) =
        (d.stores(&format!("p + {}", d.offset)), d.load(&format!("p + {}", d.offset)));
    let callee = format!(
        "APART u64 f{name}_line(byte *p, u64 x) {{ {stores} \
         __asm__ volatile(\"\" ::: \"memory\"); {} {load} return x; }}",
        d.waiting()
    );
    d.function(&callee, "byte *q = p + 512;", &format!("x = f{name}_line(q + (t & 1) * 64, x);"))
}
