//! What the tables of a program say about where things come from: the source file of a local
//! function, the name of a function in another file that is called, and which compilers were at work.

use std::collections::{BTreeMap, BTreeSet};

use object::{
    Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, RelocationTarget, SymbolFlags,
    SymbolIndex, SymbolKind, elf,
};
use rustc_hash::FxHashMap;

use super::arch::Architecture;
use super::image::Image;
use super::place::ROOM_BYTES;
use crate::foreign::{plain, plain_bytes};
use crate::model::Svma;

/// `endbr64`, in front of the jump of a stub.
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// Where the functions of a program come from: source files, other files, compilers.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    /// Local functions of a linked program, by start, with their source file's name.
    files: FxHashMap<Svma, String>,
    /// What is defined elsewhere, by where it was placed.
    elsewhere: FxHashMap<Svma, String>,
    /// Places in memory that hold the address of a function defined elsewhere.
    slots: FxHashMap<Svma, String>,
    compilers: BTreeSet<String>,
}

impl Origins {
    /// Reads the tables again.
    #[must_use]
    pub fn of(image: &Image) -> Self {
        let parts = image.parts();
        let mut origins = Self::default();
        let Ok(file) = object::File::parse(&*parts) else { return origins };
        let mut current: Option<String> = None;
        for symbol in file.symbols() {
            let name = plain(symbol.name().unwrap_or_default());
            match (symbol.kind(), image.placed()) {
                (SymbolKind::File, _) => {
                    current = Some(name.into_owned()).filter(|n| !n.is_empty());
                }
                (_, Some(placed)) if symbol.is_undefined() && !name.is_empty() => {
                    let at = Svma(placed.symbol(&symbol));
                    origins.elsewhere.insert(at, name.clone().into_owned());
                    origins.slots.insert(at.offset(ROOM_BYTES as i64), name.into_owned());
                }
                (SymbolKind::Text, None) if symbol.is_local() && symbol.is_definition() => {
                    if let Some(file) = &current {
                        origins.files.insert(Svma(symbol.address()), file.clone());
                    }
                }
                _ => {}
            }
        }
        origins.slots.extend(imports(&file));
        let comment = file.section_by_name(".comment").and_then(|s| s.data().ok()).unwrap_or(&[]);
        let texts = comment.split(|b| *b == 0).filter(|text| !text.is_empty());
        origins.compilers = texts.map(plain_bytes).collect();
        origins
    }

    /// The source file of a local function of a linked program.
    #[must_use]
    pub fn file(&self, function: Svma) -> Option<&str> {
        self.files.get(&function).map(String::as_str)
    }

    /// What the compilers left about themselves (`.comment`).
    #[must_use]
    pub fn compilers(&self) -> &BTreeSet<String> {
        &self.compilers
    }

    /// The symbol that a direct call or jump to `target` reaches, also through a stub of the linker.
    #[must_use]
    pub fn callee(&self, image: &Image, target: Svma) -> Option<String> {
        let own = image.function_at(target).filter(|f| f.named && f.start == target);
        own.map(|f| f.symbol.clone())
            .or_else(|| self.elsewhere.get(&target).cloned())
            .or_else(|| self.slots.get(&slot_of(image, target)?).cloned())
    }

    /// The symbol whose address is kept at a place in memory.
    #[must_use]
    pub fn callee_through(&self, slot: Svma) -> Option<&str> {
        self.slots.get(&slot).map(String::as_str)
    }
}

/// The place in memory through which a stub of the linker jumps.
fn slot_of(image: &Image, target: Svma) -> Option<Svma> {
    let code = image.code_at(target, 16);
    let (code, at) = match code.strip_prefix(&ENDBR64) {
        Some(rest) => (rest, target.offset(4)),
        None => (code, target),
    };
    match (image.architecture(), code) {
        (Architecture::X86_64, [0xff, 0x25, a, b, c, d, ..]) => {
            Some(at.offset(6 + i64::from(i32::from_le_bytes([*a, *b, *c, *d]))))
        }
        (Architecture::X86_64, [0xf2, 0xff, 0x25, a, b, c, d, ..]) => {
            Some(at.offset(7 + i64::from(i32::from_le_bytes([*a, *b, *c, *d]))))
        }
        _ => None,
    }
}

/// What an entry of `.rela.plt` takes.
const RELOCATION_BYTES: usize = 24;

/// A library's own functions, as its callers reach them.
#[derive(Debug, Default)]
pub struct Exports {
    /// By the place in memory that holds the address which a stub of the linker jumps to.
    slots: BTreeMap<Svma, Svma>,
}

