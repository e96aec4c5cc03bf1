//! From addresses in a process to functions, instructions and source lines.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;

use crate::code::{Addresses, Architecture, DebugInfo, FunctionCode, Image, LONGEST_INSN_BYTES};
use crate::model::{Avma, FileOffset, Site, Svma};
use crate::trace::engine::{CodePage, Mapping};

/// What stands at an address of the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Location {
    /// The address in the process.
    pub avma: Avma,
    /// The file that is mapped there; absent for code that no file holds.
    pub object: Option<PathBuf>,
    /// The instruction, where the file could be read.
    pub site: Option<Site>,
}

/// Looks addresses up in what was mapped; files are opened when one is asked for.
pub struct Places {
    mappings: Vec<Mapping>,
    objects: HashMap<PathBuf, Option<Image>>,
    /// Code that no file holds, by where it is.
    code: BTreeMap<Avma, Vec<u8>>,
    notes: Vec<String>,
}

impl Places {
    /// For a recording's mappings, and its code that none of them holds.
    #[must_use]
    pub fn new(mappings: Vec<Mapping>, code: Vec<CodePage>) -> Self {
        let code = code.into_iter().map(|page| (page.start, page.bytes)).collect();
        Self { mappings, objects: HashMap::new(), code, notes: Vec::new() }
    }

    /// What [`Places::places`] lacks and why.
    #[must_use]
    pub fn notes(self) -> Vec<String> {
        self.notes
    }

    fn object(&mut self, path: &Path) -> Option<&Image> {
        let open = || Image::open(path).ok();
        self.objects.entry(path.into()).or_insert_with(open).as_ref()
    }

    fn locate(&self, address: Avma) -> Option<(PathBuf, FileOffset)> {
        let (mapping, offset) = Mapping::find(&self.mappings, address)?;
        mapping.path.is_absolute().then(|| (mapping.path.clone(), offset))
    }

    /// The bytes of an x86-64 instruction; empty where neither a file nor the recording holds them, or it is another's.
    pub fn x86_code(&mut self, address: Avma, size_bytes: u8) -> Vec<u8> {
        let Some((path, offset)) = self.locate(address) else {
            return self.kept_code(address, size_bytes).unwrap_or_default().to_vec();
        };
        let image = self.object(&path).filter(|it| it.architecture() == Architecture::X86_64);
        let bytes = image.and_then(|image| {
            Some(image.code_at(image.svma_of(offset)?, u64::from(size_bytes)).to_vec())
        });
        bytes.unwrap_or_default()
    }

    fn kept_code(&self, address: Avma, size_bytes: u8) -> Option<&[u8]> {
        let (start, bytes) = self.code.range(..=address).next_back()?;
        let from = usize::try_from(address.0 - start.0).ok()?;
        bytes.get(from..(from + usize::from(size_bytes)).min(bytes.len()))
    }

    /// The file that is mapped at an address, and where in the process the function starts that holds it.
    pub fn function_start(&mut self, address: Avma) -> (Option<PathBuf>, Option<Avma>) {
        let Some((path, offset)) = self.locate(address) else { return (None, None) };
        let start = self.object(&path).and_then(|image| {
            let svma = image.svma_of(offset)?;
            let into = svma.distance_from(image.function_at(svma)?.start)?;
            Some(Avma(address.0.checked_sub(into)?))
        });
        (Some(path), start)
    }

    /// What stands at these addresses, each named once, by address. Debug information of a file
    /// is read once for all addresses in it, and a function decoded once.
    pub fn places(&mut self, mut addresses: Vec<Avma>) -> Vec<Location> {
        addresses.sort_unstable();
        addresses.dedup();
        let mut of_object: BTreeMap<PathBuf, Vec<(Avma, FileOffset)>> = BTreeMap::new();
        let mut places = Vec::new();
        for avma in addresses {
            match self.locate(avma) {
                Some((path, offset)) => of_object.entry(path).or_default().push((avma, offset)),
                None => places.push(Location { avma, object: None, site: None }),
            }
        }
        for (path, addresses) in of_object {
            let object = self.object(&path).map(|image| (image, DebugInfo::of(image)));
            let mut sites = object.as_ref().map(|(image, debug)| Sites::new(image, debug));
            for (avma, offset) in addresses {
                let svma = object.as_ref().and_then(|(image, _)| image.svma_of(offset));
                let site = sites.as_mut().zip(svma).and_then(|(sites, svma)| sites.site(svma));
                places.push(Location { avma, object: Some(path.clone()), site });
            }
            let refused = object.map_or_else(Vec::new, |(_, debug)| debug.refused());
            self.notes.extend(refused);
        }
        places.sort_by_key(|place| place.avma);
        places
    }
}

/// Names the sites of one file, by address.
pub struct Sites<'a, 'd> {
    image: &'a Image,
    debug: &'d DebugInfo<'a>,
    /// The function of the address before: an interpreter's takes long to decode.
    latest: Option<(Svma, FunctionCode, Addresses)>,
}

impl<'a, 'd> Sites<'a, 'd> {
    /// Those of `image`, with what its debug information says.
    #[must_use]
    pub fn new(image: &'a Image, debug: &'d DebugInfo<'a>) -> Self {
        Self { image, debug, latest: None }
    }

    /// What stands at an address; `None` where no function does.
    pub fn site(&mut self, svma: Svma) -> Option<Site> {
        let image = self.image;
        let function = image.function_at(svma)?;
        if self.latest.as_ref().is_none_or(|(start, ..)| *start != function.start) {
            let code = FunctionCode::of(image, function);
            let addresses = Addresses::of(&code);
            self.latest = Some((function.start, code, addresses));
        }
        let (_, code, addresses) = self.latest.as_ref()?;
        let index = code.insn_at(svma);
        let access = index.and_then(|i| code.insns[i].load.or(code.insns[i].store));
        let variable = index.zip(access).and_then(|(index, access)| {
            let symbolic = addresses.load(code, index).or(addresses.store(code, index));
            self.debug.variable(function.start, &access.address, symbolic.as_ref())
        });
        Some(Site {
            function: function.name(),
            offset_bytes: svma.distance_from(function.start)?,
            svma,
            text: image.architecture().text(image.code_at(svma, LONGEST_INSN_BYTES as u64), svma),
            access_bytes: access.map_or(0, |a| a.size_bytes),
            source: self.debug.frames(svma),
            variable,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_no_file_holds_is_read_from_the_recording() {
        let page = CodePage { start: Avma(0x7000), bytes: vec![0xb8, 1, 0, 0, 0, 0xc3] };
        let mut places = Places::new(Vec::new(), vec![page]);
        let mut code = |at, size| places.x86_code(Avma(at), size);
        assert_eq!(code(0x7005, 1), [0xc3]);
        assert_eq!(code(0x7000, 5), [0xb8, 1, 0, 0, 0]);
        assert_eq!(code(0x7005, 2), [0xc3], "as much as there is");
        assert!(code(0x7006, 1).is_empty() && code(0x6fff, 1).is_empty());
    }
}
