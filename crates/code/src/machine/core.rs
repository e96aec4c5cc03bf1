//! (table) The back end of a core: widths, execution ports, latencies, data caches.
//!
//! What the window model of a core (`sim::core`) runs on. One row for each family of designs; a design
//! without a row gets the one of Sunny Cove, assumed. What a profile has measured (blocked loads,
//! forwarding, line splits) is not here and goes before all of it.
//! Sources: A. Abel and J. Reineke, "uops.info" (latencies, ports); A. Fog, "Instruction tables" and
//! "The microarchitecture of Intel, AMD and VIA CPUs"; the makers' optimization manuals.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::branches::{BranchHistory, LearnedBranches};
use super::design::Design;
use super::false_dependency::FalseDependency;
use super::front_end::Sourced;
use super::geometry::CacheGeometry;
use super::known::Microarchitecture as M;

/// What an operation needs to be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OpClass {
    /// Nothing: it is done while renaming (no-ops, moves between registers, zeroing) or it only loads
    /// or stores.
    Renamed,
    /// Integer arithmetic and logic, one cycle.
    Integer,
    /// Shifts and rotations by a constant, or without flags.
    Shift,
    /// The same by `cl`, which leave the flags alone where that is 0.
    ShiftByCount,
    /// Addresses of three parts.
    SlowAddress,
    /// Integer multiplication, scattering and gathering of bits, checksums.
    Multiply,
    /// Bit counts and scans.
    BitCount,
    /// Integer division of up to 32 bits.
    Divide32,
    /// Integer division of 64 bits.
    Divide64,
    /// A jump, call or return.
    Branch,
    /// Vector arithmetic and logic of integers.
    Vector,
    /// Shifts of vectors of integers.
    VectorShift,
    /// Moves of lanes.
    Shuffle,
    /// Multiplication of vectors of integers.
    VectorMultiply,
    /// A round of AES, and multiplication without carries.
    Cipher,
    /// Rounds and schedules of SHA.
    Digest,
    /// Floating-point addition and comparison.
    FloatAdd,
    /// Floating-point multiplication, with or without addition.
    FloatMultiply,
    /// Floating-point division, single precision.
    FloatDivide32,
    /// The same, double precision.
    FloatDivide64,
    /// Square root, single precision.
    FloatRoot32,
    /// The same, double precision.
    FloatRoot64,
    /// Conversion between number formats, inside vector registers.
    Convert,
    /// Conversion of an integer in a general register.
    ConvertIn,
    /// Conversion to an integer in a general register.
    ConvertAcross,
    /// A move from a general to a vector register.
    CrossIn,
    /// A move from a vector to a general register.
    Cross,
    /// An atomic operation.
    Locked,
    /// A fence: what follows waits for it, and it for everything before it, stores that are on their way to the cache, too.
    Fence,
    /// The same without the stores.
    LoadFence,
    /// A fence for stores alone: it takes its time, and what does not store goes on.
    StoreFence,
    /// Microcode of tens of cycles.
    Microcode,
}

impl OpClass {
    /// How many there are.
    pub const COUNT: usize = Self::Microcode as usize + 1;

    /// Whether it is executed by vector units.
    #[must_use]
    pub fn is_vector(self) -> bool {
        (Self::Vector as usize..=Self::ConvertAcross as usize).contains(&(self as usize))
    }
}

/// How one class of operations is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Execution {
    /// From operands to result.
    pub latency_cycles: u8,
    /// The unit takes no other such operation for so long; 1 where it is pipelined.
    pub busy_cycles: u8,
    /// The ports that can do it, a bit each.
    pub ports: u32,
    /// Operations that it takes at dispatch.
    pub operations: u8,
}

impl Execution {
    /// How often it takes a unit: what is not pipelined takes one, once and for long.
    pub(super) fn times(&self) -> u8 {
        if self.busy_cycles == 1 { self.operations } else { 1 }
    }
}

/// Which loads get the value of a store in flight while they are renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemoryRenaming {
    /// None.
    Never,
    /// Those that name their place as the store before them did: same base, same displacement.
    SameName,
    /// These, and those that were served by the latest execution of the same store the last few times, whatever the
    /// addresses look like: whole values of four bytes and more in general registers.
    SameStore,
    /// Those that were served by the latest execution of the same store the last few times and begin where it does, narrower
    /// ones, too, where neither address has an index: in general registers, and not of two bytes.
    SameStart,
}

/// What a store to a line of code costs that was executed just before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct WrittenCode {
    /// The first store behind an execution of the line.
    pub first_cycles: u32,
    /// Each one behind it.
    pub next_cycles: u32,
    /// Whether all that follows the store waits, and not just the code in that line.
    pub clears: bool,
    /// Of the time for which the store has its address and older work has not retired, this part passes once more.
    pub again_percent: u32,
}

/// What instructions of SSE that write vector registers pay while the upper halves of these registers are in use, which
/// they keep: between an instruction of AVX that writes 32 bytes and `vzeroupper`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UpperHalves {
    /// Nothing.
    Free,
    /// Each waits for what its register held.
    Merged,
    /// The halves are put away before the first one, and brought back before the next instruction of AVX.
    Moved {
        /// Either takes this long, with nothing beside it.
        cycles: u8,
    },
}

/// What operations on vectors of 64 bytes do otherwise than others. A store of one takes the slots of two everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WideVectors {
    /// Two of the three ports are one; two loads start in a cycle.
    JoinPorts,
    /// Each port and load takes twice as long.
    InHalves,
    /// Nothing but their loads, of which two start in a cycle.
    Whole,
}

