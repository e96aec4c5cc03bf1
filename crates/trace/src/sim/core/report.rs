//! What the model says of a window, for people and programs: cycles, what they wait for, and where.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;

use super::{Account, Accounts, Mechanism};
use crate::machine::{Design, Microarchitecture, PriceOrigin};
use crate::model::Avma;
use crate::sim::Places;

/// Functions and instructions that are listed; each has to be decoded and named.
const MOST_LISTED: usize = 200;

/// What no number of the model holds.
const LEFT_OUT: &str = "decoding (the cache of decoded instructions, the alignment of code), memory that \
                        other cores write, assists (denormal numbers), huge pages and changes of the clock; where \
                        lines come from that the window touches for the first time is a guess";

/// A window by the model of the core: predicted, not measured.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CycleReport {
    /// Instructions that are accounted.
    pub instructions: u64,
    /// Instructions before them, which warm caches and predictors of the model up.
    pub warm_up_instructions: u64,
    /// Cycles that the accounted ones take.
    pub cycles: u64,
    /// Both as a ratio.
    pub cycles_per_instruction: f64,
    /// Calls in the whole window; absent where it was not asked for in calls, or not followed just now.
    pub calls: Option<u64>,
    /// Cycles of each, if all of the window's instructions take what the accounted ones do.
    pub cycles_per_call: Option<f64>,
    /// What each mechanism costs alone, most cycles first. Mechanisms that hide behind one another
    /// both cost nothing; the sum means nothing.
    pub waits: Vec<Wait>,
    /// Functions that were executed.
    pub functions_executed: usize,
    /// Those with the most cycles, most first; the report's `places` name them.
    pub functions: Vec<FunctionCycles>,
    /// Instructions that were executed, at different addresses.
    pub insns_executed: usize,
    /// Those with the most cycles, most first; the report's `places` name them.
    pub insns: Vec<InsnCycles>,
    /// Executions of instructions whose bytes could not be read: each was taken for an addition.
    pub unread_executions: u64,
    /// The core that is modelled.
    pub design: Microarchitecture,
    /// Where its properties come from.
    pub inputs: Vec<ModelInput>,
    /// What the model leaves out, as an enumeration.
    pub left_out: String,
}

/// What a window waits for.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Wait {
    /// What the model was run without.
    pub mechanism: Mechanism,
    /// Cycles that are gone then; negative where the window takes longer.
    pub cycles: i64,
    /// The same as a part of the window's cycles.
    pub share: f64,
    /// Executions that had it; none where executions cannot have it or not.
    pub events: u64,
    /// The same by 1000 instructions.
    pub events_per_thousand: f64,
    /// The instruction with most events, or with most cycles where there are none.
    pub most_at: Option<Avma>,
    /// Its events.
    pub most_events: u64,
}

/// Cycles of a function, without those of what it calls.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FunctionCycles {
    /// Its start; the first instruction that was met of code outside of functions, a file's at a time.
    pub start: Avma,
    /// Instructions of it that were executed.
    pub account: Account,
    /// Cycles for each.
    pub cycles_per_instruction: f64,
}

/// Cycles of an instruction: how far it moves retirement, whatever it waits for itself.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct InsnCycles {
    /// Its address.
    pub insn: Avma,
    /// What became of it; `cycles_without` and `events` in the order of [`Mechanism`].
    pub account: Account,
}

/// Where a property of the model comes from.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ModelInput {
    /// The property.
    pub what: String,
    /// Its source.
    pub origin: PriceOrigin,
}

impl CycleReport {
    /// Of a window that was run through the core of `design`; `calls` are those in all of it, if
    /// somebody knows.
    ///
    /// # Errors
    /// A sentence, when most of what was executed could not be read: there is nothing to model.
    pub fn of(
        accounts: &Accounts,
        calls: Option<u64>,
        design: &Design,
        places: &mut Places,
    ) -> Result<Self, String> {
        let all = accounts.insns.iter().map(|(_, account)| account).sum::<Account>();
        let instructions = all.executions;
        if instructions == 0 {
            return Err("no cycles: the window has no instructions".into());
        }
        if accounts.unread_executions.saturating_mul(2) > instructions {
            return Err(format!(
                "no cycles: {} of {instructions} executed instructions could not be read, because their files are no longer \
                 where they were, no file holds them, or they are not for x86-64, which is all that the model of the core knows",
                accounts.unread_executions
            ));
        }
        let cycles_per_instruction = per_instruction(&all);
        let in_window = accounts.window_instructions;
        let per_call = |calls| cycles_per_instruction * in_window as f64 / calls as f64;
        let mut functions = functions(&accounts.insns, places);
        let functions_executed = functions.len();
        functions.truncate(MOST_LISTED);
        Ok(Self {
            instructions,
            warm_up_instructions: in_window.saturating_sub(instructions),
            cycles: all.cycles,
            cycles_per_instruction,
            calls,
            cycles_per_call: calls.filter(|calls| *calls > 0).map(per_call),
            waits: waits(&all, &accounts.insns),
            functions_executed,
            functions,
            insns_executed: accounts.insns.len(),
            insns: hottest(&accounts.insns),
            unread_executions: accounts.unread_executions,
            design: design.microarchitecture,
            inputs: inputs(design),
            left_out: LEFT_OUT.to_owned(),
        })
    }

