//! Which kind a blocked load and its store are, so that it is priced as this kind and not as all
//! blocked loads.

use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory};
use schemars::JsonSchema;
use serde::Serialize;

use super::Places;
use super::store_buffer::LoadSite;
use crate::code::LONGEST_INSN_BYTES;
use crate::code::x86::loads_and_stores;
use crate::machine::{Design, PairKind, PriceRange, RegisterFile};
use crate::model::Avma;

/// What one load instruction pays when it is blocked.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LoadPrice {
    /// Address of the load.
    pub insn: Avma,
    /// It and each kind of store that blocks it most often.
    pub kinds: Vec<PairKind>,
    /// What pairs of these kinds cost, least and most.
    pub cycles: PriceRange,
}

impl LoadPrice {
    /// `a 64-bit load into a vector register behind stores of 32 bits from a general and of 32 bits
    /// from a vector register`.
    #[must_use]
    pub fn sentence(&self) -> String {
        let stores: Vec<String> = self
            .kinds
            .iter()
            .map(|k| format!("of {} bits from a {}", 8 * k.store_bytes, k.store.name()))
            .collect();
        let load = self.kinds.first().map_or_else(String::new, |k| {
            format!("a {}-bit load into a {} register", 8 * k.load_bytes, k.load.name())
        });
        format!("{load} behind stores {} register", stores.join(" and "))
    }
}

/// Prices of those of these loads whose kinds were measured, by address.
pub(super) fn prices<'a>(
    sites: impl Iterator<Item = &'a LoadSite>,
    places: &mut Places,
    design: &Design,
) -> Vec<LoadPrice> {
    let mut prices: Vec<LoadPrice> = sites
        .filter_map(|site| {
            let kinds = kinds(site, places)?;
            let all: Option<Vec<&PriceRange>> =
                kinds.iter().map(|k| Some(&design.blocked_pair(k)?.cycles)).collect();
            Some(LoadPrice { insn: site.insn, cycles: span(&all?)?, kinds })
        })
        .collect();
    prices.sort_by_key(|price| price.insn);
    prices
}

fn span(prices: &[&PriceRange]) -> Option<PriceRange> {
    let (first, others) = prices.split_first()?;
    let mut whole = (*first).clone();
    for price in others {
        whole.low_cycles = whole.low_cycles.min(price.low_cycles);
        whole.high_cycles = whole.high_cycles.max(price.high_cycles);
        whole.measured = None;
    }
    Some(whole)
}

/// The kinds of a load and the stores that block it most often; none if one cannot be read.
fn kinds(site: &LoadSite, places: &mut Places) -> Option<Vec<PairKind>> {
    let load = decode(places, site.insn)?;
    let mut kinds: Vec<PairKind> = Vec::new();
    for store in &site.blockers.first()?.stores {
        let store = decode(places, *store)?;
        kinds.push(PairKind {
            store_bytes: stored_bytes(&store)?,
            store: register_file(&store),
            load_bytes: u16::try_from(site.size_bytes).ok()?,
            load: register_file(&load),
        });
    }
    kinds.sort_unstable();
    kinds.dedup();
    Some(kinds)
}

fn decode(places: &mut Places, address: Avma) -> Option<Instruction> {
    let bytes = places.x86_code(address, LONGEST_INSN_BYTES as u8);
    let insn = Decoder::with_ip(64, &bytes, address.0, DecoderOptions::NONE).decode();
    (!insn.is_invalid()).then_some(insn)
}

fn stored_bytes(insn: &Instruction) -> Option<u16> {
    let mut factory = InstructionInfoFactory::new();
    let memory = factory.info(insn).used_memory();
    let written = memory.iter().find(|m| loads_and_stores(m.access()).1)?;
    u16::try_from(written.memory_size().size()).ok().filter(|bytes| *bytes > 0)
}

fn register_file(insn: &Instruction) -> RegisterFile {
    let vector = (0..insn.op_count()).any(|i| insn.op_register(i).is_vector_register());
    if vector { RegisterFile::Vector } else { RegisterFile::General }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::PriceOrigin;

    fn of(bytes: &[u8]) -> (Option<u16>, RegisterFile) {
        let insn = Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE).decode();
        (stored_bytes(&insn), register_file(&insn))
    }

    #[test]
    fn stores_of_two_kinds_cost_what_both_span() {
        let price = |low_cycles, high_cycles| PriceRange {
            low_cycles,
            high_cycles,
            origin: PriceOrigin::Assumed,
            measured: None,
        };
        let whole = span(&[&price(18.0, 20.0), &price(15.0, 19.0)]).unwrap();
        assert_eq!((whole.low_cycles, whole.high_cycles), (15.0, 20.0));
        let kind =
            |store| PairKind { store_bytes: 4, store, load_bytes: 8, load: RegisterFile::Vector };
        let kinds = vec![kind(RegisterFile::General), kind(RegisterFile::Vector)];
        let price = LoadPrice { insn: Avma(0), kinds, cycles: whole };
        assert_eq!(
            price.sentence(),
            "a 64-bit load into a vector register behind stores of 32 bits from a general and of \
             32 bits from a vector register"
        );
    }

    #[test]
    fn widths_and_files_are_those_of_the_operands() {
        use RegisterFile::{General, Vector};
        assert_eq!(of(&[0x89, 0x04, 0x24]), (Some(4), General)); // mov [rsp],eax
        assert_eq!(of(&[0x53]), (Some(8), General)); // push rbx
        assert_eq!(of(&[0x01, 0x04, 0x24]), (Some(4), General)); // add [rsp],eax
        assert_eq!(of(&[0x66, 0x0f, 0x7e, 0x04, 0x24]), (Some(4), Vector)); // movd [rsp],xmm0
        assert_eq!(of(&[0xf3, 0x0f, 0x7e, 0x04, 0x24]), (None, Vector)); // movq xmm0,[rsp]
        assert_eq!(of(&[0xc7, 0x04, 0x24, 0, 0, 0, 0]), (Some(4), General)); // mov dword [rsp],0
    }
}