/// The back end of a core, and its instruction cache.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CoreShape {
    /// Operations that are dispatched in a cycle.
    pub dispatch_width: u32,
    /// Whether what is a few operations is dispatched in one cycle.
    pub dispatches_whole: bool,
    /// Operations that an instruction is at the least that computes with what it loads from a place by an index, or stores a
    /// general register or a constant to one.
    pub by_index_operations: u8,
    /// The ports that can compute with what the same instruction loads.
    pub loaded_ports: u32,
    /// The units that simple operations have where they waited for what they compute with, and of which the value of a store from
    /// a general register takes one, and a multiplication one beside its own; none where nothing of that is so.
    pub waited_ports: u32,
    /// Whether loads, and stores with their addresses, wait for their start with the operations on integers.
    pub addresses_wait_with_integers: bool,
    /// Operations that retire in a cycle.
    pub retire_width: u32,
    /// Operations between dispatch and retirement.
    pub reorder_window: u32,
    /// General and vector registers for values that have not retired.
    pub registers: [u32; 2],
    /// Operations between dispatch and their start, loads and stores apart; of integers alone where vectors wait elsewhere.
    pub scheduler: u32,
    /// The same of vectors; 0 where they wait with the integers.
    pub vector_scheduler: u32,
    /// Loads between dispatch and retirement.
    pub load_queue: u32,
    /// Stores between dispatch and the cache.
    pub store_queue: u32,
    /// Loads that start in a cycle.
    pub loads_per_cycle: u32,
    /// Of these, into vector registers.
    pub vector_loads_per_cycle: u32,
    /// Stores whose data is taken in a cycle.
    pub stores_per_cycle: u32,
    /// Whether the address of a store takes the slot of a load.
    pub stores_take_load_slots: bool,
    /// Operations on vectors of 64 bytes.
    pub wide_vectors: WideVectors,
    /// Instructions of SSE beside those of AVX.
    pub upper_halves: UpperHalves,
    /// From what the destination held to the result, by [`FalseDependency`]; 0 where nothing waits for it.
    pub(super) false_dependency_cycles: [u8; FalseDependency::ALL.len()],
    /// Stores that reach the cache in a cycle.
    pub commits_per_cycle: u32,
    /// A store to the line of the one before reaches the cache with it where both have no more bytes than these.
    pub joined_stores_bytes: u32,
    /// Lines in which stores are combined in front of the cache, where it takes one of them a cycle; 0 where it takes the stores.
    pub combined_lines: u32,
    /// Bits of a quotient that a divider makes in a cycle; 0 where divisions take the same whatever is divided.
    pub quotient_bits_per_cycle: u8,
    /// From how many bits of quotient on a division of 64 bits keeps its divider for longer, and for how many cycles.
    pub long_quotient: [u8; 2],
    /// From address to value, into a general register, out of the first data cache.
    pub load_cycles: u8,
    /// What a load takes longer from an index that is multiplied.
    pub scaled_index_cycles: u8,
    /// What a load takes longer where what it loads is filled up with its sign.
    pub signed_load_cycles: u8,
    /// From address to value into a vector register, out of the first data cache.
    pub vector_load_cycles: u8,
    /// Whether later loads wait for atomic operations, and these for everything before them.
    pub locked_is_fence: bool,
    /// Whether atomic operations wait for the stores before them.
    pub locked_waits_for_stores: bool,
    /// From one atomic operation to the next where more than 20 instructions stand between.
    pub locked_apart_cycles: u8,
    /// How long nothing is dispatched behind an atomic operation, and how much longer where a store is right before it; 0 where
    /// it holds nothing, and is apart from the next one.
    pub locked_hold_cycles: [u8; 2],
    /// Whether small constants are added to registers of 64 bits while renaming.
    pub renames_additions: bool,
    /// Slots of a load that a load across two lines takes.
    pub split_load_slots: u32,
    /// What a load across two lines takes longer than another, and one across two pages.
    pub split_load_cycles: [u8; 2],
    /// From the commit of a store to that of a store across two lines, and of one across two pages.
    pub split_store_cycles: [u8; 2],
    /// From a store's data to the load that is served by it.
    pub forward_cycles: u8,
    /// What that takes longer where the store is of a vector register.
    pub forward_from_vector_cycles: u8,
    /// Whether what a string instruction stores is forwarded like other stores.
    pub forwards_strings: bool,
    /// From a store's commit to the value of a load that waited for it, at the most.
    pub behind_commit_cycles: u8,
    /// What a load across two pages that waited takes longer.
    pub blocked_across_pages_cycles: u8,
    /// What the value of a load waits longer that starts when the address of a store in front of it has just become known, to
    /// the same place of another page; 0 where nothing is known of that.
    pub alias_cycles: u8,
    /// Which loads get a stored value while renaming.
    pub renames_memory: MemoryRenaming,
    /// Whether [`MemoryRenaming::SameStore`] is true of the lower half of what was stored, too.
    pub renames_halves: bool,
    /// Whether a load and the addition, subtraction or logic behind it that changes what it loaded by a register are one
    /// operation; such a load is not renamed.
    pub joins_loads: bool,
    /// From the resolution of a mispredicted branch to the dispatch of what is right.
    pub mispredict_cycles: u8,
    /// The instruction cache.
    pub code_cache: CacheGeometry,
    /// What stores to code cost.
    pub written_code: WrittenCode,
    /// Branches of which it is remembered where they go when they are taken.
    pub known_branches: u32,
    /// What the fetch of the target waits for where that is not remembered.
    pub unknown_branch_cycles: u8,
    /// Cycles in which one indirect jump or call is followed, where one branch to a fixed place takes one.
    pub indirect_branch_cycles: u8,
    /// What each line of code but the first takes between two taken branches, where one branch takes one cycle.
    pub next_line_cycles: u8,
    /// Instructions of one line of code that are fetched in a cycle where as many more take two, and two taken branches are
    /// followed in a cycle; 0 where neither is so.
    pub fetched_instructions: u32,
    /// Cycles in which an indirect jump or call is followed at the least that goes elsewhere than the last time, where one
    /// branch takes one cycle.
    pub elsewhere_cycles: u8,
    /// Whether a jump to a fixed place takes a unit that can do branches.
    pub jumps_take_units: bool,
    /// Cycles in which a call is followed, and a return.
    pub call_cycles: [u8; 2],
    /// Ways to branches that are remembered, the last 40 taken ones before included: from these, one can be taken a cycle.
    pub near_branches: u32,
    /// What each other one takes longer, and those behind one that was mispredicted.
    pub far_branch_cycles: u8,
    /// The measure of the tables that predict branches by their history.
    pub learned: LearnedBranches,
    /// Page walks that are made at a time.
    pub page_walkers: u32,
    /// Cycles from one page walk to the next at the least, of loads that do not wait for one another.
    pub walk_apart_cycles: u32,
    /// Lines that are fetched at a time.
    pub fill_buffers: u32,
    /// Cycles from one refresh of a part of the memory to its next, and for how long each keeps its lines.
    pub refresh_cycles: [u32; 2],
    /// Slots of the load ports that a line takes when it comes into the first level.
    pub fill_load_slots: u32,
    /// Slots that a load takes once more when the line that it waited for is there.
    pub late_load_slots: u32,
    /// Whether the third level hands out two lines where one is asked for.
    pub third_level_in_pairs: bool,
    /// Cycles between two lines that come out of the second level, the third, and memory.
    pub line_cycles: [u64; 3],
    /// The same out of the second level where the line that leaves the first was written to, if that is more.
    pub write_back_cycles: u64,
    /// Cycles between two lines that come into the same of 2, 4 … 64 groups of sets of the first level, told apart by
    /// the lowest bits of the line.
    pub fill_cycles: [u8; SET_GROUPINGS],
    /// The same where the line that leaves was written to.
    pub write_back_fill_cycles: [u8; SET_GROUPINGS],
    /// Whether the line that a load's takes the place of leaves the first level when that is asked for, and not when it comes.
    pub leaves_when_asked: bool,
    /// What it takes to store a compressed vector (`vpcompressd` and the like, to memory) and what each of its elements adds,
    /// where microcode does it.
    pub compressed_store_cycles: Option<[u8; 2]>,
    /// What a floating-point multiplication with an addition takes longer than one without.
    pub multiply_add_cycles: u8,
    /// What the result of a floating-point addition takes longer to any operation but another one.
    pub sum_elsewhere_cycles: u8,
    /// Bytes of a vector that its divider takes at once; wider ones take as many times longer.
    pub divider_bytes: u32,
    /// Size of the data caches of the three levels, in bytes.
    pub cache_bytes: [u64; 3],
    /// Sets of the second data cache.
    pub second_level_sets: u32,
    /// From address to value out of the second and third level and out of memory.
    pub miss_cycles: [u32; 3],
    /// Pages that the first and the second data TLB hold.
    pub tlb_pages: [u32; 2],
    /// What a load pays for a translation out of the second TLB and by a page walk.
    pub tlb_cycles: [u32; 2],
    /// By [`OpClass`].
    pub(super) execution: [Execution; OpClass::COUNT],
}

