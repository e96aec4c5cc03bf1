//! The names of arrays and other variables on the stack, from debug information.
//!
//! `[rsp+r9*8-0x10]` says little; *an element of `edgefifo`* says where to look, even when the
//! compiler made the instruction out of several source lines and gave it none. Only variables with
//! one fixed place in the frame are named. Nothing here fails: no name is an answer.

use std::cell::OnceCell;
use std::sync::Arc;

use gimli::{AttributeValue, DebuggingInformationEntry, Operation};

use super::debug::Reader;
use super::insn::{RawAddress, Reg};
use super::symbolic::{Root, SymbolicAddress};
use crate::foreign::plain;
use crate::model::Svma;

type Unit = gimli::Unit<Reader>;
type Entry<'a> = DebuggingInformationEntry<Reader>;

/// Types nest; a chain longer than this is broken.
const DEEPEST_TYPE: u32 = 16;

/// The variables of one program, or of one unit of it.
pub(super) struct Variables {
    dwarf: Arc<gimli::Dwarf<Reader>>,
    /// Address ranges with the number of their unit.
    ranges: OnceCell<Vec<(u64, u64, usize)>>,
}

/// What the offsets of a function's variables count from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FrameBase {
    Register(Reg),
    /// The stack pointer at entry, plus the return address.
    CallFrame,
}

impl Variables {
    /// Those that the debug information describes.
    pub fn of(dwarf: Arc<gimli::Dwarf<Reader>>) -> Self {
        Self { dwarf, ranges: OnceCell::new() }
    }

    /// The variable that an access of the function around `function` touches.
    pub fn name(
        &self,
        function: Svma,
        raw: &RawAddress,
        symbolic: Option<&SymbolicAddress>,
    ) -> Option<String> {
        let unit = self.unit_of(function)?;
        let mut entries = unit.entries();
        let mut frame: Option<(isize, Option<FrameBase>)> = None;
        while let Ok(Some(entry)) = entries.next_dfs() {
            let depth = entry.depth();
            if frame.is_some_and(|(at, _)| depth <= at) {
                frame = None;
            }
            if entry.tag() == gimli::DW_TAG_subprogram && self.covers(&unit, entry, function) {
                frame = Some((depth, frame_base(&unit, entry)));
            } else if let (gimli::DW_TAG_variable, Some((_, Some(base)))) = (entry.tag(), frame)
                && let Some(start) = frame_offset(&unit, entry)
                && let Some(at) = place(base, raw, symbolic)
                && let Some(size) = self.size_of(&unit, entry, 0)
                && (start..start.saturating_add(size)).contains(&at)
            {
                return self.string(&unit, entry, gimli::DW_AT_name);
            }
        }
        None
    }

    /// What says of itself to have compiled the unit around `function`.
    pub fn producer(&self, function: Svma) -> Option<String> {
        let unit = self.unit_of(function)?;
        let root = unit.entry(unit.header.root_offset()).ok()?;
        self.string(&unit, &root, gimli::DW_AT_producer)
    }

    fn unit_of(&self, function: Svma) -> Option<Unit> {
        let ranges = self.ranges.get_or_init(|| self.all_ranges());
        let holds = |(begin, end, _): &&(u64, u64, usize)| (*begin..*end).contains(&function.0);
        let (.., number) = *ranges.iter().find(holds)?;
        let mut headers = self.dwarf.units();
        for _ in 0..number {
            headers.next().ok()??;
        }
        self.dwarf.unit(headers.next().ok()??).ok()
    }

    fn all_ranges(&self) -> Vec<(u64, u64, usize)> {
        let mut all = Vec::new();
        let mut headers = self.dwarf.units();
        let mut number = 0;
        while let Ok(Some(header)) = headers.next() {
            if let Ok(unit) = self.dwarf.unit(header)
                && unit
                    .entry(unit.header.root_offset())
                    .is_ok_and(|root| self.has_sound_range(&unit, &root))
                && let Ok(mut ranges) = self.dwarf.unit_ranges(&unit)
            {
                while let Ok(Some(range)) = ranges.next() {
                    all.push((range.begin, range.end, number));
                }
            }
            number += 1;
        }
        all
    }

    fn covers(&self, unit: &Unit, entry: &Entry<'_>, function: Svma) -> bool {
        if !self.has_sound_range(unit, entry) {
            return false;
        }
        let Ok(mut ranges) = self.dwarf.die_ranges(unit, entry) else { return false };
        while let Ok(Some(range)) = ranges.next() {
            if (range.begin..range.end).contains(&function.0) {
                return true;
            }
        }
        false
    }

