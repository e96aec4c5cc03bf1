//! The truth: the program runs, instruction by instruction, and its accesses go through the model
//! of the store buffer.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use stallscope::code::{Access, FunctionCode, Image, Insn};
use stallscope::machine::ForwardingRule;
use stallscope::model::{Avma, Svma};
use stallscope::run::child::{Launch, Limits};
use stallscope::sim::Fan;
use stallscope::sim::store_buffer::{StoreBuffer, StoreBufferReport, StoreBufferShape};
use stallscope::trace::engine::{
    AccessKind, Block, BlockId, BlockInsn, Length, MemoryAccess, Sink as _, Start, Window, engine,
};

/// Two buffers that saw the same run: stores leave the first behind as many instructions as the rule
/// looks back, the second behind as many as the model usually takes.
pub struct Truth {
    pub near: StoreBufferReport,
    pub far: StoreBufferReport,
}

/// As far back as the rule looks.
const NEAR_INSTRUCTIONS: u32 = 64;

fn buffers(rule: ForwardingRule) -> (StoreBuffer, StoreBuffer) {
    let far = StoreBufferShape { depth: 56, window_instructions: 200 };
    let near = StoreBufferShape { window_instructions: NEAR_INSTRUCTIONS, ..far };
    (StoreBuffer::new(rule, near), StoreBuffer::new(rule, far))
}

/// Steps through an x86-64 program; an error says why not.
pub fn natively(program: &Path, rule: ForwardingRule) -> Result<Truth, String> {
    let image = Image::open(program).map_err(|e| e.to_string())?;
    let start = image.functions().iter().find(|f| f.symbol == "run_all").ok_or("no run_all")?;
    let launch = Launch { program: program.into(), ..Launch::default() };
    let window = Window {
        start: Start::At { object: None, svma: start.start },
        skip: 0,
        length: Length::Calls(1),
        memory: true,
        budget: None,
    };
    let (mut near, mut far) = buffers(rule);
    let mut both = Fan(vec![&mut near, &mut far]);
    let step = engine("step").ok_or("no engine `step`")?;
    let never = AtomicBool::new(false);
    let limits = Limits { timeout: Some(Duration::from_secs(300)), interrupt: &never };
    step.record(&launch, &window, limits, &mut both).map_err(|e| e.to_string())?;
    Ok(Truth { near: near.report(), far: far.report() })
}

/// Runs an AArch64 program in an emulator that writes down all registers before each instruction;
/// from these and the instruction's own address fields comes what it touches.
pub fn emulated(program: &Path, folder: &Path, rule: ForwardingRule) -> Result<Truth, String> {
    let log = folder.join("registers");
    let status = Command::new("qemu-aarch64")
        .args(["-d", "cpu,nochain", "-D"])
        .arg(&log)
        .arg(program)
        // One instruction at a time; the name of it changed.
        .envs([("QEMU_SINGLESTEP", "1"), ("QEMU_ONE_INSN_PER_TB", "1")])
        .status()
        .map_err(|e| format!("qemu-aarch64: {e}"))?;
    if !status.success() {
        return Err(format!("qemu-aarch64: {status}"));
    }
    let mut replay = Replay::of(program, rule)?;
    let mut registers = [0; 32];
    let mut at = None;
    for line in BufReader::new(File::open(log).map_err(|e| e.to_string())?).lines() {
        for (name, value) in line.map_err(|e| e.to_string())?.split_whitespace().filter_map(field) {
            if name == "PC" {
                replay.step(at, &registers);
                at = Some(value);
            } else if name == "SP" {
                registers[31] = value;
            } else if let Some(number) = name.strip_prefix('X')
                && let Ok(number) = number.parse::<usize>()
                && number < 31
            {
                registers[number] = value;
            }
        }
    }
    replay.step(at, &registers);
    Ok(Truth { near: replay.near.report(), far: replay.far.report() })
}

fn field(word: &str) -> Option<(&str, u64)> {
    let (name, value) = word.split_once('=')?;
    Some((name, u64::from_str_radix(value, 16).ok()?))
}

struct Replay {
    insns: HashMap<u64, (BlockId, Insn, u32)>,
    near: StoreBuffer,
    far: StoreBuffer,
}

impl Replay {
    fn of(program: &Path, rule: ForwardingRule) -> Result<Self, String> {
        let image = Image::open(program).map_err(|e| e.to_string())?;
        let (mut near, mut far) = buffers(rule);
        let mut insns = HashMap::new();
        for function in image.functions() {
            for insn in FunctionCode::of(&image, function).insns {
                let id = BlockId(insns.len() as u32);
                let address = Avma(insn.svma.0);
                let block = Block {
                    insns: vec![BlockInsn { address, size_bytes: 4, drains_stores: false }],
                };
                Fan(vec![&mut near, &mut far]).describe(id, &block);
                let bytes = image.code_at(Svma(insn.svma.0), 4);
                let word = bytes.try_into().map_or(0, u32::from_le_bytes);
                insns.insert(insn.svma.0, (id, insn, word));
            }
        }
        Ok(Self { insns, near, far })
    }

    fn step(&mut self, at: Option<u64>, registers: &[u64; 32]) {
        let Some((id, insn, word)) = at.and_then(|at| self.insns.get(&at)).copied() else { return };
        let mut accesses = Vec::new();
        for (kind, access) in [(AccessKind::Load, insn.load), (AccessKind::Store, insn.store)] {
            let Some(access) = access else { continue };
            let address = address(access, word, registers);
            let bytes = u32::from(access.size_bytes);
            // A pair is two accesses.
            let parts = if insn.is_pair { 2 } else { 1 };
            for part in 0..parts {
                let size_bytes = bytes / parts;
                let address = Avma(address.wrapping_add(u64::from(part * size_bytes)));
                accesses.push(MemoryAccess { insn: 0, kind, size_bytes, address });
            }
        }
        Fan(vec![&mut self.near, &mut self.far]).run(id, &accesses);
    }
}

fn address(access: Access, word: u32, registers: &[u64; 32]) -> u64 {
    let raw = access.address;
    let value = |r: stallscope::code::Reg| registers[usize::from(r.0)];
    let base = raw.base.map_or(0, value);
    // Loads and stores with an index register may extend its lower half.
    let index = raw.index.map_or(0, value);
    let index = match word >> 13 & 7 {
        2 => index & 0xffff_ffff,
        6 => i64::from(index as i32) as u64,
        _ => index,
    };
    let scaled = index.wrapping_mul(u64::from(raw.scale));
    base.wrapping_add(scaled).wrapping_add_signed(raw.displacement)
}