/// JEDEC's standards: each rank of DDR4 (8 Gbit) is refreshed every 7.8 us for 350 ns, of DDR5 (16 Gbit) every 3.9 us for 295 ns;
/// at 4 GHz. Measured on a Zen 5 guest, one load after the other: 570 to 700 cycles for eight of ten, more than 900 for a tenth, more
/// than 1150 for a twentieth, 1650 at the most of a thousand.
const DDR4: [u32; 2] = [31_000, 1400];
const DDR5: [u32; 2] = [15_600, 1200];

impl CoreShape {
    /// The same core while another thread keeps it as busy: what is counted in entries is divided in two, and in every other
    /// cycle the other one is dispatched, loads and retires. Where the entries are not divided, both fill them alike.
    ///
    /// Literature: AMD, "Software Optimization Guide for the AMD Zen4 Microarchitecture" (2023), 2.15; Intel, "Optimization
    /// Reference Manual", 2.6.
    #[must_use]
    pub fn beside_another(&self) -> Self {
        let half = |n: u32| n.div_ceil(2).max(1);
        Self {
            dispatch_width: half(self.dispatch_width),
            retire_width: half(self.retire_width),
            reorder_window: half(self.reorder_window),
            registers: self.registers.map(half),
            scheduler: half(self.scheduler),
            vector_scheduler: self.vector_scheduler.div_ceil(2),
            load_queue: half(self.load_queue),
            store_queue: half(self.store_queue),
            loads_per_cycle: half(self.loads_per_cycle),
            vector_loads_per_cycle: half(self.vector_loads_per_cycle),
            fill_buffers: half(self.fill_buffers),
            line_cycles: self.line_cycles.map(|cycles| 2 * cycles),
            ..self.clone()
        }
    }

    /// How operations of a class are executed.
    #[must_use]
    pub fn execution(&self, class: OpClass) -> Execution {
        self.execution[class as usize]
    }

    /// The ports that an operation of a class can have on a vector of so many bytes, and how often it takes one of them.
    #[must_use]
    pub fn ports(&self, class: OpClass, vector_bytes: u8) -> (u32, u8) {
        use intel::{P0, P1, P5};
        let Execution { ports, operations, .. } = self.execution(class);
        match self.wide_vectors {
            _ if u32::from(vector_bytes) < WIDE_BYTES => (ports, operations),
            // Measured on Redwood Cove: two additions, multiplications and operations on bits in a cycle, one shuffle.
            WideVectors::JoinPorts if ports & P1 == 0 => (ports, operations),
            WideVectors::JoinPorts if class == OpClass::Shuffle => (P5, operations),
            WideVectors::JoinPorts => (ports & !P1 | P0 | P5, operations),
            WideVectors::InHalves => (ports, 2 * operations),
            WideVectors::Whole => (ports, operations),
        }
    }

    /// Loads of so many bytes into vector registers that start in a cycle.
    #[must_use]
    pub fn vector_loads_per_cycle(&self, size_bytes: u32) -> u32 {
        match self.wide_vectors {
            _ if size_bytes < WIDE_BYTES => self.vector_loads_per_cycle,
            WideVectors::InHalves => (self.vector_loads_per_cycle / 2).max(1),
            WideVectors::JoinPorts | WideVectors::Whole => self.vector_loads_per_cycle.min(2),
        }
    }

    /// What an instruction takes from what its destination held to its result, core cycles; 0 where it does not wait.
    #[must_use]
    pub fn false_dependency_cycles(&self, kind: FalseDependency) -> u8 {
        self.false_dependency_cycles[kind as usize]
    }

    pub(super) fn row_mut(&mut self, class: OpClass) -> &mut Execution {
        &mut self.execution[class as usize]
    }
}

/// Ports of Intel's cores: those for integers alone come first, so that they are taken first.
mod intel {
    pub const P10: u32 = 1;
    pub const P6: u32 = 2;
    pub const P0: u32 = 4;
    pub const P5: u32 = 8;
    pub const P1: u32 = 16;
}

const fn row(latency_cycles: u8, busy_cycles: u8, ports: u32, operations: u8) -> Execution {
    Execution { latency_cycles, busy_cycles, ports, operations }
}

/// In the order of [`OpClass`].
const SKYLAKE: [Execution; OpClass::COUNT] = {
    use intel::{P0, P1, P5, P6};
    [
        row(0, 1, 0, 1),
        row(1, 1, P6 | P0 | P5 | P1, 1),
        row(1, 1, P6 | P0, 1),
        row(1, 1, P6 | P0, 2),
        row(3, 1, P1, 1),
        row(3, 1, P1, 1),
        row(3, 1, P1, 1),
        row(26, 6, P1, 10),
        row(42, 24, P1, 36),
        row(1, 1, P6 | P0, 1),
        row(1, 1, P0 | P5 | P1, 1),
        row(1, 1, P0 | P1, 1),
        row(1, 1, P5, 1),
        row(5, 1, P0 | P1, 1),
        row(4, 1, P0, 1),
        // No core of this kind has them; Ice Lake's (uops.info).
        row(4, 2, P5, 1),
        row(4, 1, P0 | P1, 1),
        row(4, 1, P0 | P1, 1),
        row(11, 3, P0, 1),
        row(14, 4, P0, 1),
        row(12, 3, P0, 1),
        row(16, 6, P0, 1),
        row(5, 1, P0 | P1, 1),
        // Into vectors through one unit, out of them through another (uops.info).
        row(6, 1, P5, 2),
        row(6, 1, P0, 2),
        row(2, 1, P5, 1),
        row(2, 1, P0, 1),
        row(18, 18, P0, 8),
        // Measured on Redwood Cove: 39, 14 and 6 alone.
        row(38, 38, P0, 4),
        row(13, 13, P0, 2),
        row(6, 6, P0, 2),
        row(40, 40, P0, 20),
    ]
};

