//! Places an object file as a linker would, as far as the analysis needs it.
//!
//! In an object file every section starts at 0 and every reference to something elsewhere is a hole
//! with a note (a relocation). Read as it is, all globals would be at one address and every call
//! would go to the next instruction. So the sections get addresses one behind the other, what is
//! defined elsewhere gets a room of its own behind them, and the holes are filled.

use object::elf;
use object::{
    Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget, SectionIndex,
    SectionKind, SymbolIndex, SymbolSection,
};
use rustc_hash::FxHashMap;

use super::parts::{Parts, ProgramFile};
use crate::model::Svma;

/// Room for each thing that is defined elsewhere: its size is not known.
pub(super) const ROOM_BYTES: u64 = 1 << 16;
/// Sections start at multiples of this at least.
const LEAST_ALIGNMENT: u64 = 16;

/// Where everything in an object file was placed.
#[derive(Clone, Debug, Default)]
pub(super) struct Placed {
    sections: FxHashMap<SectionIndex, Svma>,
    end: u64,
}

impl Placed {
    /// Gives every section of a file that will be in memory its address, code first.
    pub fn of(file: &ProgramFile<'_>) -> Self {
        let mut placed = Self::default();
        for code in [true, false] {
            for section in file.sections() {
                let kind = section.kind();
                let in_memory = !matches!(
                    kind,
                    SectionKind::Metadata
                        | SectionKind::Debug
                        | SectionKind::DebugString
                        | SectionKind::Other
                        | SectionKind::OtherString
                        | SectionKind::Note
                        | SectionKind::Linker
                        | SectionKind::Unknown
                );
                if !in_memory || (kind == SectionKind::Text) != code {
                    continue;
                }
                let alignment = section.align().clamp(LEAST_ALIGNMENT, 1 << 16);
                let start = placed.end.next_multiple_of(alignment.next_power_of_two());
                placed.sections.insert(section.index(), Svma(start));
                // Damaged sizes must not wrap around.
                placed.end = start.saturating_add(section.size()).min(1 << 40);
            }
        }
        placed.end = placed.end.next_multiple_of(ROOM_BYTES) + ROOM_BYTES;
        placed
    }

    pub fn address(&self, section: SectionIndex) -> Option<Svma> {
        self.sections.get(&section).copied()
    }

    pub fn symbol<'d>(&self, symbol: &impl ObjectSymbol<'d>) -> u64 {
        match symbol.section() {
            SymbolSection::Section(index) => {
                self.address(index).unwrap_or_default().0.wrapping_add(symbol.address())
            }
            SymbolSection::Absolute => symbol.address(),
            _ => self.room(symbol.index()),
        }
    }

    /// A room for what is defined elsewhere; twice, since its address may be kept in memory too.
    fn room(&self, symbol: SymbolIndex) -> u64 {
        self.end.wrapping_add((2 * symbol.0 as u64).wrapping_mul(ROOM_BYTES))
    }

    /// Fills the holes in the bytes of a section, and where they are, ascending. References that are not understood stay
    /// holes.
    pub fn relocate<'d>(
        &self,
        file: &ProgramFile<'d>,
        section: &object::Section<'d, '_, &'d Parts>,
        bytes: &mut [u8],
    ) -> Vec<usize> {
        let mut places = Vec::new();
        let base = self.address(section.index()).unwrap_or_default().0;
        for (offset, relocation) in section.relocations() {
            let RelocationTarget::Symbol(index) = relocation.target() else { continue };
            let Ok(symbol) = file.symbol_by_index(index) else { continue };
            let Ok(at) = usize::try_from(offset) else { continue };
            places.push(at);
            let hole = Hole {
                at,
                address: base.wrapping_add(offset),
                target: self.symbol(&symbol),
                kept_at: self.room(index).wrapping_add(ROOM_BYTES),
                addend: relocation.addend(),
            };
            match (file.architecture(), relocation.flags()) {
                (object::Architecture::X86_64, RelocationFlags::Elf { r_type }) => {
                    hole.fill_x86_64(bytes, r_type);
                }
                (object::Architecture::Aarch64, RelocationFlags::Elf { r_type }) => {
                    hole.fill_aarch64(bytes, r_type);
                }
                _ => {}
            }
        }
        places.sort_unstable();
        places
    }
}

