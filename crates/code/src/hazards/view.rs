//! One function as the rules see it: its bytes, its code, and what is worked out only when a rule
//! asks.

use std::cell::OnceCell;
use std::sync::Arc;

use super::store_forward::Callees;
use crate::code::x86::Survey;
use crate::code::{
    Addresses, Architecture, Function, FunctionCode, Image, Insn, MOST_FUNCTION_BYTES, StringSite,
    may_hold_strings, string_sites,
};

/// What a function must have for a rule to look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// A loop.
    Loops,
    /// An access at a fixed address, or in an aligned frame, that may cross a cache line.
    FixedAddresses,
    /// More than one function: it is asked about the whole program.
    Program,
    /// The byte pattern of a string instruction.
    Strings,
}

/// One function, decoded.
pub struct FunctionView<'a> {
    /// The program it is part of.
    pub image: &'a Image,
    /// Bounds and name of the function.
    pub function: &'a Function,
    bytes: &'a [u8],
    name: OnceCell<String>,
    survey: OnceCell<Survey>,
    code: OnceCell<FunctionCode>,
    addresses: OnceCell<Addresses>,
    strings: OnceCell<Vec<StringSite>>,
    callees: Arc<Callees>,
}

impl<'a> FunctionView<'a> {
    /// Decodes a function.
    #[must_use]
    pub fn of(image: &'a Image, function: &'a Function) -> Self {
        let bytes = image.function_bytes(function);
        Self {
            image,
            function,
            bytes: &bytes[..bytes.len().min(MOST_FUNCTION_BYTES)],
            name: OnceCell::new(),
            survey: OnceCell::new(),
            code: OnceCell::new(),
            addresses: OnceCell::new(),
            strings: OnceCell::new(),
            callees: Arc::default(),
        }
    }

    /// The same, with what is known already about the functions that this program calls.
    #[must_use]
    pub fn knowing(self, callees: &Arc<Callees>) -> Self {
        Self { callees: Arc::clone(callees), ..self }
    }

    /// What is known about the functions that this program calls.
    #[must_use]
    pub fn callees(&self) -> &Callees {
        &self.callees
    }

    /// Its machine code.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The machine code of one of its instructions.
    #[must_use]
    pub fn bytes_of(&self, insn: &Insn) -> &'a [u8] {
        let first = insn.svma.distance_from(self.function.start).unwrap_or(u64::MAX);
        let rest = usize::try_from(first).ok().and_then(|first| self.bytes.get(first..));
        let rest = rest.unwrap_or(&[]);
        &rest[..rest.len().min(usize::from(insn.length_bytes))]
    }

    /// Its name as a programmer wrote it.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.get_or_init(|| self.function.name())
    }

    /// A first, cheap look at it.
    #[must_use]
    pub fn survey(&self) -> &Survey {
        let look = || self.image.architecture().survey(self.bytes, self.function.start);
        self.survey.get_or_init(look)
    }

    /// Its instructions, blocks and loops.
    #[must_use]
    pub fn code(&self) -> &FunctionCode {
        self.code.get_or_init(|| FunctionCode::of(self.image, self.function))
    }

    /// The symbolic addresses of its accesses.
    #[must_use]
    pub fn addresses(&self) -> &Addresses {
        self.addresses.get_or_init(|| Addresses::of(self.code()))
    }

    /// Its string instructions.
    #[must_use]
    pub fn strings(&self) -> &[StringSite] {
        self.strings.get_or_init(|| {
            let is_x86 = self.image.architecture() == Architecture::X86_64;
            if is_x86 && may_hold_strings(self.bytes) {
                string_sites(self.bytes, self.code())
            } else {
                Vec::new()
            }
        })
    }

    /// Loop nesting depth of an instruction, 0 outside loops.
    #[must_use]
    pub fn loop_depth(&self, insn: usize) -> u32 {
        if self.code().loops.is_empty() {
            return 0;
        }
        self.code().innermost_loop(self.code().block_of(insn)).map_or(0, |l| l.depth)
    }

    /// Whether it has what a rule needs.
    #[must_use]
    pub fn has(&self, needs: Needs) -> bool {
        match needs {
            Needs::FixedAddresses => self.survey().may_cross_line,
            Needs::Program => false,
            // Most functions have none, which a look at the lengths of instructions tells.
            Needs::Loops => self.survey().may_loop && !self.code().loops.is_empty(),
            Needs::Strings => !self.strings().is_empty(),
        }
    }
}