const SUNNY_COVE: [Execution; OpClass::COUNT] = {
    use intel::{P0, P1, P5};
    let mut table = SKYLAKE;
    table[OpClass::Divide32 as usize] = row(12, 6, P1, 4);
    table[OpClass::Divide64 as usize] = row(15, 10, P1, 4);
    table[OpClass::SlowAddress as usize] = row(1, 1, P1 | P5, 1);
    table[OpClass::Shuffle as usize] = row(1, 1, P5 | P1, 1);
    table[OpClass::Vector as usize] = row(1, 1, P0 | P5 | P1, 1);
    table[OpClass::Cipher as usize] = row(3, 1, P0 | P1, 1);
    table
};

const GOLDEN_COVE: [Execution; OpClass::COUNT] = {
    use intel::{P0, P1, P5, P6, P10};
    let mut table = SUNNY_COVE;
    table[OpClass::Integer as usize] = row(1, 1, P10 | P6 | P0 | P5 | P1, 1);
    // Three cycles, and two from one addition to the next.
    table[OpClass::FloatAdd as usize] = row(2, 1, P5 | P1, 1);
    table[OpClass::Divide32 as usize] = row(10, 6, P1, 4);
    table[OpClass::CrossIn as usize] = row(3, 1, P5, 1);
    table[OpClass::Cross as usize] = row(3, 1, P0, 1);
    table
};

/// Intel's optimization manual: multiplications take a cycle less.
const REDWOOD_COVE: [Execution; OpClass::COUNT] = {
    let mut table = GOLDEN_COVE;
    table[OpClass::FloatMultiply as usize].latency_cycles = 3;
    table
};

/// Ports of AMD's cores: the integer units behind one for branches alone, then the floating-point pipes. What two can do
/// goes to the first that is free.
mod amd {
    pub const INTEGER: u32 = 0x1e;
    pub const ALU1: u32 = 2;
    pub const ALU2: u32 = 4;
    pub const ALU3: u32 = 8;
    /// Measured on Zen 4: a comparison with its jump beside four additions takes no unit of theirs.
    pub const BRANCHES: u32 = 0x11;
    /// Before Zen 3 branches had no unit of their own.
    pub const OLD_BRANCHES: u32 = 0x18;
    pub const FP0: u32 = 0x100;
    pub const FP1: u32 = 0x200;
    pub const FP2: u32 = 0x400;
    pub const FP3: u32 = 0x800;
    /// From Zen 5 on: six units for integers, three that multiply and three that shift, scan and branch. Measured: two shifts
    /// beside each comparison with its jump 2.9 operations in a cycle, two multiplications 4.4.
    pub const WIDE_INTEGER: u32 = 0x401f;
    pub const WIDE_MULTIPLY: u32 = 0x0007;
    pub const WIDE_SHIFTS: u32 = 0x4018;
    pub const SLOW_ADDRESSES: u32 = 0x0018;
    pub const INTO_VECTORS: u32 = 0x1_0000;
    pub const OUT_OF_VECTORS: u32 = 0x6_0000;
}

const ZEN_3: [Execution; OpClass::COUNT] = {
    use amd::{ALU1, ALU2, BRANCHES, FP0, FP1, FP2, FP3, INTEGER};
    [
        row(0, 1, 0, 1),
        row(1, 1, INTEGER, 1),
        row(1, 1, ALU1 | ALU2, 1),
        row(1, 1, ALU1 | ALU2, 1),
        row(2, 1, INTEGER, 1),
        row(3, 1, ALU1, 1),
        // Measured on Zen 4: latency 1, four in a cycle, of counts and scans from either end.
        row(1, 1, INTEGER, 1),
        row(11, 6, ALU2, 2),
        row(14, 8, ALU2, 2),
        row(1, 1, BRANCHES, 1),
        row(1, 1, FP0 | FP1 | FP2 | FP3, 1),
        // Measured on Zen 4: two in a cycle.
        row(1, 1, FP1 | FP2, 1),
        row(1, 1, FP1 | FP2, 1),
        row(3, 1, FP0 | FP3, 1),
        // Measured on Zen 4: latency 4, two rounds of AES in a cycle; of SHA-256 4 cycles a pair of rounds, 3 and 4 of its schedule.
        row(4, 1, FP0 | FP1, 1),
        row(4, 2, FP1, 1),
        row(3, 1, FP2 | FP3, 1),
        row(3, 1, FP0 | FP1, 1),
        row(10, 4, FP1, 1),
        row(13, 5, FP1, 1),
        row(14, 5, FP1, 1),
        row(20, 9, FP1, 1),
        row(3, 1, FP2 | FP3, 1),
        row(6, 1, FP2, 2),
        row(6, 1, FP2, 2),
        row(4, 1, FP1, 1),
        row(4, 1, FP1, 1),
        // Measured on Zen 4, and a fence of 59 cycles there; the others are assumed.
        row(7, 7, ALU1, 4),
        row(59, 59, ALU1, 4),
        row(8, 8, ALU1, 2),
        row(6, 6, ALU1, 2),
        row(40, 40, ALU1, 20),
    ]
};

const ZEN_2: [Execution; OpClass::COUNT] = {
    let mut table = ZEN_3;
    table[OpClass::Branch as usize] = row(1, 1, amd::OLD_BRANCHES, 1);
    table[OpClass::Divide32 as usize] = row(22, 12, amd::ALU2, 2);
    table[OpClass::Divide64 as usize] = row(30, 18, amd::ALU2, 2);
    table[OpClass::Locked as usize] = row(17, 17, amd::ALU1, 4);
    table[OpClass::Fence as usize] = row(17, 17, amd::ALU1, 4);
    table
};