impl Exports {
    /// Reads what the loader will write.
    #[must_use]
    pub fn of(image: &Image) -> Self {
        if image.architecture() != Architecture::X86_64 {
            return Self::default();
        }
        let parts = image.parts();
        let Ok(file) = object::File::parse(&*parts) else { return Self::default() };
        let Some(table) = file.dynamic_symbol_table() else { return Self::default() };
        let entries = file.section_by_name(".rela.plt").and_then(|s| s.data().ok()).unwrap_or(&[]);
        let own = |entry: &[u8]| {
            let word =
                |at: usize| Some(u64::from_le_bytes(entry.get(at..at + 8)?.try_into().ok()?));
            let (slot, info) = (word(0)?, word(8)?);
            let symbol = table.symbol_by_index(SymbolIndex((info >> 32) as usize)).ok()?;
            // An indirect function's symbol is what chooses it.
            let is_plain = matches!(
                symbol.flags(),
                SymbolFlags::Elf { st_info, .. } if st_info.st_type() == elf::STT_FUNC
            );
            (is_plain && !symbol.is_undefined()).then(|| (Svma(slot), Svma(symbol.address())))
        };
        Self { slots: entries.chunks_exact(RELOCATION_BYTES).filter_map(own).collect() }
    }

    /// What a direct call to `target` reaches: behind a stub, the library's own function, which another
    /// file could replace.
    #[must_use]
    pub fn behind(&self, image: &Image, target: Svma) -> Svma {
        let own = (!self.slots.is_empty()).then(|| slot_of(image, target)).flatten();
        own.and_then(|slot| self.slots.get(&slot)).copied().unwrap_or(target)
    }
}

/// The functions that other files can call by name, ascending: those of an object file that are not its
/// own business.
#[must_use]
pub fn global_functions(image: &Image) -> Vec<Svma> {
    let Some(placed) = image.placed() else { return Vec::new() };
    let parts = image.parts();
    let Ok(file) = object::File::parse(&*parts) else { return Vec::new() };
    let functions = file
        .symbols()
        .filter(|s| s.kind() == SymbolKind::Text && s.is_definition() && s.is_global());
    let mut starts: Vec<Svma> = functions.map(|s| Svma(placed.symbol(&s))).collect();
    starts.sort_unstable();
    starts
}

/// Where the loader writes the addresses of what a program imports.
fn imports<'d>(file: &impl Object<'d>) -> BTreeMap<Svma, String> {
    let Some((table, relocations)) = file.dynamic_symbol_table().zip(file.dynamic_relocations())
    else {
        return BTreeMap::new();
    };
    relocations
        .filter_map(|(at, relocation)| {
            let RelocationTarget::Symbol(index) = relocation.target() else { return None };
            let symbol = table.symbol_by_index(index).ok()?;
            let name = symbol.name().ok().filter(|name| !name.is_empty())?;
            Some((Svma(at), name.to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stub_leads_to_the_function_that_its_slot_holds() {
        // jmp [rip+0x10]; nops; endbr64; jmp [rip+0x2]; mov eax, ecx; ret
        let plain: &[u8] = &[0xff, 0x25, 0x10, 0, 0, 0];
        let marked: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0x02, 0, 0, 0];
        let function: &[u8] = &[0x89, 0xc8, 0xc3];
        let functions = [("plain", plain), ("marked", marked), ("function", function)];
        let image = crate::code::fixture::image(&functions).unwrap();
        let [plain, marked, function] = [0, 1, 2].map(|n| image.functions()[n].start);
        let slots = [(plain.offset(6 + 0x10), function), (marked.offset(10 + 2), plain)];
        let exports = Exports { slots: slots.into() };
        assert_eq!(exports.behind(&image, plain), function);
        assert_eq!(exports.behind(&image, marked), plain);
        assert_eq!(exports.behind(&image, function), function);
        assert_eq!(Exports::of(&image).behind(&image, plain), plain, "no table says so");
        assert!(global_functions(&image).is_empty(), "it is linked");
    }

    #[test]
    fn this_program_was_compiled_by_somebody_and_calls_the_c_library() {
        let image = Image::open(&std::env::current_exe().unwrap()).unwrap();
        let origins = Origins::of(&image);
        assert!(origins.compilers().iter().any(|c| c.contains("rustc") || c.contains("GCC")));
        assert!(origins.slots.values().any(|name| name == "memcpy"), "{:?}", origins.slots.len());
        assert!(!origins.files.is_empty());
        let first = &image.functions().iter().find(|f| f.named).unwrap();
        assert_eq!(origins.callee(&image, first.start).as_ref(), Some(&first.symbol));
    }
}