/// A place that waits for an address.
struct Hole {
    at: usize,
    address: u64,
    target: u64,
    /// Where the address of that would be kept.
    kept_at: u64,
    addend: i64,
}

impl Hole {
    fn write(&self, bytes: &mut [u8], value: &[u8]) {
        if let Some(end) = self.at.checked_add(value.len())
            && let Some(place) = bytes.get_mut(self.at..end)
        {
            place.copy_from_slice(value);
        }
    }

    fn fill_x86_64(&self, bytes: &mut [u8], kind: elf::RelocationType) {
        let absolute = self.target.wrapping_add_signed(self.addend);
        let distance = |to: u64| to.wrapping_add_signed(self.addend).wrapping_sub(self.address);
        match kind {
            elf::R_X86_64_64 => self.write(bytes, &absolute.to_le_bytes()),
            elf::R_X86_64_32 | elf::R_X86_64_32S => {
                self.write(bytes, &(absolute as u32).to_le_bytes());
            }
            elf::R_X86_64_PC32 | elf::R_X86_64_PLT32 => {
                self.write(bytes, &(distance(self.target) as u32).to_le_bytes());
            }
            elf::R_X86_64_GOTPCREL | elf::R_X86_64_GOTPCRELX | elf::R_X86_64_REX_GOTPCRELX => {
                self.write(bytes, &(distance(self.kept_at) as u32).to_le_bytes());
            }
            _ => {}
        }
    }

    fn fill_aarch64(&self, bytes: &mut [u8], kind: elf::RelocationType) {
        let to = self.target.wrapping_add_signed(self.addend);
        let words = |to: u64| to.wrapping_sub(self.address) as i64 >> 2;
        let low = |shift: u32| ((to & 0xfff) >> shift) << 10;
        let pages = |to: u64| {
            let distance = ((to >> 12) as i64).wrapping_sub((self.address >> 12) as i64) as u64;
            (distance & 3) << 29 | (distance >> 2 & 0x7_ffff) << 5
        };
        let (mask, field) = match kind {
            elf::R_AARCH64_ABS64 => return self.write(bytes, &to.to_le_bytes()),
            elf::R_AARCH64_ABS32 => return self.write(bytes, &(to as u32).to_le_bytes()),
            elf::R_AARCH64_CALL26 | elf::R_AARCH64_JUMP26 => (0x03ff_ffff, words(to) as u64),
            elf::R_AARCH64_CONDBR19 => (0x00ff_ffe0, (words(to) << 5) as u64),
            elf::R_AARCH64_TSTBR14 => (0x0007_ffe0, (words(to) << 5) as u64),
            elf::R_AARCH64_ADR_PREL_PG_HI21 => (0x60ff_ffe0, pages(to)),
            elf::R_AARCH64_ADR_GOT_PAGE => (0x60ff_ffe0, pages(self.kept_at)),
            elf::R_AARCH64_LD64_GOT_LO12_NC => (0x003f_fc00, ((self.kept_at & 0xfff) >> 3) << 10),
            elf::R_AARCH64_ADD_ABS_LO12_NC | elf::R_AARCH64_LDST8_ABS_LO12_NC => {
                (0x003f_fc00, low(0))
            }
            elf::R_AARCH64_LDST16_ABS_LO12_NC => (0x003f_fc00, low(1)),
            elf::R_AARCH64_LDST32_ABS_LO12_NC => (0x003f_fc00, low(2)),
            elf::R_AARCH64_LDST64_ABS_LO12_NC => (0x003f_fc00, low(3)),
            elf::R_AARCH64_LDST128_ABS_LO12_NC => (0x003f_fc00, low(4)),
            _ => return,
        };
        let Some(old) = bytes.get(self.at..).and_then(|rest| rest.first_chunk::<4>()) else {
            return;
        };
        let word = u32::from_le_bytes(*old) & !mask | field as u32 & mask;
        self.write(bytes, &word.to_le_bytes());
    }
}