/// Measured on two Turin guests with loops of one instruction.
const ZEN_5: [Execution; OpClass::COUNT] = {
    use amd::{FP0, FP1, FP2, FP3, INTO_VECTORS, OUT_OF_VECTORS};
    use amd::{SLOW_ADDRESSES, WIDE_INTEGER, WIDE_MULTIPLY, WIDE_SHIFTS};
    let mut table = ZEN_3;
    table[OpClass::Integer as usize] = row(1, 1, WIDE_INTEGER, 1);
    table[OpClass::Shift as usize] = row(1, 1, WIDE_SHIFTS, 1);
    table[OpClass::ShiftByCount as usize] = row(1, 1, WIDE_SHIFTS, 1);
    table[OpClass::SlowAddress as usize] = row(2, 1, SLOW_ADDRESSES, 1);
    table[OpClass::Multiply as usize] = row(3, 1, WIDE_MULTIPLY, 1);
    // Counts, and scans from the highest bit; those from the lowest are made by three of the six, which is not modelled.
    table[OpClass::BitCount as usize] = row(1, 1, WIDE_INTEGER, 1);
    table[OpClass::Divide32 as usize] = row(11, 6, amd::ALU2, 2);
    table[OpClass::Divide64 as usize] = row(13, 7, amd::ALU2, 2);
    table[OpClass::Branch as usize] = row(1, 1, WIDE_SHIFTS, 1);
    table[OpClass::Vector as usize] = row(2, 1, FP0 | FP1 | FP2 | FP3, 1);
    // Measured in pairs of loops: shifts take the units of additions and conversions, multiplications of integers those of
    // numbers in floating point. Moves out of vectors have two units of their own, moves and conversions into them one.
    table[OpClass::VectorShift as usize] = row(2, 1, FP2 | FP3, 1);
    table[OpClass::VectorMultiply as usize] = row(3, 1, FP0 | FP1, 1);
    table[OpClass::Shuffle as usize] = row(2, 1, FP0 | FP1 | FP2 | FP3, 1);
    // Three cycles, and two from one addition to the next.
    table[OpClass::FloatAdd as usize] = row(2, 1, FP2 | FP3, 1);
    table[OpClass::FloatDivide32 as usize] = row(10, 3, FP1, 1);
    table[OpClass::FloatDivide64 as usize] = row(13, 4, FP1, 1);
    table[OpClass::FloatRoot32 as usize] = row(15, 5, FP1, 1);
    table[OpClass::FloatRoot64 as usize] = row(21, 8, FP1, 1);
    table[OpClass::ConvertIn as usize] = row(6, 1, INTO_VECTORS, 1);
    table[OpClass::ConvertAcross as usize] = row(6, 1, FP2 | FP3, 1);
    table[OpClass::CrossIn as usize] = row(4, 1, INTO_VECTORS, 1);
    table[OpClass::Cross as usize] = row(4, 1, OUT_OF_VECTORS, 1);
    table[OpClass::Locked as usize] = row(20, 20, amd::ALU1, 4);
    table[OpClass::Fence as usize] = row(76, 76, amd::ALU1, 4);
    table[OpClass::LoadFence as usize] = row(11, 11, amd::ALU1, 2);
    table[OpClass::StoreFence as usize] = row(1, 1, amd::ALU1, 2);
    table
};

const KIB: u64 = 1024;
/// Size of the widest vectors.
const WIDE_BYTES: u32 = 64;
/// The 64 sets of a first level as two groups, four, and so on to one a set.
pub const SET_GROUPINGS: usize = 6;

impl Design {
    /// Its back end: the table's, with the caches that the machine presents and what was measured of
    /// forwarding.
    #[must_use]
    pub fn core(&self) -> Sourced<CoreShape> {
        let (shape, known) = self.tabled_core();
        let mut shape = CoreShape {
            reorder_window: self.reorder_window().value,
            store_queue: self.store_queue().value,
            code_cache: self.code_cache().value,
            ..shape
        };
        if let Some(bytes) = self.data_cache_bytes {
            shape.cache_bytes = bytes;
        }
        if let Some(left) = self.third_level_bytes {
            let [_, second, third] = &mut shape.cache_bytes;
            *third = (*third).min(left).max(*second);
        }
        if let Some(forward) = &self.store_forward_cycles {
            // The fastest pair; others have a move to another kind of register in them. Measured in loops, on Redwood Cove 5
            // cycles, and 5.6 to 6.5 for loads of operations that compute; on Zen 4, where it is 6.3, a round trip of one byte
            // or the upper half takes 6.0, of `add [m], 1` 6.2, of a load, an addition and a store 7.6.
            shape.forward_cycles = forward.low_cycles.round().clamp(1.0, 50.0) as u8;
        }
        if let Some(levels) = &self.data_miss_cycles {
            // What neighbours do to a shared level only adds: on a Zen 4 guest the third took 49 to 404 cycles from probe to probe.
            // The probe's chain goes through an index that is multiplied.
            let scaled = u32::from(shape.scaled_index_cycles);
            shape.miss_cycles =
                levels.each_ref().map(|m| (m.low_cycles.round() as u32).saturating_sub(scaled));
        }
        if let Some(levels) = &self.data_line_cycles {
            let [second, third, memory] = levels.each_ref().map(|m| m.value.clamp(1.0, 500.0));
            // Lines come in pairs from memory, and from the third level where it hands them out so.
            let third = if shape.third_level_in_pairs { 2.0 * third } else { third };
            shape.line_cycles = [second, third, 2.0 * memory].map(|cycles| cycles.round() as u64);
        }
        if let Some(walk) = &self.page_walk_cycles {
            shape.tlb_cycles[1] = walk.whole_cycles();
        }
        if let Some(apart) = &self.page_walk_apart_cycles {
            shape.walk_apart_cycles = apart.value.clamp(0.0, 500.0).round() as u32;
        }
        if let Some(pages) = self.data_tlb_pages {
            shape.tlb_pages = shape.tlb_pages.map(|tabled| tabled.min(pages));
        }
        if let Some(measured) = &self.measured_core {
            measured.put_into(&mut shape);
        }
        if let Some(measured) = &self.measured_branches {
            measured.put_into(&mut shape.learned);
        }
        Sourced::tabled(known.then_some(shape.clone()), shape)
    }