    /// The addresses that it names.
    pub(in crate::sim) fn addresses(&self) -> impl Iterator<Item = Avma> {
        let waits = self.waits.iter().filter_map(|wait| wait.most_at);
        let functions = self.functions.iter().map(|function| function.start);
        waits.chain(functions).chain(self.insns.iter().map(|i| i.insn))
    }
}

fn per_instruction(account: &Account) -> f64 {
    account.cycles as f64 / account.executions.max(1) as f64
}

fn waits(all: &Account, insns: &[(Avma, Account)]) -> Vec<Wait> {
    let mut waits: Vec<Wait> = Mechanism::ALL
        .into_iter()
        .map(|mechanism| {
            let cycles = all.cycles_of(mechanism);
            let events = all.events_of(mechanism);
            let weight = |account: &Account| match mechanism.has_events() {
                true => i64::try_from(account.events_of(mechanism)).unwrap_or(i64::MAX),
                false => account.cycles_of(mechanism),
            };
            let most = insns.iter().map(|(at, account)| (weight(account), *at, account));
            // Of equal ones the lowest address, in every run.
            let most = most.max_by_key(|(weight, at, _)| (*weight, std::cmp::Reverse(*at)));
            let most = most.filter(|(weight, ..)| *weight > 0);
            Wait {
                mechanism,
                cycles,
                share: cycles as f64 / all.cycles.max(1) as f64,
                events,
                events_per_thousand: all.events_per_thousand(mechanism),
                most_at: most.map(|(_, at, _)| at),
                most_events: most.map_or(0, |(.., account)| account.events_of(mechanism)),
            }
        })
        .collect();
    waits.sort_by_key(|wait| std::cmp::Reverse(wait.cycles));
    waits
}

fn functions(insns: &[(Avma, Account)], places: &mut Places) -> Vec<FunctionCycles> {
    let mut outside: HashMap<Option<PathBuf>, Avma> = HashMap::new();
    let mut functions: BTreeMap<Avma, Account> = BTreeMap::new();
    for (at, account) in insns {
        let (object, start) = places.function_start(*at);
        let start = start.unwrap_or_else(|| *outside.entry(object).or_insert(*at));
        *functions.entry(start).or_default() += account;
    }
    let of = |(start, account)| FunctionCycles {
        start,
        account,
        cycles_per_instruction: per_instruction(&account),
    };
    let mut functions: Vec<FunctionCycles> = functions.into_iter().map(of).collect();
    functions.sort_by_key(|function| std::cmp::Reverse(function.account.cycles));
    functions
}

fn hottest(insns: &[(Avma, Account)]) -> Vec<InsnCycles> {
    let of = |(insn, account): &(Avma, Account)| InsnCycles { insn: *insn, account: *account };
    let mut insns: Vec<InsnCycles> = insns.iter().map(of).collect();
    insns.sort_by_key(|i| (std::cmp::Reverse(i.account.cycles), i.insn));
    insns.truncate(MOST_LISTED);
    insns
}