    /// Whether a start and a length, if it has both, stay below the end of the address space: the
    /// reader of ranges adds them up as they are.
    fn has_sound_range(&self, unit: &Unit, entry: &Entry<'_>) -> bool {
        let low = attribute(unit, entry, gimli::DW_AT_low_pc);
        let low = low.and_then(|value| self.dwarf.attr_address(unit, value).ok().flatten());
        match (low, attribute(unit, entry, gimli::DW_AT_high_pc)) {
            (Some(low), Some(AttributeValue::Udata(size))) => low.checked_add(size).is_some(),
            _ => true,
        }
    }

    fn string(&self, unit: &Unit, entry: &Entry<'_>, name: gimli::DwAt) -> Option<String> {
        let text = self.dwarf.attr_string(unit, attribute(unit, entry, name)?).ok()?;
        let text = gimli::Reader::to_string_lossy(&text).ok()?;
        Some(plain(&text).into_owned())
    }

    /// Bytes of the type that `entry` names.
    fn size_of(&self, unit: &Unit, entry: &Entry<'_>, depth: u32) -> Option<i64> {
        let AttributeValue::UnitRef(offset) = attribute(unit, entry, gimli::DW_AT_type)? else {
            return None;
        };
        let kind = unit.entry(offset).ok()?;
        if let Some(size) = kind.attr_value(gimli::DW_AT_byte_size).and_then(|v| v.udata_value()) {
            return i64::try_from(size).ok();
        }
        if depth >= DEEPEST_TYPE {
            return None;
        }
        let inner = self.size_of(unit, &kind, depth + 1)?;
        match kind.tag() {
            gimli::DW_TAG_array_type => inner.checked_mul(elements(unit, offset)?),
            _ => Some(inner),
        }
    }
}

/// An attribute of an entry, or of what it is an instance of (inlined and cloned functions).
fn attribute(unit: &Unit, entry: &Entry<'_>, name: gimli::DwAt) -> Option<AttributeValue<Reader>> {
    entry.attr_value(name).or_else(|| {
        let origin = entry.attr_value(gimli::DW_AT_abstract_origin)?;
        let AttributeValue::UnitRef(offset) = origin else { return None };
        unit.entry(offset).ok()?.attr_value(name)
    })
}

fn elements(unit: &Unit, array: gimli::UnitOffset) -> Option<i64> {
    let mut tree = unit.entries_tree(Some(array)).ok()?;
    let mut children = tree.root().ok()?.children();
    let mut product = 1_i64;
    while let Ok(Some(child)) = children.next() {
        let entry = child.entry();
        let number = |name| entry.attr_value(name).and_then(|v| v.udata_value());
        let count = number(gimli::DW_AT_count)
            .or_else(|| number(gimli::DW_AT_upper_bound)?.checked_add(1))?;
        product = product.checked_mul(i64::try_from(count).ok()?)?;
    }
    Some(product)
}

fn only_operation(unit: &Unit, value: AttributeValue<Reader>) -> Option<Operation<Reader>> {
    let mut operations = value.exprloc_value()?.operations(unit.encoding());
    let operation = operations.next().ok()??;
    operations.next().ok()?.is_none().then_some(operation)
}

fn frame_base(unit: &Unit, entry: &Entry<'_>) -> Option<FrameBase> {
    match only_operation(unit, entry.attr_value(gimli::DW_AT_frame_base)?)? {
        // DWARF numbers rbp 6 and rsp 7; the hardware numbers them 5 and 4.
        Operation::Register { register: gimli::Register(6) } => Some(FrameBase::Register(Reg(5))),
        Operation::Register { register: gimli::Register(7) } => {
            Some(FrameBase::Register(Reg::STACK))
        }
        Operation::CallFrameCFA => Some(FrameBase::CallFrame),
        _ => None,
    }
}

fn frame_offset(unit: &Unit, entry: &Entry<'_>) -> Option<i64> {
    match only_operation(unit, entry.attr_value(gimli::DW_AT_location)?)? {
        Operation::FrameOffset { offset } => Some(offset),
        _ => None,
    }
}

/// Where the access starts, counted from the frame base.
fn place(base: FrameBase, raw: &RawAddress, symbolic: Option<&SymbolicAddress>) -> Option<i64> {
    match base {
        FrameBase::Register(reg) => (raw.base == Some(reg)).then_some(raw.displacement),
        FrameBase::CallFrame => {
            let address = symbolic.filter(|a| a.base == Some(Root::entry(Reg::STACK)))?;
            Some(address.offset_bytes - 8)
        }
    }
}