    fn tabled_core(&self) -> (CoreShape, bool) {
        let sunny = CoreShape {
            dispatch_width: 5,
            dispatches_whole: false,
            by_index_operations: 1,
            loaded_ports: u32::MAX,
            waited_ports: 0,
            addresses_wait_with_integers: false,
            retire_width: 8,
            reorder_window: 352,
            // Chips and Cheese, published measurements: these, and those of the other cores. Of the registers, 32 and 40 hold
            // what retired.
            registers: [248, 184],
            scheduler: 97,
            vector_scheduler: 0,
            load_queue: 128,
            store_queue: 72,
            loads_per_cycle: 2,
            vector_loads_per_cycle: 2,
            stores_per_cycle: 2,
            stores_take_load_slots: false,
            // Measured on Redwood Cove; other cores of Intel are assumed to be alike.
            behind_commit_cycles: 12,
            // Measured on Redwood Cove: 9 cycles for `rep stosb` of 32 bytes, 22 in a chain through a load behind it.
            forwards_strings: false,
            blocked_across_pages_cycles: 6,
            alias_cycles: 0,
            renames_halves: false,
            wide_vectors: WideVectors::JoinPorts,
            // Measured on Redwood Cove: 400 cycles there and back, whatever the halves hold; on Golden Cove as much. Other cores
            // behind Skylake are assumed to be alike.
            upper_halves: UpperHalves::Moved { cycles: 200 },
            false_dependency_cycles: FalseDependency::table(self.microarchitecture),
            commits_per_cycle: 1,
            joined_stores_bytes: 0,
            combined_lines: 0,
            quotient_bits_per_cycle: 0,
            long_quotient: [64, 0],
            load_cycles: 5,
            scaled_index_cycles: 0,
            signed_load_cycles: 0,
            vector_load_cycles: 6,
            locked_is_fence: true,
            locked_waits_for_stores: true,
            locked_apart_cycles: 18,
            locked_hold_cycles: [0, 0],
            renames_additions: false,
            split_load_slots: 2,
            // Measured on Redwood Cove; older cores, and AMD's, are assumed to be alike.
            split_load_cycles: [7, 7],
            split_store_cycles: [2, 21],
            forward_cycles: 5,
            forward_from_vector_cycles: 0,
            renames_memory: MemoryRenaming::Never,
            joins_loads: false,
            mispredict_cycles: 17,
            code_cache: CacheGeometry { sets: 64, ways: 8, line_bytes: 64 },
            // Measured on a Redwood Cove guest, in two programs: 460 and 620 for one store, 760 for two, 1370 for four; other
            // cores of Intel are assumed to be alike.
            written_code: WrittenCode {
                first_cycles: 500,
                next_cycles: 180,
                clears: true,
                again_percent: 0,
            },
            // Measured on Redwood Cove, rings of jumps 16 bytes apart: 2.0 cycles each of 6,000, 3.7 of 12,000, 10 of 24,000.
            known_branches: 12_288,
            unknown_branch_cycles: 10,
            indirect_branch_cycles: 1,
            next_line_cycles: 0,
            fetched_instructions: 0,
            elsewhere_cycles: 1,
            jumps_take_units: true,
            call_cycles: [1, 1],
            near_branches: 12_288,
            far_branch_cycles: 0,
            // Measured on Redwood Cove, sixteen placements of a loop, after four millions of branches: of 4,000 random directions nearly all
            // are learned in ten of them, of 8,000 half or more in three, of 16,000 a tenth; after one million 3,600 half. Of 350
            // random targets all, of 650 half, of 2,000 a tenth. The end of a loop, and what comes once in so many turns, is
            // predicted up to 44 taken branches behind the last one. Other cores of Intel are assumed to be alike.
            learned: LearnedBranches {
                directions: 7000,
                targets: 650,
                history: BranchHistory::TakenBranches,
            },
            page_walkers: 2,
            walk_apart_cycles: 0,
            fill_buffers: 12,
            refresh_cycles: DDR4,
            fill_load_slots: 0,
            late_load_slots: 0,
            line_cycles: [2, 6, 14],
            third_level_in_pairs: true,
            // Measured on Redwood Cove, lines that are 1, 2, 4 … 64 apart: 1.5, 2.2, 3.1, 3.2, 3.1, 3.1, 2.7 cycles a load, and
            // 4.1, 5.1, 6.5, 7.0, 8.0, 9.5, 10.6 a store; in disorder 1.6 and 4.3.
            write_back_cycles: 4,
            fill_cycles: [2, 3, 3, 3, 3, 3],
            write_back_fill_cycles: [5, 6, 7, 8, 10, 11],
            leaves_when_asked: false,
            compressed_store_cycles: None,
            multiply_add_cycles: 0,
            sum_elsewhere_cycles: 0,
            divider_bytes: 16,
            cache_bytes: [48 * KIB, 1280 * KIB, 24 * KIB * KIB],
            second_level_sets: 1024,
            miss_cycles: [14, 70, 280],
            tlb_pages: [64, 2048],
            tlb_cycles: [7, 30],
            execution: SUNNY_COVE,
        };
        match self.microarchitecture {
            M::SunnyCove | M::WillowCove | M::CypressCove => (sunny, true),
            M::GoldenCove | M::RedwoodCove | M::LionCove => (
                CoreShape {
                    dispatch_width: 6,
                    registers: [248, 292],
                    load_queue: 192,
                    loads_per_cycle: 3,
                    vector_loads_per_cycle: 3,
                    // Measured on Redwood Cove: a round trip of 8 bytes takes 0.5 cycles through any base register, of their lowest 1, 4
                    // or 8 bytes; of 2 bytes, of others than the lowest, or with an index, 5.
                    renames_memory: match self.microarchitecture {
                        M::RedwoodCove => MemoryRenaming::SameStart,
                        _ => MemoryRenaming::SameName,
                    },
                    // Measured on Redwood Cove: with `add`, `sub`, `and` or `xor` by another register right behind the load, or
                    // `neg`, 7.5 cycles instead of 1; with anything between, or by a constant, 1.
                    joins_loads: self.microarchitecture == M::RedwoodCove,
                    // Measured on Redwood Cove: 17 cycles with up to 19 instructions between, 24 with 23 to 60.
                    locked_apart_cycles: 24,
                    // Measured on Redwood Cove: 0.17 cycles for 1, 0.5 for 1000, 1.0 for 2000 and for registers of 32 bits.
                    renames_additions: true,
                    // Measured on Redwood Cove, rings of jumps 16, 32 and 64 bytes apart: less than 1 cycle each of 256, 1.5 to 1.9
                    // of 512, 2.0 of 1000 and more. A loop with one taken branch a turn, all of them predicted: 1.2 cycles a turn, 1.55 where one
                    // turn in a hundred is another one, 1.6 to 1.9 with one in ten, 2.35 with each second one.
                    near_branches: 512,
                    // Measured on Redwood Cove, chains of 16 and 64: 2.0 cycles each, 3.0 with a direct jump between, 4.0 with two;
                    // a call and its return 3.5. One jump with up to 32 targets and direct jumps back to it: 3.5 to 3.9.
                    indirect_branch_cycles: 2,
                    call_cycles: [1, 2],
                    far_branch_cycles: 1,
                    // Measured on Redwood Cove: 2.0 cycles from one addition to the next, 6.0 of a multiplication (3.0 alone) and an
                    // addition, 8.0 of a multiplication and two additions, 7.0 of a multiply-add (4.0 alone) and an addition.
                    sum_elsewhere_cycles: 1,
                    multiply_add_cycles: (self.microarchitecture != M::GoldenCove).into(),
                    mispredict_cycles: 16,
                    page_walkers: 4,
                    fill_buffers: 16,
                    refresh_cycles: DDR5,
                    // Measured on Redwood Cove, 1, 2, 3, 4 and 6 loads of each of many lines: 1.0, 1.2, 1.7, 2.2 and 3.2 cycles out of
                    // the first level, 1.7, 2.6, 3.4, 4.3 and 6.1 in disorder out of the second.
                    fill_load_slots: 2,
                    late_load_slots: 1,
                    cache_bytes: [48 * KIB, 2 * KIB * KIB, 32 * KIB * KIB],
                    second_level_sets: 2048,
                    miss_cycles: [15, 75, 330],
                    tlb_pages: [96, 2048],
                    execution: match self.microarchitecture {
                        M::GoldenCove => GOLDEN_COVE,
                        _ => REDWOOD_COVE,
                    },
                    ..sunny
                },
                true,
            ),
            m if (M::Haswell..=M::PalmCove).contains(&m) => (
                CoreShape {
                    dispatch_width: 4,
                    retire_width: 4,
                    registers: if m <= M::Broadwell { [136, 128] } else { [148, 128] },
                    scheduler: if m <= M::Broadwell { 60 } else { 58 },
                    load_queue: 72,
                    stores_per_cycle: 1,
                    vector_load_cycles: 6,
                    // Intel's optimization manual, 11.3, and A. Fog, "The microarchitecture of Intel, AMD and VIA CPUs".
                    upper_halves: match m {
                        M::Haswell | M::Broadwell => UpperHalves::Moved { cycles: 70 },
                        _ => UpperHalves::Merged,
                    },
                    mispredict_cycles: 16,
                    cache_bytes: [32 * KIB, 1024 * KIB, 24 * KIB * KIB],
                    miss_cycles: [14, 60, 250],
                    tlb_pages: [64, 1536],
                    execution: SKYLAKE,
                    ..sunny
                },
                true,
            ),
            m if (M::Zen1..=M::Zen5).contains(&m) => {
                let is_old = m <= M::Zen2;
                let is_19h = matches!(m, M::Zen3 | M::Zen4);
                let zen = CoreShape {
                    dispatch_width: 6,
                    // AMD's guide for family 19h, 2.10: three of the four schedulers have a unit for addresses. Measured on Zen 4: twelve
                    // shifts and additions from memory 8.0 cycles, with `and` in place of the shifts 6.2.
                    loaded_ports: if is_19h { !amd::ALU3 } else { u32::MAX },
                    addresses_wait_with_integers: is_19h,
                    scheduler: if is_old { 64 } else { 96 },
                    vector_scheduler: if is_old { 100 } else { 128 },
                    load_queue: if is_old { 44 } else { 88 },
                    loads_per_cycle: if is_old { 2 } else { 3 },
                    load_cycles: 4,
                    vector_load_cycles: 7,
                    forward_cycles: 7,
                    // Measured on Zen 4: six loads and two stores 2.67 cycles, four and two 2.0. AMD's guide: three units for addresses.
                    stores_take_load_slots: !is_old,
                    // Measured on Zen 4: 18.9 cycles from one blocked load to the next where no chain goes through them, 20 in a
                    // chain, across two pages, too.
                    behind_commit_cycles: 15,
                    // Measured on Zen 4: 9.0 cycles for `rep stosb` of up to 64 bytes, with a load of that behind it, too, and 14.4
                    // in a chain through that load.
                    forwards_strings: !is_old,
                    blocked_across_pages_cycles: 0,
                    // Measured on Zen 4: hidden beside other work, behind four stores, too, and in a chain of 30 cycles whose end is
                    // stored or added right before; 7.5 cycles apart, with 20 instructions between 6.5.
                    locked_is_fence: is_old,
                    locked_waits_for_stores: is_old,
                    locked_apart_cycles: if is_old { 17 } else { 7 },
                    split_store_cycles: [2, 34],
                    renames_memory: match m {
                        M::Zen2 => MemoryRenaming::SameName,
                        _ => MemoryRenaming::Never,
                    },
                    mispredict_cycles: if is_old { 16 } else { 13 },
                    // Measured on Zen 4: 125 cycles for one store, 190 for two, 230 for four, and 145 where 100 cycles of other work
                    // stand between; others are assumed to be alike.
                    written_code: WrittenCode {
                        first_cycles: 100,
                        next_cycles: 50,
                        clears: false,
                        again_percent: 0,
                    },
                    // Measured on Zen 4, rings of jumps: 1.0 cycle each of 2,000, 2.9 of 6,000, 12 of more than 9,000.
                    known_branches: 8192,
                    unknown_branch_cycles: 11,
                    // Measured on Zen 4: 4.0 cycles a pair of call and return, one to four in a row or inside one another, where a jump
                    // takes 1.0, through a register, too; a call from which a jump leads back 3.0. Others are assumed to be alike.
                    call_cycles: [2, 2],
                    // Measured on Zen 4: directions of 45,000 all, 60,000 all but 9 %, 70,000 half, 100,000 a quarter; targets of
                    // 1,000 all but a tenth, 2,000 half, 6,000 a tenth, where jumps tell where they come from. Older ones are
                    // assumed to have half of it.
                    learned: LearnedBranches {
                        directions: if is_old { 35_000 } else { 70_000 },
                        targets: if is_old { 1100 } else { 2200 },
                        history: BranchHistory::Outcomes,
                    },
                    page_walkers: if is_old { 2 } else { 6 },
                    fill_buffers: 24,
                    refresh_cycles: if m >= M::Zen4 { DDR5 } else { DDR4 },
                    registers: match m {
                        M::Zen4 => [192, 152],
                        M::Zen3 => [160, 120],
                        _ => [148, 120],
                    },
                    // Measured on Zen 4: 9.8 cycles where all lines go to one set, 7.2 where they go to two in turn. What was
                    // written is assumed to leave in the same time.
                    write_back_cycles: 0,
                    fill_cycles: [0, 0, 0, 0, 0, 12],
                    write_back_fill_cycles: [0, 0, 0, 0, 0, 12],
                    // Measured on Zen 4: 150 to 600 lines, 32 apart, 5.7 cycles a load, 8 a store, 21 to 25 a load with a store to
                    // the same behind it, where each load that runs ahead has taken a line's place. Others are assumed to be alike.
                    leaves_when_asked: true,
                    divider_bytes: if m <= M::ZenPlus { 16 } else { 32 },
                    wide_vectors: WideVectors::InHalves,
                    // Measured on Zen 4: each turn of a loop pays, not each transition. AMD's guide for family 17h, 2.11.6, has 100
                    // cycles for a transition. Others are assumed to be like Zen 4.
                    upper_halves: UpperHalves::Merged,
                    cache_bytes: [
                        32 * KIB,
                        if m >= M::Zen4 { 1024 } else { 512 } * KIB,
                        32 * KIB * KIB,
                    ],
                    miss_cycles: [13, 46, 350],
                    tlb_pages: [64, 2048],
                    execution: if is_old { ZEN_2 } else { ZEN_3 },
                    ..sunny
                };
                let core = match m {
                    M::Zen4 => CoreShape {
                        // Measured, copies between registers beside one such instruction: with three, 12 cycles for twelve times five
                        // operations, and 8.3 with two. Additions and comparisons with an index, stores of general registers with one, and what
                        // changes memory are two operations; other loads and stores are one, of vectors, too.
                        dispatches_whole: true,
                        // Measured, one behind the other, 2 to 64 elements of 1 to 8 bytes, every second one or all of them: 55 to 299
                        // cycles, 47 and 4.0 for each element (44 and 2.0 where the mask is empty); to a register 5, masked stores 2.
                        compressed_store_cycles: Some([47, 4]),
                        by_index_operations: 2,
                        // Measured: twelve stores of 8 bytes to two lines one behind the other 6.0 cycles, of 16 and 32 bytes, and to
                        // the lines in turn 12.0.
                        joined_stores_bytes: 8,
                        // Measured: 12 cycles in place of 5 in each of eleven pairs of pages, whatever bytes overlap.
                        alias_cycles: 7,
                        // Measured: 0 cycles by another register and by other addressing.
                        renames_memory: MemoryRenaming::SameStore,
                        // Measured: 0.4 cycles an instruction for four bytes of eight, 1.5 for the upper half and for one byte.
                        renames_halves: true,
                        // Measured: three or eleven copies and a jump 1.0 and 1.9 cycles in one line, 2.0 across two.
                        next_line_cycles: 1,
                        // Measured, jumps to eight places that come again and again in an order of 8, 32, 64 and 256 of them: 2.1, 3.8,
                        // 4.9 and 5.3 cycles each, with up to 18 instructions between.
                        elsewhere_cycles: 4,
                        // Measured: three branches that are not taken and a jump 1.5 cycles, two and a jump 1.0.
                        jumps_take_units: false,
                        second_level_sets: 2048,
                        ..zen
                    },
                    M::Zen5 => CoreShape {
                        dispatch_width: 8,
                        registers: [208, 344],
                        // Measured, chains through 256 MiB: 660 cycles for one, 20 for each of 48 and more.
                        fill_buffers: 32,
                        scheduler: 88,
                        vector_scheduler: 210,
                        loads_per_cycle: 4,
                        // Measured: to 12 lines in turn half a cycle a store of any width, to 13 and more 1.05.
                        commits_per_cycle: 2,
                        combined_lines: 12,
                        // Measured: 64 bits of quotient take 7 cycles longer than 8, and above 36 the next division waits 9.3 and not 7.
                        quotient_bits_per_cycle: 8,
                        long_quotient: [36, 2],
                        wide_vectors: WideVectors::Whole,
                        renames_memory: MemoryRenaming::SameStore,
                        // Measured: four bytes of eight nothing, the upper half and single bytes as long as any load.
                        renames_halves: true,
                        // Measured: a store and a load of a vector 9.0 cycles, of a double 9, of a general register 7.
                        forward_from_vector_cycles: 2,
                        // Measured, chains: 4.0 cycles by base and displacement, and by an index of bytes, 5.0 from one of words
                        // and wider (4.0 from the base beside it), 6.0 where the sign is copied, too, and 2.0 in place of 1.0 where
                        // the value is renamed.
                        scaled_index_cycles: 1,
                        signed_load_cycles: 1,
                        // Measured: addition to multiplication, shuffle or logic 3.0, multiplication with addition 4.0.
                        sum_elsewhere_cycles: 1,
                        multiply_add_cycles: 1,
                        // Measured: 14 cycles in place of 6 where a store has its address when the load has.
                        alias_cycles: 8,
                        // Measured: 3 cycles longer across lines and across pages, two in a cycle; stores 1.0 and 22.
                        split_load_cycles: [3, 3],
                        split_store_cycles: [1, 22],
                        // Measured, n chains of one addition beside a comparison with its jump: 1.13, 1.28, 1.45 and 1.62 cycles
                        // for 4 to 7, 1.02 and 1.20 for 5 and 6 that wait for nothing; a store 0.15 to 0.2 more. A multiplication
                        // beside four and five other operations 1.37 and 1.54 to 1.63, an addition in its place 1.11 to 1.13 and 1.28 to 1.34.
                        waited_ports: amd::WIDE_INTEGER & !1,
                        // Measured, n no-ops and an atomic operation: 22.2 cycles of 40, 27.2 of 80, 32.2 of 120, 42.3 of 200, 25.2 of 40
                        // with a store behind them; chains of up to 48 cycles around it hide it.
                        locked_hold_cycles: [17, 3],
                        // Measured: 100 cycles for one store, 205 for two, 350 for four; 129, 198, 328, 409 and 537 behind chains of
                        // 26, 50, 97, 194 and 300 cycles, whether the store needs their end or not.
                        written_code: WrittenCode {
                            first_cycles: 100,
                            next_cycles: 90,
                            clears: false,
                            again_percent: 150,
                        },
                        // Measured, loops of no-ops: 12 in a line 1.5 cycles, 13 to 24 in one line 3.0, 25 to 36 5.0.
                        fetched_instructions: 12,
                        // Measured, rings of jumps: 0.52 cycles each of 1,000, 1.04 of 2,000, 1.4 of 3,000 to 24,000.
                        known_branches: 24 * 1024,
                        // Measured: 23 from a load in the first level to what follows the branch.
                        mispredict_cycles: 19,
                        // Measured after four millions of branches: directions of 22,600 all, 32,000 all but 17 %, 40,000 half, 65,536
                        // a seventh; targets of 350 all, 480 to 900 half, 2,000 a fifth.
                        learned: LearnedBranches {
                            directions: 40_000,
                            targets: 700,
                            ..zen.learned
                        },
                        cache_bytes: [48 * KIB, 1024 * KIB, 32 * KIB * KIB],
                        miss_cycles: [14, 46, 350],
                        // Measured, one load a line: 1.0 to 1.4, 2.4 to 3.5, 6.8 for lines in order and 13 for every other one.
                        line_cycles: [1, 3, 14],
                        // Measured, lines by chance that do not wait for one another: 1.9 to 2.3 cycles each of 1.5 to 8 MiB.
                        third_level_in_pairs: false,
                        // Measured, lines 2, 4 … 64 apart: 1.1, 1.7, 2.8, 3.2, 4.4, 7.5 cycles a load, 1.1, 1.7, 10.9, 20.6,
                        // 28.3, 34 a store.
                        fill_cycles: [1, 2, 3, 3, 4, 7],
                        write_back_fill_cycles: [1, 2, 11, 21, 28, 34],
                        tlb_pages: [96, 4096],
                        execution: ZEN_5,
                        ..zen
                    },
                    _ => zen,
                };
                (core, true)
            }
            _ => (sunny, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::PriceOrigin;

    #[test]
    fn a_design_without_a_row_is_assumed_and_every_class_can_be_executed() {
        for design in M::ALL {
            let core = Design::of(*design).core();
            for (class, row) in core.value.execution.iter().enumerate() {
                let needs_a_port = class != OpClass::Renamed as usize;
                assert_eq!(row.ports != 0, needs_a_port, "{design}: class {class}");
                assert!(row.busy_cycles >= 1 && row.operations >= 1, "{design}: class {class}");
            }
        }
        assert_eq!(Design::of(M::Unknown).core().origin, PriceOrigin::Assumed);
        assert_eq!(Design::of(M::GoldenCove).core().value.dispatch_width, 6);
        assert_eq!(Design::of(M::GoldenCove).core().value.reorder_window, 512);
    }

    #[test]
    fn presented_caches_go_before_the_table() {
        let mut design = Design::of(M::GoldenCove);
        design.data_cache_bytes = Some([32 << 10, 1 << 20, 8 << 20]);
        assert_eq!(design.core().value.cache_bytes, [32 << 10, 1 << 20, 8 << 20]);
    }
}
