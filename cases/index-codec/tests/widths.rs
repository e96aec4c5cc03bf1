//! The widths in which each variant reaches its memory of edges, in the code that was really
//! built, and what `scan` says about it.

#![cfg(target_arch = "x86_64")]

mod shapes;

use std::collections::BTreeSet;

use index_codec::variants::{Narrow, Paired, WideLoad, WideStore, decode_by_table, decode_plainly};
use index_codec::{Error, Version, encode_triangles};
use stallscope::code::{Addresses, Function, FunctionCode, Image, index_mask};
use stallscope::hazards::{STORE_FORWARD, scan_function};
use stallscope::machine::{Design, Microarchitecture};

type Decode = fn(&[u8], &mut [u32]) -> Result<(), Error>;

macro_rules! entry_points {
    ($table:ident: $($symbol:ident = $decode:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            #[inline(never)]
            fn $symbol(stream: &[u8], out: &mut [u32]) -> Result<(), Error> {
                $decode(stream, out)
            }
        )*
        const $table: &[(&str, Decode)] = &[$((stringify!($symbol), $symbol)),*];
    };
}

entry_points! { PLAIN:
    fifo_plain_narrow = decode_plainly::<Narrow, u32>;
    fifo_plain_paired = decode_plainly::<Paired, u32>;
    fifo_plain_wide_load = decode_plainly::<WideLoad, u32>;
    fifo_plain_wide_store = decode_plainly::<WideStore, u32>;
}

entry_points! { TABLE:
    fifo_default = index_codec::decode_triangles::<u32>;
    fifo_table_narrow = decode_by_table::<Narrow, u32>;
    fifo_table_paired = decode_by_table::<Paired, u32>;
    fifo_table_wide_load = decode_by_table::<WideLoad, u32>;
    fifo_table_wide_store = decode_by_table::<WideStore, u32>;
}

fn own_image() -> Image {
    let path = std::env::current_exe().expect("a test is a file");
    Image::open(&path).expect("which can be read")
}

fn function<'a>(image: &'a Image, symbol: &str) -> &'a Function {
    let found = image.functions().iter().find(|f| f.symbol == symbol);
    found.unwrap_or_else(|| panic!("{symbol} is not in the binary"))
}

/// Widths of loads and of stores in a ring of 16 elements of 8 bytes: nothing else in these
/// functions is indexed like that.
fn ring_widths(image: &Image, symbol: &str) -> (BTreeSet<u16>, BTreeSet<u16>) {
    let code = FunctionCode::of(image, function(image, symbol));
    let addresses = Addresses::of(&code);
    let in_ring = |address: &stallscope::code::SymbolicAddress| {
        address.index.is_some_and(|(_, scale)| scale == 8) && index_mask(&code, address) == Some(15)
    };
    let (mut loads, mut stores) = (BTreeSet::new(), BTreeSet::new());
    for (index, insn) in code.insns.iter().enumerate() {
        if addresses.load(&code, index).is_some_and(|a| in_ring(&a)) {
            loads.extend(insn.load.map(|a| a.size_bytes));
        }
        if addresses.store(&code, index).is_some_and(|a| in_ring(&a)) {
            stores.extend(insn.store.map(|a| a.size_bytes));
        }
    }
    (loads, stores)
}

#[test]
fn each_variant_uses_its_widths() {
    let image = own_image();
    for (symbol, load_bytes, store_bytes) in [
        ("fifo_plain_narrow", 4, 4),
        ("fifo_plain_paired", 8, 8),
        ("fifo_plain_wide_load", 8, 4),
        ("fifo_plain_wide_store", 4, 8),
    ] {
        let widths = ring_widths(&image, symbol);
        assert_eq!(widths, ([load_bytes].into(), [store_bytes].into()), "{symbol}");
    }
}

#[test]
fn scan_finds_the_conflict_and_only_it() {
    let image = own_image();
    let profile = Design::of(Microarchitecture::Zen5);
    for (symbol, _) in PLAIN.iter().chain(TABLE) {
        let findings = scan_function(&image, function(&image, symbol), &[&STORE_FORWARD], &profile);
        let found = findings.iter().any(|finding| finding.rule == "store-forward");
        assert_eq!(found, symbol.ends_with("wide_load"), "{symbol}: {findings:#?}");
    }
}

#[test]
fn all_variants_decode_alike() {
    for (name, indices) in shapes::all() {
        for version in [Version::V0, Version::V1] {
            let mut stream = vec![0; 64 + 6 * indices.len()];
            let length_bytes = encode_triangles(&indices, version, &mut stream).expect("room");
            stream.truncate(length_bytes);
            let mut expected = vec![0; indices.len()];
            index_codec::decode_triangles(&stream, &mut expected).expect("a sound stream");
            for (symbol, decode) in PLAIN.iter().chain(TABLE) {
                let mut decoded = vec![0; indices.len()];
                decode(&stream, &mut decoded).expect("a sound stream");
                assert!(decoded == expected, "{symbol}: {name}");
                assert!(
                    decode(&stream[..length_bytes - 1], &mut decoded).is_err(),
                    "{symbol}: {name}"
                );
            }
        }
    }
}