/// What was measured here stands before the table's values.
fn inputs(design: &Design) -> Vec<ModelInput> {
    let core = design.core().origin;
    let origin = |price: Option<&PriceOrigin>| price.unwrap_or(&core).clone();
    let measured = design.measured_core.as_ref().map(|core| &core.origin);
    let branches = design.measured_branches.as_ref().map(|branches| &branches.origin);
    let forwarded = design.store_forward_cycles.as_ref().map(|price| &price.origin);
    let missed = design.data_miss_cycles.as_ref().map(|levels| &levels[0].origin);
    let walked = design.page_walk_cycles.as_ref().map(|price| &price.origin);
    let all = [
        ("widths, units and latencies", origin(measured)),
        ("instructions in flight", design.reorder_window().origin),
        ("stores in flight", design.store_queue().origin),
        ("branches that are learned", branches.unwrap_or(&PriceOrigin::Assumed).clone()),
        ("data cache misses", origin(missed)),
        ("page walks", origin(walked)),
        ("which loads can be forwarded", design.forwarding_rule_origin.clone()),
        ("forwarding", origin(forwarded)),
        ("blocked loads", design.store_forward_blocked_cycles.origin.clone()),
        ("string instructions", design.string_move_costs(8).origin),
    ];
    all.map(|(what, origin)| ModelInput { what: what.to_owned(), origin }).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two instructions: one waits for stores, the other for what is in front of it.
    fn accounts(unread_executions: u64) -> Accounts {
        let mut first = Account {
            executions: 600,
            cycles: 900,
            cycles_without: [900; Mechanism::ALL.len()],
            ..Account::default()
        };
        first.cycles_without[Mechanism::BlockedLoads as usize] = 300;
        first.events[Mechanism::BlockedLoads as usize] = 60;
        let mut second = Account {
            executions: 200,
            cycles: 100,
            cycles_without: [100; Mechanism::ALL.len()],
            ..Account::default()
        };
        second.cycles_without[Mechanism::LongChains as usize] = 40;
        let insns = vec![(Avma(0x20), second), (Avma(0x10), first)];
        Accounts { window_instructions: 1000, insns, blocked_by: Vec::new(), unread_executions }
    }

    fn report(accounts: &Accounts, calls: Option<u64>) -> Result<CycleReport, String> {
        let design = Design::of(Microarchitecture::GoldenCove);
        CycleReport::of(accounts, calls, &design, &mut Places::new(Vec::new(), Vec::new()))
    }

    #[test]
    fn cycles_are_told_for_an_instruction_and_for_a_call() {
        let found = report(&accounts(0), Some(4)).unwrap();
        assert_eq!(
            (found.instructions, found.warm_up_instructions, found.cycles),
            (800, 200, 1000)
        );
        // Four calls of 250 instructions, those that warm the model up among them.
        assert_eq!((found.cycles_per_instruction, found.cycles_per_call), (1.25, Some(312.5)));
        assert_eq!(report(&accounts(0), Some(0)).unwrap().cycles_per_call, None);
        assert_eq!(report(&accounts(0), None).unwrap().cycles_per_call, None);
        let insns: Vec<u64> = found.insns.iter().map(|i| i.insn.0).collect();
        assert_eq!((found.insns_executed, insns), (2, vec![0x10, 0x20]));
        // Code that no file holds is one function.
        assert_eq!((found.functions_executed, found.functions[0].account.executions), (1, 800));
        assert_eq!(found.functions[0].cycles_per_instruction, 1.25);
        assert_eq!((found.inputs.len(), found.design), (10, Microarchitecture::GoldenCove));
        assert_eq!(found.addresses().count(), 2 + 1 + 2);
    }

    #[test]
    fn the_mechanism_that_costs_most_comes_first_with_its_place() {
        let found = report(&accounts(0), None).unwrap();
        let [blocked, chains, others @ ..] = &found.waits[..] else { panic!("{:?}", found.waits) };
        assert_eq!(
            (blocked.mechanism, blocked.cycles, blocked.share),
            (Mechanism::BlockedLoads, 600, 0.6)
        );
        assert_eq!((blocked.events, blocked.events_per_thousand), (60, 75.0));
        assert_eq!((blocked.most_at, blocked.most_events), (Some(Avma(0x10)), 60));
        // Where no single execution has it, its place is where most of its cycles are.
        assert_eq!(
            (chains.mechanism, chains.cycles, chains.events),
            (Mechanism::LongChains, 60, 0)
        );
        assert_eq!((chains.most_at, chains.most_events), (Some(Avma(0x20)), 0));
        assert_eq!(others.len(), 14);
        assert!(others.iter().all(|wait| wait.cycles == 0 && wait.most_at.is_none()));
    }

    #[test]
    fn a_window_of_which_most_could_not_be_read_has_no_cycles() {
        assert!(report(&accounts(400), None).is_ok());
        assert!(report(&accounts(401), None).unwrap_err().contains("401 of 800"));
        let none = Accounts { window_instructions: 9, ..accounts(0) };
        let none = Accounts { insns: Vec::new(), ..none };
        assert!(report(&none, None).unwrap_err().contains("no instructions"));
    }
}
